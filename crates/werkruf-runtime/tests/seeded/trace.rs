//! The log of a run with its simulated time. A failing seed prints it, and two runs of one seed must have the same one.

use std::sync::Mutex;

use tokio::time::Instant;
use werkruf_contract::Uuid;

pub struct Trace {
    began: Instant,
    lines: Mutex<Vec<String>>,
}

impl Trace {
    pub fn new() -> Self {
        Self { began: Instant::now(), lines: Mutex::new(Vec::new()) }
    }

    pub fn note(&self, who: &str, what: std::fmt::Arguments<'_>) {
        let at = self.began.elapsed().as_millis();
        self.lines.lock().unwrap().push(format!("{at:>7} ms  {who:<8} {what}"));
    }

    pub fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// FNV-1a over every line.
    pub fn digest(&self) -> u64 {
        self.text().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }
}

/// Ids of a driven clock are numbered; the number identifies an id in a trace.
pub fn short(id: Uuid) -> String {
    let bytes = id.as_bytes();
    format!("#{}", u32::from_be_bytes([bytes[7], bytes[9], bytes[10], bytes[11]]))
}
