//! An embedding server with OpenAI's API and no model behind it. It answers questions at once, and chunks when the run says so.
//!
//! The vectors of chunks are computed and written as JSON before the run, because this work must not take CPU time from the server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::seed::MadeLibrary;

/// The name of the embedding model.
pub(super) const MODEL: &str = "made-up";

/// What the server answers from.
struct Vectors {
    library: Arc<MadeLibrary>,
    /// By text of a chunk: its vector as JSON.
    prepared: HashMap<String, String>,
    /// Closed when chunks are answered.
    waiting: Semaphore,
}

/// Ends when dropped.
pub(super) struct VectorServer {
    port: u16,
    vectors: Arc<Vectors>,
    serving: JoinHandle<()>,
}

impl VectorServer {
    #[expect(clippy::disallowed_methods, reason = "the task ends when its owner is dropped")]
    /// `chunks` are the texts of the chunks that the server will ask for.
    pub(super) async fn start(library: Arc<MadeLibrary>, chunks: Vec<String>) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let prepared = chunks.into_iter().map(|text| (text.clone(), json(&library, &text))).collect();
        let vectors = Arc::new(Vectors { library, prepared, waiting: Semaphore::new(0) });
        let router = Router::new().route("/v1/embeddings", post(embed)).with_state(Arc::clone(&vectors));
        let serving = tokio::spawn(async move {
            // The server ends with the run.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { port, vectors, serving })
    }

    /// Answers requests for the vectors of chunks from now on.
    pub(super) fn answer_chunks(&self) {
        self.vectors.waiting.close();
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

async fn embed(State(vectors): State<Arc<Vectors>>, Json(body): Json<Value>) -> impl IntoResponse {
    let texts: Vec<&str> = match &body["input"] {
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        Value::String(text) => vec![text.as_str()],
        _ => Vec::new(),
    };
    // A question is one text. The semaphore has no permits, so chunks wait until it is closed.
    if texts.len() > 1 {
        let _closed = vectors.waiting.acquire().await;
    }
    let entries: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let vector = vectors.prepared.get(*text).map_or_else(|| Cow::Owned(json(&vectors.library, text)), Cow::Borrowed);
            format!(r#"{{"object":"embedding","index":{index},"embedding":{vector}}}"#)
        })
        .collect();
    let data = entries.join(",");
    let answer = format!(r#"{{"object":"list","model":"{MODEL}","data":[{data}],"usage":{{"prompt_tokens":1,"total_tokens":1}}}}"#);
    ([(CONTENT_TYPE, "application/json")], answer)
}

/// The vector of a text as JSON.
fn json(library: &MadeLibrary, text: &str) -> String {
    serde_json::json!(library.vector(text)).to_string()
}
