//! Logging to stderr: text on a terminal, JSON otherwise. Secrets are kept in types that do not print their contents.

mod otlp;
mod otlp_message;

use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

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
    let filter = filter_of(read_filter(&log.filter).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO)));
    // The filter is next to the registry, so that its highest level is the highest of the process: messages above it cost a comparison.
    let filtered = registry().with(filter);
    let lines = fmt::layer().with_writer(writer.clone()).log_internal_errors(false);
    let started = match format {
        LineFormat::Json => filtered.with(lines.json().flatten_event(true)).try_init(),
        LineFormat::Text => filtered.with(lines.with_ansi(false).fmt_fields(text_fields())).try_init(),
        LineFormat::Colored => filtered.with(lines.with_ansi(true).fmt_fields(text_fields())).try_init(),
    };
    if started.is_ok() {
        // The default hook writes to stderr itself, and would wait for whoever does not read it.
        std::panic::set_hook(Box::new(log_panic));
    }
    Logging(Some(writer))
}

/// Reads a filter: a level, or levels by target. A name alone would let everything of that target through, so an empty one is left out.
/// Spans in brackets would be read as targets that nothing logs to.
pub(crate) fn read_filter(text: &str) -> Result<Targets, String> {
    if text.contains(['[', ']', '{', '}']) {
        return Err("it filters by spans, which is not supported".to_owned());
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        Ok(Targets::new().with_default(LevelFilter::ERROR))
    } else {
        parts.join(",").parse().map_err(|error: ParseError| error.to_string())
    }
}

/// The library for the Model Context Protocol logs whole messages: arguments and results do not belong into a log, whatever its level.
fn filter_of(configured: Targets) -> Targets {
    configured.with_target("rmcp", LevelFilter::ERROR)
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(tracing::field::display);
    tracing::error!(place, panic = panic.payload_as_str().unwrap_or("no message"), "a task panicked");
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::{filter_of, read_filter};

    #[test]
    fn filters_have_levels_by_target_and_no_empty_target() {
        let passes = |text: &str, target: &str, level: Level| filter_of(read_filter(text).unwrap()).would_enable(target, &level);
        assert!(passes("info,werkruf::access=off", "werkruf::turn", Level::INFO));
        assert!(!passes("info,werkruf::access=off", "werkruf::access", Level::ERROR));
        assert!(passes(" werkruf=debug , info,", "werkruf::turn", Level::DEBUG));
        assert!(!passes("werkruf=debug,info,", "hyper", Level::DEBUG));
        assert!(passes("", "hyper", Level::ERROR) && !passes("", "hyper", Level::WARN));
        assert!(!passes("debug", "rmcp::service", Level::INFO));
        for refused in ["werkruf=loud", "[turn]=debug", "werkruf[{a,b}]=debug", "info,[{x=1}]=debug"] {
            assert!(read_filter(refused).is_err(), "{refused}");
        }
    }
}
