//! An embedding server for questions with OpenAI's API and no model behind it.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::seed::MadeLibrary;

/// The name of the embedding model.
pub(super) const MODEL: &str = "made-up";

/// Ends when dropped.
pub(super) struct VectorServer {
    port: u16,
    serving: JoinHandle<()>,
}

impl VectorServer {
    #[expect(clippy::disallowed_methods, reason = "the task ends when its owner is dropped")]
    pub(super) async fn start(library: Arc<MadeLibrary>) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let router = Router::new().route("/v1/embeddings", post(embed)).with_state(library);
        let serving = tokio::spawn(async move {
            // The server ends with the run.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { port, serving })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for VectorServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn embed(State(library): State<Arc<MadeLibrary>>, Json(body): Json<Value>) -> Json<Value> {
    let texts = match &body["input"] {
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        Value::String(text) => vec![text.as_str()],
        _ => Vec::new(),
    };
    let data: Vec<Value> =
        texts.iter().enumerate().map(|(index, text)| json!({"index": index, "embedding": library.vector(text)})).collect();
    Json(json!({"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}))
}
