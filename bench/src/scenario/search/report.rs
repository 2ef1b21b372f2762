//! The duration of searches, how often the source document was found, and whether the bars hold.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::load::median;

/// The lowest number of ingested chunks per second.
const INGEST_BAR: f64 = 5_000.0;
/// All indexes together take at most 1 GiB, and the server itself a few dozen MiB.
const MEMORY_BAR: f64 = 1_100.0;

/// How much slower than the quiet server p95 may be while documents or vectors arrive.
const ARRIVAL_BAR: f64 = 2.0;
/// The longest duration of the first question after a restart, in milliseconds.
const FIRST_BAR: f64 = 200.0;

/// The row that the others are compared with.
pub(super) const COMPARED: &str = "werkruf, words and vectors";

/// Measures a duration.
pub(super) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    pub(super) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(super) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// The measurements of one round of questions to one engine.
#[derive(Debug, Clone, Default)]
pub struct SearchRound {
    pub name: &'static str,
    ms: Vec<f64>,
    found: usize,
    /// CPU of the server per question; unknown for an engine in this process.
    pub cpu_ms: Option<f64>,
}

/// A reference engine.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) rounds: Vec<SearchRound>,
    pub(super) ingest_per_second: f64,
}

impl SearchRound {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    pub(super) fn note(&mut self, ms: f64, found: bool) {
        self.ms.push(ms);
        self.found += usize::from(found);
    }

