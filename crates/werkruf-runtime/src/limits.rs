//! `[limits]` of the config file. Each limit is also `WERKRUF_LIMIT_<NAME>`.

use std::time::Duration;

use serde::Deserialize;

/// The bounds of a turn and of the process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Model answers per turn.
    pub steps: u32,
    pub turn_ms: u64,
    /// Longest time of one attempt of a tool without a limit of its own.
    pub tool_ms: u64,
    pub model_first_byte_ms: u64,
    pub model_idle_ms: u64,
    pub drain_ms: u64,
    pub lease_ttl_ms: u64,
    /// Calls in one model answer; the rest is answered `too_many_calls`.
    pub calls_per_step: usize,
    /// Calls of one step at once.
    pub parallel: usize,
    /// 0 is off.
    pub turns_per_minute_user: u32,
    /// 0 is off.
    pub turns_per_minute_key: u32,
    /// Model requests at once; 0 is off.
    pub model_concurrency: usize,
    /// Turns accepted and not finished.
    pub queue: usize,
    /// How long an approval may stay undecided.
    pub approval_ttl_s: u32,
    /// The size of a conversation's session state as JSON.
    pub state_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 16,
            turn_ms: 300_000,
            tool_ms: 30_000,
            model_first_byte_ms: 60_000,
            model_idle_ms: 60_000,
            drain_ms: 30_000,
            lease_ttl_ms: 15_000,
            calls_per_step: 128,
            parallel: 8,
            turns_per_minute_user: 20,
            turns_per_minute_key: 600,
            model_concurrency: 0,
            queue: 10_000,
            approval_ttl_s: 86_400,
            state_bytes: 262_144,
        }
    }
}

impl Limits {
    /// The names, for the environment and for errors.
    pub const NAMES: [&'static str; 15] = [
        "steps",
        "turn_ms",
        "tool_ms",
        "model_first_byte_ms",
        "model_idle_ms",
        "drain_ms",
        "lease_ttl_ms",
        "calls_per_step",
        "parallel",
        "turns_per_minute_user",
        "turns_per_minute_key",
        "model_concurrency",
        "queue",
        "approval_ttl_s",
        "state_bytes",
    ];

    pub(crate) const fn turn(&self) -> Duration {
        Duration::from_millis(self.turn_ms)
    }

    pub(crate) const fn tool(&self) -> Duration {
        Duration::from_millis(self.tool_ms)
    }

    pub(crate) const fn approval_ttl(&self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_secs(self.approval_ttl_s as i64)
    }

    /// How long a drain may take.
    pub const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}
