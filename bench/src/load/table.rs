//! Rounds of floor and Werkruf side by side, and their medians.

use serde_json::{Value, json};

use super::Measured;

/// The middle value; the mean of the two middle ones where there are two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Floor and Werkruf under the same load, round by round.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    pub name: String,
    pub rounds: Vec<(Measured, Measured)>,
}

impl Comparison {
    fn of(&self, pick: impl Fn(&(Measured, Measured)) -> f64) -> f64 {
        median(self.rounds.iter().map(pick))
    }

    /// Werkruf's CPU per turn over the floor's: the median of each round's own ratio, since rounds share their noise.
    pub fn cpu_ratio(&self) -> f64 {
        self.of(|(floor, werkruf)| werkruf.cpu_ms_per_turn / floor.cpu_ms_per_turn)
    }

    /// Werkruf's turns per second over the floor's.
    pub fn rate_ratio(&self) -> f64 {
        self.of(|(floor, werkruf)| werkruf.turns_per_second / floor.turns_per_second)
    }

    /// For eyes.
    pub fn lines(&self) -> String {
        let row = |name: &str, pick: &dyn Fn(&(Measured, Measured)) -> Measured| {
            let of = |field: &dyn Fn(Measured) -> f64| self.of(|round| field(pick(round)));
            format!(
                "  {name:<9}{:>9.3}{:>11.0}{:>10.1}{:>10.1}{:>9.0}\n",
                of(&|m| m.cpu_ms_per_turn),
                of(&|m| m.turns_per_second),
                of(&|m| m.p50_ms),
                of(&|m| m.p99_ms),
                of(&|m| m.resident_mib)
            )
        };
        format!(
            "{} ({} rounds, medians)\n  {:<9}{:>9}{:>11}{:>10}{:>10}{:>9}\n{}{}  ratio    {:>9.2}{:>11.2}\n",
            self.name,
            self.rounds.len(),
            "",
            "CPU ms",
            "turns/s",
            "p50 ms",
            "p99 ms",
            "MiB",
            row("floor", &|round| round.0),
            row("werkruf", &|round| round.1),
            self.cpu_ratio(),
            self.rate_ratio()
        )
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let one = |m: &Measured| {
            json!({"turns": m.turns, "cpu_ms_per_turn": m.cpu_ms_per_turn, "turns_per_second": m.turns_per_second,
                "p50_ms": m.p50_ms, "p99_ms": m.p99_ms, "resident_mib": m.resident_mib})
        };
        let rounds: Vec<Value> = self.rounds.iter().map(|(floor, werkruf)| json!({"floor": one(floor), "werkruf": one(werkruf)})).collect();
        json!({"name": self.name, "cpu_ratio": self.cpu_ratio(), "rate_ratio": self.rate_ratio(), "rounds": rounds})
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }
}
