//! Texts as vectors, by a server that speaks OpenAI's embeddings API: one request, one answer, no retries.

use serde::Deserialize;
use serde_json::{Value, json};
use werkruf_contract::Deadline;

use crate::server::Server;
use crate::{ConfigError, ModelError, ModelFault, ServerConfig};

/// A place that turns texts into vectors.
#[derive(Debug)]
pub struct Embeddings {
    server: Server,
}

/// Vectors in the order of their texts, and what they cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    pub vectors: Vec<Vec<f32>>,
    /// As the server counted them, where it did.
    pub tokens: Option<i64>,
}

impl Embeddings {
    /// Checks the configuration; connects nowhere.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Ok(Self { server: Server::new(config, "embeddings", &["embeddings"])? })
    }

    /// For `api_usage.provider`.
    pub fn name(&self) -> &str {
        &self.server.config.name
    }

    /// Whose vectors these are.
    pub fn model(&self) -> &str {
        &self.server.config.model
    }

    /// Sends once.
    pub async fn embed(&self, texts: &[String], deadline: Deadline) -> Result<Embedded, ModelError> {
        let body = json!({"model": self.model(), "input": texts}).to_string().into_bytes();
        let answer = self.server.post(body, deadline).await?;
        read(&answer, texts.len()).map_err(|words| ModelError::new(ModelFault::Protocol, words))
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
    for (place, item) in data.into_iter().enumerate() {
        let slot = vectors.get_mut(item.index.unwrap_or(place)).ok_or("there are more vectors than texts")?;
        *slot = item.embedding;
    }
    let size = vectors.first().map_or(0, Vec::len);
    if size == 0 || vectors.iter().any(|vector| vector.len() != size || vector.iter().any(|value| !value.is_finite())) {
        return Err("a vector is missing, of another size than the others, or not a number".to_owned());
    }
    let tokens = ["total_tokens", "prompt_tokens"].iter().find_map(|name| usage.get(name).and_then(Value::as_i64));
    Ok(Embedded { vectors, tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_take_the_places_of_their_texts() {
        let answer =
            br#"{"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2.5]}], "usage": {"prompt_tokens": 7}}"#;
        assert_eq!(read(answer, 2), Ok(Embedded { vectors: vec![vec![1.0, 2.5], vec![3.0, 4.0]], tokens: Some(7) }));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
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
