//! Renders a turn for the user. It does no I/O: events go in, the text to write comes out.
//!
//! Text is written as it arrives. If the final text differs, a terminal replaces the shown text; a pipe gets the complete
//! text once more at the end.

use serde_json::Value;
use unicode_width::UnicodeWidthStr;
use werkruf_contract::ErrorCode;

use super::frames::ServerEvent;
use super::text;
use crate::cli::print::{self, short_id};

pub(super) const LOST: &str = "  … the connection broke; waiting for the server";

/// How the turn is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputMode {
    /// One event per line.
    Json,
    Pipe,
    Terminal {
        color: bool,
    },
}

pub(super) struct Screen {
    mode: OutputMode,
    /// The part of the current step's text that is written; it begins at the start of a line.
    shown: String,
    step: u64,
    /// Whether the next tokens do not continue the shown text.
    stale: bool,
    /// The calls whose lines are the last ones on the terminal.
    calls: Vec<String>,
    /// Whether the notice of a broken connection is the last line.
    lost: bool,
    /// Columns and rows of the terminal.
    size: fn() -> Option<(usize, usize)>,
}

impl Screen {
    pub(super) fn new(mode: OutputMode) -> Self {
        Self { mode, shown: String::new(), step: 0, stale: false, calls: Vec::new(), lost: false, size: terminal_size }
    }

    pub(super) const fn mode(&self) -> OutputMode {
        self.mode
    }

    /// The text that an event adds; `code` is the error code of a failed call.
    pub(super) fn render(&mut self, event: &ServerEvent, code: Option<&str>) -> String {
        if self.mode == OutputMode::Json {
            return format!("{}\n", event.line());
        }
        let data = &event.data;
        match event.event.as_str() {
            "assistant_token" => self.token(data),
            "assistant_snapshot" => self.snapshot(data),
            "assistant_reset" => self.reset(data),
            "tool_started" => self.started(data),
            "tool_finished" => self.finished(data, code),
            "approval_required" => {
                let (tool, approval) = (self.clean(text(data, "tool")), short_id(text(data, "approval_id")));
                let line = format!("  ‖ {tool} waits for approval: werkruf approvals approve {approval}\n");
                let out = self.finish_text();
                self.calls.push(text(data, "approval_id").to_owned());
                out + &line
            }
            "final" => self.ended(data),
            "error" => {
                let mut out = self.finish_text();
                self.calls.clear();
                if ErrorCode::Canceled.is(text(data, "code")) {
                    out.push_str(&self.paint("2", "  stopped"));
                    out.push('\n');
                }
                out
            }
            _ => String::new(),
        }
    }

    /// The connection broke.
    pub(super) fn lost(&mut self) -> String {
        self.lost = true;
        format!("{}{}", self.line_end(), self.paint("2", LOST))
    }

    /// The connection is back: removes the notice. The next tokens may begin anywhere in the text.
    pub(super) fn reconnected(&mut self) -> String {
        self.stale = !self.shown.is_empty();
        if !std::mem::take(&mut self.lost) {
            return String::new();
        }
        let written = format!("{}{}{LOST}", self.clean(&self.shown), self.line_end());
        match self.erase(&written) {
            Some(erased) => erased + &self.clean(&self.shown),
            None => {
                self.shown.clear();
                self.stale = false;
                "\n".to_owned()
            }
        }
    }

    fn token(&mut self, data: &Value) -> String {
        let step = data["step"].as_u64().unwrap_or(self.step);
        let mut out = String::new();
        if step != self.step {
            out = self.finish_text();
            self.step = step;
        }
        if !self.stale {
            out.push_str(&self.write(text(data, "content")));
        }
        out
    }

    fn snapshot(&mut self, data: &Value) -> String {
        let content = text(data, "content");
        let mut out = String::new();
        let step = data["step"].as_u64().unwrap_or(self.step);
        if step != self.step {
            out = self.finish_text();
            self.step = step;
        }
        if let Some(rest) = content.strip_prefix(self.shown.as_str()) {
            self.stale = false;
            out.push_str(&self.write(rest));
        } else if self.mode == OutputMode::Pipe {
            self.stale = true;
        } else {
            out.push_str(&self.replace(content));
        }
        out
    }

