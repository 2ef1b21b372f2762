//! Logging to stderr: text on a terminal, JSON otherwise. Secrets are kept in types that do not print their contents.

mod otlp;
mod otlp_message;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

pub use otlp::Traces;

use crate::config::{LogConfig, LogFormat};

/// Starts logging. A second call in one process changes nothing.
pub fn start(log: &LogConfig) {
    let format = log.format.unwrap_or_else(|| if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json });
    // The filter was checked when the configuration was loaded.
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // A log that cannot be written, as on a full disk, must not stop the work. Reporting that error on stderr would panic.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
