//! The load generator: concurrent chats, each of which sends its next message after the last answer and starts a new conversation
//! every few turns.

mod comparison;
mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::{Value, json};
use uuid::Uuid;

pub use comparison::{Bars, Comparison, Line, median};
pub use process::{Child, cpu_seconds, peak_mib};

const TURNS_PER_CHAT: u64 = 5;
/// A conversation grows from 200 to 240 messages.
pub const TURNS_PER_OLDER_CHAT: u64 = 10;

/// Numbers every turn of this process, so that rounds use different idempotency keys.
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// The servers under load.
#[derive(Clone)]
pub struct Target {
    /// Addresses and process ids; each chat stays with one server.
    pub servers: Vec<(String, u32)>,
    pub key: Option<String>,
    /// Older conversations; a chat continues the next one instead of starting a new one.
    pub older: Option<Arc<Older>>,
}

impl Target {
    /// The sum of a figure over all processes.
    fn sum(&self, of: impl Fn(u32) -> Result<f64, String>) -> Result<f64, String> {
        self.servers.iter().map(|(_, pid)| of(*pid)).sum()
    }
}

/// Existing conversations, each used once, because a chat makes it longer.
#[derive(Debug)]
pub struct Older {
    ids: Vec<Uuid>,
    given: AtomicUsize,
}

impl Older {
    pub const fn new(ids: Vec<Uuid>) -> Self {
        Self { ids, given: AtomicUsize::new(0) }
    }

    fn next(&self) -> Result<String, String> {
        let at = self.given.fetch_add(1, Ordering::Relaxed);
        self.ids.get(at).map(Uuid::to_string).ok_or_else(|| "all older conversations are used up".to_owned())
    }
}

/// The measurements of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Turns that ended inside the window.
    pub turns: u64,
    /// All answered turns, also before and after the window.
    pub answered: u64,
    pub cpu_ms_per_turn: f64,
    pub turns_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// The peak memory of the server since its start.
    pub peak_mib: f64,
}

/// The size and duration of the load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub chats: usize,
    pub warm_up: Duration,
    pub window: Duration,
    /// Appended to each message: `calls=3`, `steps=10`.
    pub shape: &'static str,
}

impl Load {
    /// Runs the load and measures the server's own CPU inside the window.
    #[expect(clippy::disallowed_methods, reason = "a load generator measures time; each chat is awaited below")]
    pub async fn run(&self, target: &Target, client: &reqwest::Client) -> Result<Measured, String> {
        let begin = Instant::now() + self.warm_up;
        let end = begin + self.window;
        let url = |at: usize| target.servers.get(at % target.servers.len().max(1)).map(|server| server.0.clone()).unwrap_or_default();
        let chats: Vec<_> =
            (0..self.chats).map(|at| tokio::spawn(chat(url(at), target.clone(), client.clone(), self.shape, begin, end))).collect();
        tokio::time::sleep_until(begin.into()).await;
        let cpu_before = target.sum(cpu_seconds)?;
        tokio::time::sleep_until(end.into()).await;
        let cpu = target.sum(cpu_seconds)? - cpu_before;
        let (mut latencies, mut answered) = (Vec::new(), 0);
        for chat in chats {
            let (of_chat, turns) = chat.await.map_err(|error| error.to_string())??;
            latencies.extend(of_chat);
            answered += turns;
        }
        latencies.sort_by(f64::total_cmp);
        let turns = latencies.len() as u64;
        let seconds = self.window.as_secs_f64();
        if turns == 0 {
            return Err("no turn finished inside the window".to_owned());
        }
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        Ok(Measured {
            turns,
            answered,
            cpu_ms_per_turn: cpu * 1000.0 / turns as f64,
            turns_per_second: turns as f64 / seconds,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            peak_mib: target.sum(peak_mib)?,
        })
    }
}

/// Runs one chat; returns the latencies in milliseconds of the turns that ended inside the window, and the number of all answered turns.
#[expect(clippy::disallowed_methods, reason = "a load generator measures time")]
async fn chat(
    url: String,
    target: Target,
    client: reqwest::Client,
    shape: &'static str,
    begin: Instant,
    end: Instant,
) -> Result<(Vec<f64>, u64), String> {
    let (mut latencies, mut turns) = (Vec::new(), 0);
    let mut conversation: Option<String> = None;
    let per_chat = if target.older.is_some() { TURNS_PER_OLDER_CHAT } else { TURNS_PER_CHAT };
    while Instant::now() < end {
        if turns % per_chat == 0 {
            conversation = target.older.as_deref().map(Older::next).transpose()?;
        }
        let number = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let mut body = json!({"message": format!("Turn {number} {shape}")});
        if let Some(id) = &conversation {
            body["conversation_id"] = Value::from(id.as_str());
        }
        let started = Instant::now();
        conversation = Some(turn(&url, target.key.as_deref(), &client, &body, number).await?);
        let ended = Instant::now();
        if ended >= begin && ended < end {
            latencies.push((ended - started).as_secs_f64() * 1000.0);
        }
        turns += 1;
    }
    Ok((latencies, turns))
}

/// Sends one turn and reads it to its end; returns the conversation id, or an error if the answer is not the expected one.
async fn turn(url: &str, key: Option<&str>, client: &reqwest::Client, body: &Value, number: u64) -> Result<String, String> {
    let mut request = client.post(format!("{url}/api/chat")).header("idempotency-key", format!("bench-{}-{number}", std::process::id()));
    if let Some(key) = key {
        request = request.bearer_auth(key).header("x-user-id", "1");
    }
    let request = request.header("content-type", "application/json").body(body.to_string());
    let answer = request.send().await.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("HTTP {}: {}", answer.status(), answer.text().await.unwrap_or_default()));
    }
    let mut stream = answer.bytes_stream();
    let mut text = Vec::new();
    while let Some(piece) = stream.next().await {
        text.extend_from_slice(&piece.map_err(|error| error.to_string())?);
    }
    let text = String::from_utf8_lossy(&text);
    let (_, last) = text.rsplit_once("event: final").ok_or_else(|| format!("the turn did not end well: {text}"))?;
    let data = last.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
    let last: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
    if last["message"]["content"].as_str().is_none_or(str::is_empty) {
        return Err(format!("the turn ended without a text: {last}"));
    }
    last["conversation_id"].as_str().map(str::to_owned).ok_or_else(|| "no conversation id".to_owned())
}