    fn reset(&mut self, data: &Value) -> String {
        // The text of an earlier step stays.
        if data["step"].as_u64().is_some_and(|step| step != self.step) {
            return String::new();
        }
        if self.mode == OutputMode::Pipe {
            self.stale |= !self.shown.is_empty();
            return String::new();
        }
        self.replace("")
    }

    fn started(&mut self, data: &Value) -> String {
        let out = self.finish_text();
        if self.mode == OutputMode::Pipe {
            return out;
        }
        self.calls.push(text(data, "job_id").to_owned());
        let line = format!("  ⚙ {} …", self.clean(text(data, "tool")));
        format!("{out}{}\n", self.paint("2", &line))
    }

    fn finished(&mut self, data: &Value, code: Option<&str>) -> String {
        let (tool, status, took) = (self.clean(text(data, "tool")), text(data, "status"), data["took_ms"].as_u64().unwrap_or(0));
        let cached = if data["cache_hit"] == true { " (cached)" } else { "" };
        let job = text(data, "job_id");
        let id = self.paint("2", &format!("· {}", short_id(job)));
        let line = if status == "succeeded" {
            format!("  {} {tool} {took} ms{cached} {id}", self.paint("32", "✓"))
        } else {
            format!("  {} {tool} {} {took} ms{cached} {id}", self.paint("31", "✗"), code.unwrap_or(status))
        };
        let up = self.calls.iter().position(|call| call == job).map(|at| self.calls.len() - at);
        let rows = (self.size)().map_or(0, |(_, rows)| rows);
        match up {
            Some(up) if up < rows => format!("\x1b[{up}A\r\x1b[2K{line}\x1b[{up}B\r"),
            Some(_) | None => {
                let out = self.finish_text();
                // The new line is one more of the last lines; the positions of the others are counted from the end.
                self.calls.push(job.to_owned());
                format!("{out}{line}\n")
            }
        }
    }

    fn ended(&mut self, data: &Value) -> String {
        let content = text(&data["message"], "content");
        let mut out = String::new();
        if self.shown != content {
            if self.mode == OutputMode::Pipe {
                out = self.finish_text();
                out.push_str(&self.write(content));
            } else {
                out = self.replace(content);
            }
        }
        out.push_str(&self.finish_text());
        let line =
            format!("  {} tokens · {}", data["usage"]["total_tokens"].as_i64().unwrap_or(0), short_id(text(data, "conversation_id")));
        out.push_str(&self.paint("2", &line));
        out.push('\n');
        self.step = 0;
        self.calls.clear();
        out
    }

    fn write(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        self.calls.clear();
        self.shown.push_str(text);
        self.clean(text)
    }

    /// Replaces the shown text.
    fn replace(&mut self, text: &str) -> String {
        let shown = self.clean(&self.shown);
        let erased = if shown.is_empty() { String::new() } else { self.erase(&shown).unwrap_or_else(|| self.line_end().to_owned()) };
        self.shown.clear();
        self.stale = false;
        erased + &self.write(text)
    }

    /// Keeps the shown text; the next output begins on a new line.
    fn finish_text(&mut self) -> String {
        let end = self.line_end().to_owned();
        if !self.shown.is_empty() {
            self.calls.clear();
        }
        self.shown.clear();
        self.stale = false;
        end
    }

    fn line_end(&self) -> &'static str {
        if self.shown.is_empty() || self.shown.ends_with('\n') { "" } else { "\n" }
    }

    /// Erases the text that was written last from the terminal; `None` if part of it has scrolled away.
    fn erase(&self, text: &str) -> Option<String> {
        let (columns, rows) = (self.size)()?;
        let used_rows: usize = text.split('\n').map(|line| line.width().div_ceil(columns.max(1)).max(1)).sum();
        if used_rows > rows {
            return None;
        }
        Some(if used_rows > 1 { format!("\x1b[{}A\r\x1b[J", used_rows - 1) } else { "\r\x1b[J".to_owned() })
    }

    /// Removes control characters, which could control the terminal. A pipe gets the text unchanged.
    fn clean(&self, text: &str) -> String {
        if self.mode == OutputMode::Pipe { text.to_owned() } else { print::harmless(text) }
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.mode == (OutputMode::Terminal { color: true }) { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
