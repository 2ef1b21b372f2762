//! OpenAI Chat Completions, and the servers that speak almost the same.
//!
//! bytes → `framing` → payloads → `decode` → chunks → `assemble` → one answer → `decide` (may its calls run?).
//! `reader` joins these parts; `client` feeds it from a connection, `inspect` from a recording.

mod assemble;
mod client;
mod decide;
mod decode;
mod encode;
mod framing;
mod reader;
mod refusal;

pub use client::{ChatConfig, ChatProvider, ConfigError};
pub(crate) use reader::{ChatReader, Verdict};
