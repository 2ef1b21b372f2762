//! Rounds of two servers, their medians, and the bars (limits) for them.

use serde_json::{Value, json};

use super::Measured;

/// The middle value, or the mean of the two middle ones.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The limits; a figure with `None` is only reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bars {
    /// The highest ratio of CPU per turn.
    pub cpu: Option<f64>,
    /// The lowest ratio of turns per second.
    pub rate: Option<f64>,
    /// The highest peak memory in MiB.
    pub memory: Option<f64>,
}

/// Two servers under the same load, round by round; the bars apply to the second one.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub name: &'static str,
    pub title: String,
    pub sides: [&'static str; 2],
    pub bars: Bars,
    pub rounds: Vec<[Measured; 2]>,
}

/// One figure of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub figure: &'static str,
    pub values: [f64; 2],
    /// The median of the ratios of the rounds, since both servers of a round share its noise; then the lowest and the highest ratio.
    pub ratio: Option<[f64; 3]>,
    pub bar: Option<String>,
    pub holds: Option<bool>,
}

impl Comparison {
    fn line(&self, figure: &'static str, pick: impl Fn(&Measured) -> f64, ratio: bool) -> Line {
        let values = [0, 1].map(|side| median(self.rounds.iter().map(|round| pick(&round[side]))));
        let ratios = || self.rounds.iter().map(|[below, ours]| pick(ours) / pick(below));
        let ratio = ratio.then(|| [median(ratios()), ratios().fold(f64::INFINITY, f64::min), ratios().fold(f64::NEG_INFINITY, f64::max)]);
        Line { figure, values, ratio, bar: None, holds: None }
    }

    /// Every figure with its bar.
    pub fn lines(&self) -> Vec<Line> {
        let mut cpu = self.line("CPU ms per turn", |m| m.cpu_ms_per_turn, true);
        let mut rate = self.line("turns/s", |m| m.turns_per_second, true);
        let mut memory = self.line("peak MiB", |m| m.peak_mib, false);
        if let (Some(bar), Some([ratio, ..])) = (self.bars.cpu, cpu.ratio) {
            (cpu.bar, cpu.holds) = (Some(format!("<= {bar}x")), Some(ratio <= bar));
        }
        if let (Some(bar), Some([ratio, ..])) = (self.bars.rate, rate.ratio) {
            (rate.bar, rate.holds) = (Some(format!(">= {bar}x")), Some(ratio >= bar));
        }
        if let Some(bar) = self.bars.memory {
            // The maximum of all rounds: a median would hide a peak.
            memory.values = [0, 1].map(|side| self.rounds.iter().map(|round| round[side].peak_mib).fold(0.0, f64::max));
            (memory.bar, memory.holds) = (Some(format!("<= {bar} MiB")), Some(memory.values[1] <= bar));
        }
        let latency = [self.line("p50 ms", |m| m.p50_ms, false), self.line("p99 ms", |m| m.p99_ms, false)];
        [cpu, rate].into_iter().chain(latency).chain([memory]).collect()
    }

    /// As a text table.
    pub fn table(&self) -> String {
        let [below, ours] = self.sides;
        let head = format!("{} ({} rounds, medians)", self.title, self.rounds.len());
        let mut out = format!("{head}\n  {:<17}{below:>12}{ours:>12}   ratio (lowest-highest)   bar          holds\n", "");
        for Line { figure, values, ratio, bar, holds } in self.lines() {
            let places = if values[1] < 100.0 { 2 } else { 0 };
            let ratio = ratio.map(|[middle, low, high]| format!("{middle:.2} ({low:.2}-{high:.2})")).unwrap_or_default();
            let holds = holds.map(|holds| if holds { "yes" } else { "NO" }).unwrap_or_default();
            let row = format!(
                "  {figure:<17}{:>12.places$}{:>12.places$}   {ratio:<25}{:<13}{holds}",
                values[0],
                values[1],
                bar.unwrap_or_default()
            );
            out.push_str(row.trim_end());
            out.push('\n');
        }
        out
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let one = |m: &Measured| {
            json!({"turns": m.turns, "answered": m.answered, "cpu_ms_per_turn": m.cpu_ms_per_turn, "turns_per_second": m.turns_per_second,
                "p50_ms": m.p50_ms, "p99_ms": m.p99_ms, "peak_mib": m.peak_mib})
        };
        let rounds: Vec<Value> = self.rounds.iter().map(|round| json!(round.each_ref().map(one))).collect();
        let lines: Vec<Value> = self
            .lines()
            .into_iter()
            .map(|line| {
                let [ratio, lowest, highest] = line.ratio.map_or([None; 3], |ratio| ratio.map(Some));
                json!({"figure": line.figure, "values": line.values, "ratio": ratio, "lowest": lowest, "highest": highest,
                    "bar": line.bar, "holds": line.holds})
            })
            .collect();
        json!({"name": self.name, "title": self.title, "sides": self.sides, "lines": lines, "rounds": rounds})
    }
}

#[cfg(test)]
mod tests {
    use super::{Bars, Comparison, Measured, median};

    fn measured(cpu: f64, rate: f64, peak: f64) -> Measured {
        let (p50_ms, p99_ms) = (1.0, 2.0);
        Measured { turns: 1, answered: 1, cpu_ms_per_turn: cpu, turns_per_second: rate, p50_ms, p99_ms, peak_mib: peak }
    }

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_bar_applies_to_the_median_of_the_ratios_and_to_the_highest_peak() {
        let bars = Bars { cpu: Some(1.5), rate: Some(0.8), memory: Some(100.0) };
        let rounds = vec![
            [measured(1.0, 100.0, 10.0), measured(1.4, 90.0, 80.0)],
            [measured(2.0, 50.0, 10.0), measured(2.8, 35.0, 101.0)],
            [measured(1.0, 100.0, 10.0), measured(9.0, 70.0, 90.0)],
        ];
        let comparison = Comparison { name: "n", title: "t".to_owned(), sides: ["floor", "werkruf"], bars, rounds };
        let lines = comparison.lines();
        let holds: Vec<Option<bool>> = lines.iter().map(|line| line.holds).collect();
        assert_eq!(holds, [Some(true), Some(false), None, None, Some(false)]);
        assert_eq!(lines[0].ratio, Some([1.4, 1.4, 9.0]));
        assert!(comparison.table().contains("1.40 (1.40-9.00)"));
    }
}
