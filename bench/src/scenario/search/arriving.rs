//! Searches while documents arrive at full speed, and while the vectors of these documents are computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{BATCH, post};
use crate::seed::MadeLibrary;
use crate::stage::KEY;

/// Requests that are made in advance, because making them must not take CPU time from the server.
const PREPARED: usize = 40;
/// Stands for a number in the ids of a prepared request, so that the same texts are new documents each time.
const ROUND: &str = "arriving-round";

/// Sends documents, one request after the other, until it is stopped.
pub(super) struct Arriving {
    sending: tokio::task::JoinHandle<Result<(), String>>,
    stop: Arc<AtomicBool>,
    chunks: Arc<AtomicUsize>,
}

impl Arriving {
    #[expect(clippy::disallowed_methods, reason = "the task ends when it is stopped")]
    pub(super) fn start(library: &MadeLibrary, client: &reqwest::Client, url: &str) -> Self {
        let documents = library.documents().min(PREPARED * BATCH);
        let bodies: Vec<String> = (0..documents).step_by(BATCH).map(|from| body(library, from..documents.min(from + BATCH))).collect();
        let (stop, chunks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, sent, client) = (Arc::clone(&stop), Arc::clone(&chunks), client.clone());
        let url = format!("{url}/api/knowledge/documents");
        let sending = tokio::spawn(async move {
            for (at, body) in bodies.iter().cycle().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let body = body.replace(ROUND, &format!("arriving-{}", at / bodies.len()));
                let request = client.post(&url).bearer_auth(KEY).header("content-type", "application/json").body(body);
                let answer = request.send().await.map_err(|error| error.to_string())?;
                let text = answer.text().await.map_err(|error| error.to_string())?;
                let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
                let chunks = answer["chunks"].as_u64().ok_or_else(|| format!("search: documents were refused: {text}"))?;
                sent.fetch_add(usize::try_from(chunks).unwrap_or(0), Ordering::Relaxed);
            }
            Ok(())
        });
        Self { sending, stop, chunks }
    }

    /// Stops sending; returns the number of chunks that were sent.
    pub(super) async fn stop(self) -> Result<usize, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.sending.await.map_err(|error| error.to_string())??;
        Ok(self.chunks.load(Ordering::Relaxed))
    }
}

fn body(library: &MadeLibrary, documents: std::ops::Range<usize>) -> String {
    let document = |number: usize| {
        let mut document = library.document(number);
        document["id"] = json!(format!("{ROUND}-{number}"));
        document
    };
    json!({"documents": documents.map(document).collect::<Vec<_>>()}).to_string()
}

/// The number of chunks without a vector.
pub(super) async fn pending(client: &reqwest::Client, url: &str) -> Result<i64, String> {
    let request = client.get(format!("{url}/api/knowledge/collections/default")).bearer_auth(KEY);
    let text = request.send().await.map_err(|error| error.to_string())?.text().await.map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    answer["pending"].as_i64().ok_or_else(|| format!("search: no number of pending chunks in {text}"))
}

/// Whether an index is still being built.
pub(super) async fn is_building(client: &reqwest::Client, url: &str) -> Result<bool, String> {
    let request = client.get(format!("{url}/readyz"));
    let text = request.send().await.map_err(|error| error.to_string())?.text().await.map_err(|error| error.to_string())?;
    Ok(text.contains("knowledge_index"))
}

/// Sends a question; the server decides how it searches.
pub(super) async fn ask_in_any_mode(client: &reqwest::Client, url: &str, text: &str) -> Result<Value, String> {
    post(client, url, "search", &json!({"query": text})).await
}
