//! The metrics of this process: what the runtime counts, HTTP requests, the process itself, and numbers of the database.
//!
//! Invariants: a scrape waits for nothing but a short read of the database at most every few seconds, and it holds no lock that a request
//! needs for longer than it takes to copy numbers. No label has a value that a client chooses.

mod database;
mod gauges;
mod http;
mod process;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use ::http::header::ACCEPT;
use ::http::{HeaderMap, HeaderValue};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use werkruf_runtime::Metrics;

use self::http::HttpMetrics;
pub(crate) use self::http::{OpenStream, Route, method_name};
use crate::app::App;
use crate::log_writer::LogWriter;
use crate::version;
use database::DatabaseNumbers;
use gauges::Gauges;
use process::Process;

/// A format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScrapeFormat {
    OpenMetrics,
    /// The older format of Prometheus, in which the description of a counter has the counter's whole name.
    Text,
}

impl ScrapeFormat {
    /// OpenMetrics for a scraper that says that it reads it.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let reads = |value: &HeaderValue| value.as_bytes().windows(28).any(|part| part == b"application/openmetrics-text");
        if headers.get_all(ACCEPT).iter().any(reads) { Self::OpenMetrics } else { Self::Text }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Everything that a scrape shows.
pub(crate) struct ServerMetrics {
    registry: Registry,
    runtime: Arc<Metrics>,
    pub(crate) http: HttpMetrics,
    gauges: Gauges,
    database: DatabaseNumbers,
    log: OnceLock<LogWriter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: &'static str,
}

impl ServerMetrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let build = Info::new(Build { version: version::VERSION, commit: version::commit() });
        registry.register("werkruf_build", "Version and commit of this binary", build);
        registry.register_collector(Box::new(Process::default()));
        let (runtime, http) = (Arc::new(Metrics::new(&mut registry)), HttpMetrics::new(&mut registry));
        let (gauges, database) = (Gauges::new(&mut registry), DatabaseNumbers::new(&mut registry));
        Self { registry, runtime, http, gauges, database, log: OnceLock::new() }
    }

    /// What the runtime counts.
    pub(crate) const fn runtime(&self) -> &Arc<Metrics> {
        &self.runtime
    }

    /// From now on a scrape shows the lines that this log dropped.
    pub(crate) fn follow_log(&self, log: Option<&LogWriter>) {
        if let Some(log) = log {
            let _ = self.log.set(log.clone());
        }
    }

    /// All metrics.
    pub(crate) async fn scrape(&self, app: &Arc<App>, format: ScrapeFormat) -> String {
        self.database.refresh(app).await;
        self.gauges.set(app, self.log.get().map_or(0, LogWriter::dropped));
        let mut text = String::with_capacity(32 * 1024);
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        match format {
            ScrapeFormat::OpenMetrics => text,
            ScrapeFormat::Text => older_format(&text),
        }
    }
}

/// The same numbers in the older text format: the descriptions of counters and of the build name what their lines name.
fn older_format(text: &str) -> String {
    let mut older = String::with_capacity(text.len() + 1024);
    let mut help = "";
    for line in text.lines() {
        if line.starts_with("# HELP ") {
            help = line;
            continue;
        }
        let described = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '));
        match described {
            Some((name, kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                let about = help.strip_prefix("# HELP ").and_then(|rest| rest.strip_prefix(name)).unwrap_or_default();
                let _ = writeln!(older, "# HELP {name}{suffix}{about}\n# TYPE {name}{suffix} {kind}");
            }
            None if line == "# EOF" => {}
            None => {
                older.push_str(line);
                older.push('\n');
            }
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_whole() {
        let text = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{x=\"y\"} 1\n# HELP g Now.\n# TYPE g gauge\ng 2\n# HELP v Version.\n# TYPE v info\nv_info{c=\"d\"} 1\n# EOF\n";
        let older = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{x=\"y\"} 1\n# HELP g Now.\n# TYPE g gauge\ng 2\n# HELP v_info Version.\n# TYPE v_info gauge\nv_info{c=\"d\"} 1\n";
        assert_eq!(older_format(text), older);
    }
}
