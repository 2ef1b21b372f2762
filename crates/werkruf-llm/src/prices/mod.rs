//! What models cost. A table in the program, an operator's table over it, and exact arithmetic in between.
//!
//! Invariants: a price is never a binary fraction; a request's cost is rounded once, half up, to nano-dollars; a model
//! nobody priced costs `None`, never 0.

mod decimal;
mod file;

use std::collections::BTreeMap;

use serde::Serialize;

pub use decimal::Price;
pub use file::PriceFault;

use crate::TokenUsage;
use decimal::nano_dollars;

const BUILT_IN: &str = include_str!("built_in.json");
/// Above so many input tokens some models charge more, for the whole request.
const LONG_CONTEXT: i64 = 272_000;

/// Dollars for a million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub input: Price,
    /// Where there is none, cached tokens cost what others cost.
    pub cached_input: Option<Price>,
    /// Reasoning included.
    pub output: Price,
}

impl Rates {
    fn cost(&self, tokens: TokenUsage) -> Option<i64> {
        let input = tokens.input_tokens.max(0);
        let cached = tokens.cached_tokens.clamp(0, input);
        let sum = self.input.times(input - cached)
            + self.cached_input.unwrap_or(self.input).times(cached)
            + self.output.times(tokens.output_tokens);
        nano_dollars(sum)
    }
}

/// Where a price was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceSource {
    BuiltIn,
    File,
}

/// What one model costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// `chat` or `embedding`.
    pub mode: String,
    pub rates: Rates,
    pub above_272k: Option<Rates>,
    pub source: PriceSource,
}

/// What is known of prices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable(BTreeMap<String, ModelPrice>);

impl Default for PriceTable {
    /// The table in the program.
    fn default() -> Self {
        // A test reads it; a table that could not be read would be no prices, never wrong ones.
        Self(file::parse(BUILT_IN, PriceSource::BuiltIn).unwrap_or_default())
    }
}

impl PriceTable {
    /// The operator's table over this one: the same model replaces, others stay. Nothing changes when it has a fault.
    pub fn overlay(&mut self, text: &str) -> Result<(), PriceFault> {
        self.0.extend(file::parse(text, PriceSource::File)?);
        Ok(())
    }

    /// Every model with its price, by name.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelPrice)> {
        self.0.iter().map(|(name, price)| (name.as_str(), price))
    }

    /// The price of a model, or of the model a dated name (`gpt-5-2025-08-07`) is a snapshot of.
    pub fn find(&self, model: &str) -> Option<&ModelPrice> {
        self.0.get(model).or_else(|| self.0.get(undated(model)?))
    }

    /// What a request cost, in nano-dollars; `None` when nobody knows.
    pub fn cost(&self, model: &str, tokens: TokenUsage) -> Option<i64> {
        let price = self.find(model)?;
        let long = price.above_272k.as_ref().filter(|_| tokens.input_tokens > LONG_CONTEXT);
        long.unwrap_or(&price.rates).cost(tokens)
    }
}

/// The name before `-YYYY-MM-DD`.
fn undated(model: &str) -> Option<&str> {
    const SHAPE: &[u8] = b"-0000-00-00";
    let start = model.len().checked_sub(SHAPE.len())?;
    let (name, date) = model.as_bytes().split_at(start);
    let fits = date.iter().zip(SHAPE).all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape });
    // The split is before an ASCII byte, so it is between characters.
    (fits && !name.is_empty()).then(|| &model[..start])
}

#[cfg(test)]
#[path = "prices_tests.rs"]
mod tests;
