//! Logging to stderr: text on a terminal, JSON otherwise. Secrets are kept in types that do not print their contents.

mod otlp;
mod otlp_message;

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;

pub use otlp::Traces;

use crate::config::{LogConfig, LogFormat};
use crate::log_writer::{LineFormat, LogWriter, text_fields};

/// Held while the process logs. Dropping it writes the last lines.
#[must_use]
pub struct Logging(Option<LogWriter>);

impl Logging {
    /// Where the lines go; `None` without a log.
    pub(crate) const fn writer(&self) -> Option<&LogWriter> {
        self.0.as_ref()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some(writer) = &self.0 {
            writer.flush();
        }
    }
}

/// Starts logging. A second call in one process changes nothing.
pub fn start(log: &LogConfig) -> Logging {
    let terminal = std::io::stderr().is_terminal();
    let format = match log.format {
        Some(LogFormat::Json) => LineFormat::Json,
        Some(LogFormat::Text) if !terminal => LineFormat::Text,
        None if !terminal => LineFormat::Json,
        Some(LogFormat::Text) | None => LineFormat::Colored,
    };
    // Without a thread there is no log, and the server runs all the same.
    let Ok(writer) = LogWriter::start(std::io::stderr(), format) else { return Logging(None) };
    // The filter was checked when the configuration was loaded.
    let filter = EnvFilter::try_new(filter_of(&log.filter)).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer.clone()).log_internal_errors(false);
    let started = match format {
        LineFormat::Json => lines.json().flatten_event(true).try_init(),
        LineFormat::Text => lines.with_ansi(false).fmt_fields(text_fields()).try_init(),
        LineFormat::Colored => lines.with_ansi(true).fmt_fields(text_fields()).try_init(),
    };
    if started.is_ok() {
        // The default hook writes to stderr itself, and would wait for whoever does not read it.
        std::panic::set_hook(Box::new(log_panic));
    }
    Logging(Some(writer))
}

/// The library for the Model Context Protocol logs whole messages: arguments and results do not belong into a log, whatever its level.
fn filter_of(configured: &str) -> String {
    format!("{configured},rmcp=error")
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(tracing::field::display);
    tracing::error!(place, panic = panic.payload_as_str().unwrap_or("no message"), "a task panicked");
}
