//! A client for OpenAI's embeddings API: one request, one response, no retries.

use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_contract::Deadline;

use crate::server::Server;
use crate::{ConfigError, ModelError, ServerConfig};

/// An embedding model on a server.
#[derive(Debug)]
pub struct Embeddings {
    server: Server,
}

/// The vectors, in the order of their texts, and the token count.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    pub vectors: Vec<Vec<f32>>,
    /// The server's token count, if it reports one.
    pub tokens: Option<i64>,
    /// The id that the provider gave the request.
    pub request_id: Option<String>,
}

impl Embeddings {
    /// Checks the configuration; does not connect.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Ok(Self { server: Server::new(config, "embeddings", &["embeddings"])? })
    }

    /// The value for `api_usage.provider`.
    pub fn name(&self) -> &str {
        &self.server.config.name
    }

    /// The model that computes the vectors.
    pub fn model(&self) -> &str {
        &self.server.config.model
    }

    /// Sends one request, without retries. Some models can shorten their vectors to `dimensions`.
    pub async fn embed(&self, texts: &[String], dimensions: Option<u32>, deadline: Deadline) -> Result<Embedded, ModelError> {
        let mut body = json!({"model": self.model(), "input": texts});
        if let Some(dimensions) = dimensions {
            body["dimensions"] = dimensions.into();
        }
        let body = body.to_string().into_bytes();
        let (embedded, request_id) = self.server.post(body, deadline, |answer| read(answer, texts.len())).await?;
        Ok(Embedded { request_id, ..embedded })
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

fn read(answer: &[u8], texts: usize) -> Result<Embedded, String> {
    let Answer { data, usage } = serde_json::from_slice(answer).map_err(|error| format!("the vectors: {error}"))?;
    let mut vectors = vec![Vec::new(); texts];
    for (position, item) in data.into_iter().enumerate() {
        let slot = vectors.get_mut(item.index.unwrap_or(position)).ok_or("there are more vectors than texts")?;
        *slot = item.embedding;
    }
    let size = vectors.first().map_or(0, Vec::len);
    if size == 0 || vectors.iter().any(|vector| vector.len() != size || vector.iter().any(|value| !value.is_finite())) {
        return Err("a vector is missing, of another size than the others, or not a number".to_owned());
    }
    let tokens = ["total_tokens", "prompt_tokens"].iter().find_map(|name| usage.get(name).and_then(Value::as_i64));
    Ok(Embedded { vectors, tokens, request_id: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_in_the_order_of_their_texts() {
        let answer =
            br#"{"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2.5]}], "usage": {"prompt_tokens": 7}}"#;
        assert_eq!(read(answer, 2), Ok(Embedded { vectors: vec![vec![1.0, 2.5], vec![3.0, 4.0]], tokens: Some(7), request_id: None }));
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for answer in [
            r#"{"data": [{"index": 0, "embedding": [1]}]}"#,
            r#"{"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}"#,
            r#"{"data": [{"embedding": []}, {"embedding": []}]}"#,
            r#"{"data": [{"embedding": [1]}, {"embedding": [1]}, {"embedding": [1]}]}"#,
            r#"{"error": "no"}"#,
        ] {
            assert!(read(answer.as_bytes(), 2).is_err(), "{answer}");
        }
    }
}