    /// The duration that this share of the questions did not exceed.
    fn within(&self, share: f64) -> f64 {
        let mut ms = self.ms.clone();
        ms.sort_by(f64::total_cmp);
        let at = (ms.len() as f64 * share) as usize;
        ms.get(at.min(ms.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    fn found_share(&self) -> f64 {
        self.found as f64 / self.ms.len().max(1) as f64
    }
}

/// The results of one engine: medians over the rounds.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: &'static str,
    p50: f64,
    p95: f64,
    cpu_ms: Option<f64>,
    found: f64,
    bar: Option<f64>,
}

/// The report for one size of the collection.
#[derive(Debug, Clone, Default)]
pub struct SearchReport {
    pub database: &'static str,
    pub chunks: usize,
    pub questions: usize,
    pub bar: f64,
    pub ingest_per_second: f64,
    pub reference_ingest_per_second: f64,
    /// The duration of the first question after a restart, in milliseconds.
    pub first_ms: f64,
    /// The time from the restart to the built index.
    pub index_seconds: f64,
    /// Chunks per second that were ingested while questions were asked.
    pub arrived_per_second: f64,
    pub peak_mib: f64,
    rows: Vec<Row>,
}

impl SearchReport {
    /// An empty report.
    pub(super) fn new(database: &'static str, chunks: usize, questions: usize, bar: f64) -> Self {
        Self { database, chunks, questions, bar, ..Self::default() }
    }

    pub(super) fn add_rounds(&mut self, rounds: &[SearchRound]) {
        let Some(first) = rounds.first() else { return };
        let middle = |pick: &dyn Fn(&SearchRound) -> f64| median(rounds.iter().map(pick));
        let cpu_ms = first.cpu_ms.map(|_| middle(&|round| round.cpu_ms.unwrap_or(f64::NAN)));
        let (p50, p95) = (middle(&|round| round.within(0.5)), middle(&|round| round.within(0.95)));
        let bar = cpu_ms.map(|_| self.bar);
        self.rows.push(Row { name: first.name, p50, p95, cpu_ms, found: first.found_share(), bar });
    }

    /// A round while documents or vectors arrived, and one on the quiet server after it, with as many chunks.
    pub(super) fn add_arrival(&mut self, during: SearchRound, after: SearchRound) {
        let bar = ARRIVAL_BAR * after.within(0.95);
        for (round, bar) in [(during, Some(bar)), (after, None)] {
            self.add_rounds(&[round]);
            if let Some(row) = self.rows.last_mut() {
                row.bar = bar;
            }
        }
    }

    pub(super) const fn note_peak(&mut self, mib: f64) {
        self.peak_mib = self.peak_mib.max(mib);
    }

    pub(super) fn add_reference(&mut self, reference: Reference) {
        self.reference_ingest_per_second = reference.ingest_per_second;
        for round in reference.rounds {
            self.add_rounds(&[round]);
        }
    }

    /// As a text table.
    pub fn table(&self) -> String {
        let ours = self.rows.iter().find(|row| row.name == COMPARED).or(self.rows.first()).map_or(f64::NAN, |row| row.p95);
        let mut out = format!(
            "search in {} chunks on {}, {} questions of 4 to 20 words, one at a time\n  {:<31}{:>9}{:>9}{:>9}{:>8}{:>8}   bar          holds\n",
            self.chunks, self.database, self.questions, "", "p50 ms", "p95 ms", "CPU ms", "found", "ratio"
        );
        for row in &self.rows {
            let cpu = row.cpu_ms.map(|cpu| format!("{cpu:.2}")).unwrap_or_default();
            let bar = row.bar.map(|bar| format!("<= {bar:.1} ms")).unwrap_or_default();
            let holds = row.bar.map(|bar| verdict(row.p95 <= bar)).unwrap_or_default();
            let (ratio, found) = (row.p95 / ours, row.found * 100.0);
            let line = format!("  {:<31}{:>9.2}{:>9.2}{cpu:>9}{found:>7.0}%{ratio:>8.2}   {bar:<13}{holds}", row.name, row.p50, row.p95);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let _ = writeln!(
            out,
            "  ingest {:.0} chunks/s, bar >= {INGEST_BAR:.0}: {}; FTS5 {:.0}. While questions were asked {:.0} chunks/s.\n  \
             First question after a restart {:.0} ms, bar <= {FIRST_BAR:.0}: {}. Index built after {:.1} s. Server's peak {:.0} MiB, \
             bar <= {MEMORY_BAR:.0}: {}",
            self.ingest_per_second,
            verdict(self.ingest_per_second >= INGEST_BAR),
            self.reference_ingest_per_second,
            self.arrived_per_second,
            self.first_ms,
            verdict(self.first_ms <= FIRST_BAR),
            self.index_seconds,
            self.peak_mib,
            verdict(self.peak_mib <= MEMORY_BAR),
        );
        out
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({"engine": row.name, "p50_ms": row.p50, "p95_ms": row.p95, "cpu_ms": row.cpu_ms, "found": row.found, "bar_ms": row.bar,
                "holds": row.bar.map(|bar| row.p95 <= bar)})
        };
        json!({"database": self.database, "chunks": self.chunks, "questions": self.questions, "engines": self.rows.iter().map(row).collect::<Vec<_>>(),
            "ingest_per_second": self.ingest_per_second, "reference_ingest_per_second": self.reference_ingest_per_second,
            "arrived_per_second": self.arrived_per_second, "first_ms": self.first_ms, "index_seconds": self.index_seconds, "peak_mib": self.peak_mib})
    }
}

const fn verdict(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_holds() {
        let mut report = SearchReport { chunks: 10, questions: 20, bar: 5.0, ingest_per_second: 6_000.0, ..SearchReport::default() };
        let round = |slow: f64| {
            let mut round = SearchRound { cpu_ms: Some(1.0), ..SearchRound::new("ours") };
            (0..20).for_each(|at| round.note(if at < 18 { 1.0 } else { slow }, at % 2 == 0));
            round
        };
        report.add_rounds(&[round(6.0), round(4.0), round(4.5)]);
        let row = &report.rows[0];
        assert_eq!((row.p50, row.p95, row.found), (1.0, 4.5, 0.5));
        assert!(report.table().contains("<= 5.0 ms") && report.table().contains("yes"), "{}", report.table());
        report.bar = 4.0;
        report.add_rounds(&[round(6.0)]);
        assert_eq!(report.json()["engines"][1]["holds"], false);
    }
}
