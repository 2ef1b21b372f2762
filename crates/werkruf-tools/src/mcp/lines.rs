//! Copies the lines of a child process to the client, with bounds.
//!
//! A line that is too long is replaced by an error for the request that it answers, so that only this request fails. A child that sends lines
//! faster than any honest server is given up.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use werkruf_contract::Deadline;

/// The code of the error that stands for a line that is too long.
pub(super) const TOO_LARGE: i32 = -32_098;
/// More lines in a second are a flood.
const LINES_PER_SECOND: u32 = 2_000;
/// A longer line is no answer at all.
const LONGEST_LINE: usize = 256 * 1024 * 1024;
/// Where the id of a long line is looked for: at its beginning and at its end.
const ENDS: usize = 256;

/// Copies until the child closes its output or sends a flood.
pub(super) async fn copy(from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, max_bytes: usize) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Line::default();
    let (mut lines, mut second) = (0_u32, Deadline::after(Duration::from_secs(1)));
    loop {
        let available = from.fill_buf().await?;
        if available.is_empty() {
            return Ok(());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |at| at + 1);
        line.add(&available[..taken], max_bytes);
        from.consume(taken);
        if line.length > LONGEST_LINE {
            return Err(io::Error::other("a line without an end"));
        }
        if end.is_none() {
            continue;
        }
        if let Some(bytes) = line.finish() {
            to.write_all(&bytes).await?;
        }
        lines += 1;
        if second.passed() {
            (lines, second) = (0, Deadline::after(Duration::from_secs(1)));
        } else if lines > LINES_PER_SECOND {
            return Err(io::Error::other("too many lines"));
        }
    }
}

/// A line that is being read.
#[derive(Default)]
struct Line {
    /// The whole line, or its beginning if it is too long.
    bytes: Vec<u8>,
    length: usize,
    too_long: bool,
    /// The last bytes of a line that is too long.
    tail: Vec<u8>,
}

impl Line {
    fn add(&mut self, part: &[u8], max_bytes: usize) {
        self.length += part.len();
        if !self.too_long && self.bytes.len() + part.len() <= max_bytes {
            self.bytes.extend_from_slice(part);
            return;
        }
        if !self.too_long {
            self.too_long = true;
            self.bytes.extend_from_slice(&part[..part.len().min(ENDS)]);
            self.bytes.truncate(ENDS);
            self.bytes.shrink_to_fit();
        }
        self.tail.extend_from_slice(&part[part.len().saturating_sub(ENDS)..]);
        let surplus = self.tail.len().saturating_sub(ENDS);
        self.tail.drain(..surplus);
    }

    /// The line, or what stands for it.
    fn finish(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(self);
        if !line.too_long {
            return Some(line.bytes);
        }
        let id = last_id(&line.tail).or_else(|| first_id(&line.bytes))?;
        let error = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{TOO_LARGE},\"message\":\"too large\"}}}}\n");
        Some(error.into_bytes())
    }
}

/// The id before the result.
fn first_id(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let before_result = text.split("\"result\"").next()?;
    before_result.split_once("\"id\"").and_then(|(_, rest)| id(rest))
}

/// The id after the result, right before the end of the line.
fn last_id(tail: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(tail);
    let (_, rest) = text.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?;
    let found = id(rest)?;
    rest.trim_start_matches([':', ' ']).trim_end().eq(&found).then_some(found)
}

/// A number, or a short plain text.
fn id(rest: &str) -> Option<String> {
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    if !digits.is_empty() {
        return Some(digits);
    }
    let (text, _) = rest.strip_prefix('"')?.split_once('"')?;
    (text.len() <= 64 && !text.contains('\\')).then(|| format!("\"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::{LINES_PER_SECOND, copy};

    async fn copied(input: &str, max_bytes: usize) -> (String, bool) {
        let mut out = Vec::new();
        let done = copy(input.as_bytes(), &mut out, max_bytes).await;
        (String::from_utf8(out).unwrap(), done.is_ok())
    }

    #[tokio::test]
    async fn a_long_line_fails_only_its_own_request() {
        let error = |id: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32098,\"message\":\"too large\"}}}}\n");
        let long = "x".repeat(2000);
        let id_first = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"a\":\"{long}\"}}}}\n");
        let id_last = format!("{{\"result\":{{\"a\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":\"r-8\"}}\n");
        let none = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":\"{long}\"}}\n");
        let short = "{\"id\":9}\n";
        let (out, ended) = copied(&format!("{id_first}{short}{id_last}{none}{short}"), 100).await;
        assert_eq!((out, ended), (format!("{}{short}{}{short}", error("7"), error("\"r-8\"")), true));
    }

    #[tokio::test]
    async fn a_flood_of_lines_ends_the_copy() {
        let (_, ended) = copied(&"{}\n".repeat(LINES_PER_SECOND as usize + 2), 100).await;
        assert!(!ended);
    }
}
