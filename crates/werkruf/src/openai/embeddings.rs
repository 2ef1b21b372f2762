//! `POST /v1/embeddings`: vectors of the configured embedding model.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde_json::{Map, Value, json};
use werkruf_contract::Deadline;
use werkruf_llm::{count_tokens, decode_embedding_tokens};

use super::failure::{failed_request, not_configured};
use super::start::MODEL_HEADER;
use super::unsupported::refused;
use crate::api::error::ApiError;
use crate::api::policy::{Authenticated, Policy};
use crate::api::{ApiState, body};
use crate::routing::{self, ApiRouter, routes};

const FIELDS: [&str; 5] = ["input", "model", "encoding_format", "dimensions", "user"];
/// As at OpenAI.
const MAX_TEXTS: usize = 2048;
const MAX_BYTES: usize = 16 * 1024 * 1024;
const TIME: Duration = Duration::from_secs(60);

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Chat.on(routes!(create)))
}

/// Vectors for texts. `model` is repeated; the header `X-Werkruf-Model` names the configured embedding model, which makes them.
#[routing::path(post, path = "/v1/embeddings", operation_id = "create_embeddings", tag = "openai",
    request_body(content = Object, description = "`input`: a text, texts, or lists of tokens (cl100k_base); `encoding_format`: `float` or `base64`; `dimensions`, where the model can shorten its vectors."),
    responses((status = 200, body = Object, description = "As OpenAI describes it."), (status = "4XX", body = Object), (status = "5XX", body = Object)))]
async fn create(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    body: body::RequestBody,
) -> Result<Response, ApiError> {
    let caller = identity.caller()?;
    let Some(real) = api.app.runtime.embedding_model().map(str::to_owned) else {
        return Err(not_configured(
            "No embedding model is configured; the operator sets OPENAI_EMBEDDING_BASE_URL and OPENAI_EMBEDDING_MODEL.",
        ));
    };
    let raw = body::bytes_up_to(body, MAX_BYTES).await?;
    let fields = body::json_fields(&raw, &FIELDS, |_| Ok(()))?;
    let as_base64 = match fields.get("encoding_format").and_then(Value::as_str) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::invalid("encoding_format takes float or base64.").param("encoding_format")),
    };
    let dimensions = dimensions(&fields)?;
    let texts = texts(&fields).await?;
    let embedded = api.app.runtime.embed(&caller, &texts, dimensions, Deadline::after(TIME)).await.map_err(failed_request)?;
    let size = embedded.vectors.first().map_or(0, Vec::len);
    if dimensions.is_some_and(|wanted| usize::try_from(wanted) != Ok(size)) {
        return Err(refused("dimensions", "The embedding model cannot shorten its vectors to this size; leave dimensions out."));
    }
    let tokens = match embedded.tokens {
        Some(tokens) => u64::try_from(tokens).unwrap_or(0),
        None => count_tokens(texts).await.unwrap_or_default().iter().sum(),
    };
    let vector = |(index, vector): (usize, &Vec<f32>)| {
        let embedding = if as_base64 { STANDARD.encode(little_endian(vector)).into() } else { json!(vector) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    let data: Vec<Value> = embedded.vectors.iter().enumerate().map(vector).collect();
    let model = fields.get("model").and_then(Value::as_str).unwrap_or(&real);
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let mut response = Json(json!({"object": "list", "data": data, "model": model, "usage": usage})).into_response();
    if let Ok(value) = HeaderValue::from_str(&real) {
        response.headers_mut().insert(MODEL_HEADER, value);
    }
    Ok(response)
}

fn dimensions(fields: &Map<String, Value>) -> Result<Option<u32>, ApiError> {
    let Some(value) = fields.get("dimensions").filter(|value| !value.is_null()) else { return Ok(None) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| ApiError::invalid("dimensions takes a number from 1 on.").param("dimensions"))
}

/// The texts of `input`: one, several, or lists of tokens, which are decoded.
async fn texts(fields: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let wrong = || ApiError::invalid("input takes a text that is not empty, a list of them, or lists of tokens.").param("input");
    let texts = match fields.get("input") {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) if items.first().is_some_and(Value::is_number) => decoded(vec![tokens(items).ok_or_else(wrong)?]).await?,
        Some(Value::Array(items)) if items.first().is_some_and(Value::is_array) => {
            let lists = items.iter().map(|item| tokens(item.as_array()?)).collect::<Option<Vec<_>>>();
            decoded(lists.ok_or_else(wrong)?).await?
        }
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        return Err(wrong());
    }
    if texts.len() > MAX_TEXTS {
        return Err(ApiError::invalid(format!("input has more than {MAX_TEXTS} texts; send fewer.")).param("input"));
    }
    Ok(texts)
}

fn tokens(items: &[Value]) -> Option<Vec<u32>> {
    items.iter().map(|item| item.as_u64().and_then(|token| u32::try_from(token).ok())).collect()
}

async fn decoded(lists: Vec<Vec<u32>>) -> Result<Vec<String>, ApiError> {
    let unreadable = || ApiError::invalid("The tokens of input are no text in the encoding cl100k_base; send text.").param("input");
    decode_embedding_tokens(lists).await.ok_or_else(unreadable)
}

fn little_endian(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}
