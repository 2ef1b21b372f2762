//! What the person sees of a turn. Pure: events go in, the text to write comes out.
//!
//! Text is written as it comes. When it turns out to be something else, a terminal has it replaced; in a pipe the whole
//! text follows once at the end.

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::frames::Heard;
use super::{short, word};
use crate::cli::print;

pub(super) const LOST: &str = "  … the connection broke; waiting for the server";

/// Where it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// One event per line.
    Json,
    Pipe,
    Terminal {
        color: bool,
    },
}

pub(super) struct Screen {
    look: Look,
    /// The text of the current step as far as it is written; it begins at the start of a line.
    shown: String,
    step: u64,
    /// What comes next does not continue what is shown.
    stale: bool,
    /// Calls whose lines are the last on the terminal.
    calls: Vec<String>,
    /// The notice of a broken connection is the last line.
    lost: bool,
    /// Columns and rows of the terminal.
    size: fn() -> Option<(usize, usize)>,
}

impl Screen {
    pub(super) fn new(look: Look) -> Self {
        Self { look, shown: String::new(), step: 0, stale: false, calls: Vec::new(), lost: false, size: terminal_size }
    }

    pub(super) const fn look(&self) -> Look {
        self.look
    }

    /// What an event changes; `code` says why a call failed.
    pub(super) fn hear(&mut self, heard: &Heard, code: Option<&str>) -> String {
        if self.look == Look::Json {
            return format!("{}\n", heard.line());
        }
        let data = &heard.data;
        match heard.event.as_str() {
            "assistant_token" => self.token(data),
            "assistant_snapshot" => self.snapshot(data),
            "assistant_reset" => self.reset(),
            "tool_started" => self.started(data),
            "tool_finished" => self.finished(data, code),
            "approval_required" => {
                let (tool, approval) = (self.clean(word(data, "tool")), word(data, "approval_id"));
                let line = format!("  ‖ {tool} waits for approval: werkruf approvals approve {approval}\n");
                let out = self.settle();
                self.calls.push(word(data, "approval_id").to_owned());
                out + &line
            }
            "final" => self.ended(data),
            "error" => {
                let mut out = self.settle();
                self.calls.clear();
                if word(data, "code") == "canceled" {
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

    /// The server is heard again: the notice goes. What it says now may begin anywhere.
    pub(super) fn back(&mut self) -> String {
        self.stale = !self.shown.is_empty();
        if !std::mem::take(&mut self.lost) {
            return String::new();
        }
        let text = format!("{}{}{LOST}", self.clean(&self.shown), self.line_end());
        match self.erase(&text) {
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
            out = self.settle();
            self.step = step;
        }
        if !self.stale {
            out.push_str(&self.write(word(data, "content")));
        }
        out
    }

    fn snapshot(&mut self, data: &Value) -> String {
        let content = word(data, "content");
        let mut out = String::new();
        let step = data["step"].as_u64().unwrap_or(self.step);
        if step != self.step {
            out = self.settle();
            self.step = step;
        }
        if let Some(rest) = content.strip_prefix(self.shown.as_str()) {
            self.stale = false;
            out.push_str(&self.write(rest));
        } else if self.look == Look::Pipe {
            self.stale = true;
        } else {
            out.push_str(&self.replace(content));
        }
        out
    }

    fn reset(&mut self) -> String {
        if self.look == Look::Pipe {
            self.stale |= !self.shown.is_empty();
            return String::new();
        }
        self.replace("")
    }

    fn started(&mut self, data: &Value) -> String {
        let out = self.settle();
        if self.look == Look::Pipe {
            return out;
        }
        self.calls.push(word(data, "job_id").to_owned());
        let line = format!("  ⚙ {} …", self.clean(word(data, "tool")));
        format!("{out}{}\n", self.paint("2", &line))
    }

    fn finished(&mut self, data: &Value, code: Option<&str>) -> String {
        let (tool, status, took) = (self.clean(word(data, "tool")), word(data, "status"), data["took_ms"].as_u64().unwrap_or(0));
        let cached = if data["cache_hit"] == true { " (known already)" } else { "" };
        let line = if status == "succeeded" {
            format!("  {} {tool} {took} ms{cached}", self.paint("32", "✓"))
        } else {
            format!("  {} {tool} {} {took} ms{cached}", self.paint("31", "✗"), code.unwrap_or(status))
        };
        let job = word(data, "job_id");
        let up = self.calls.iter().position(|call| call == job).map(|at| self.calls.len() - at);
        let rows = (self.size)().map_or(0, |(_, rows)| rows);
        match up {
            Some(up) if up < rows => format!("\x1b[{up}A\r\x1b[2K{line}\x1b[{up}B\r"),
            Some(_) | None => {
                let out = self.settle();
                // It is one more of the last lines; the others' places are counted from the end.
                self.calls.push(job.to_owned());
                format!("{out}{line}\n")
            }
        }
    }

    fn ended(&mut self, data: &Value) -> String {
        let content = word(&data["message"], "content");
        let mut out = String::new();
        if self.shown != content {
            if self.look == Look::Pipe {
                out = self.settle();
                out.push_str(&self.write(content));
            } else {
                out = self.replace(content);
            }
        }
        out.push_str(&self.settle());
        let line = format!("  {} tokens · {}", data["usage"]["total_tokens"].as_i64().unwrap_or(0), short(word(data, "conversation_id")));
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

    /// Puts this in the place of the text that is shown.
    fn replace(&mut self, text: &str) -> String {
        let shown = self.clean(&self.shown);
        let gone = if shown.is_empty() { String::new() } else { self.erase(&shown).unwrap_or_else(|| self.line_end().to_owned()) };
        self.shown.clear();
        self.stale = false;
        gone + &self.write(text)
    }

    /// What is shown stays; the next thing begins on a line of its own.
    fn settle(&mut self) -> String {
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

    /// Takes text off the terminal that was written last; none when part of it has scrolled away.
    fn erase(&self, text: &str) -> Option<String> {
        let (columns, rows) = (self.size)()?;
        let taken: usize = text.split('\n').map(|line| line.width().div_ceil(columns.max(1)).max(1)).sum();
        if taken > rows {
            return None;
        }
        Some(if taken > 1 { format!("\x1b[{}A\r\x1b[J", taken - 1) } else { "\r\x1b[J".to_owned() })
    }

    /// Text that cannot steer the terminal. A pipe gets it as it is.
    fn clean(&self, text: &str) -> String {
        if self.look == Look::Pipe { text.to_owned() } else { print::harmless(text) }
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.look == (Look::Terminal { color: true }) { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
