//! Model prices: a built-in table, an operator's table that overrides it, and exact arithmetic.
//!
//! Invariants: a price is never a float; the cost of a request, its web searches included, is rounded once, half up, to nano-dollars; the cost of a
//! model without a price, or of a search without a fee, is `None`, never 0.

mod decimal;
mod file;

use std::collections::BTreeMap;

use serde::Serialize;

pub use decimal::Price;
pub use file::PriceFileError;

use crate::TokenUsage;
use decimal::{MILLION, nano_dollars};

const BUILT_IN: &str = include_str!("built_in.json");
/// Above this many input tokens some models charge more for the whole request.
const LONG_CONTEXT: i64 = 272_000;

/// Dollars per million tokens of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub input: Price,
    /// If absent, cached tokens cost as much as other input tokens.
    pub cached_input: Option<Price>,
    /// Includes reasoning tokens.
    pub output: Price,
}

impl Rates {
    /// What the tokens cost, in the unit that [`nano_dollars`] converts.
    fn cost(&self, tokens: TokenUsage) -> i128 {
        let input = tokens.input_tokens.max(0);
        let cached = tokens.cached_tokens.clamp(0, input);
        self.input.times(input - cached) + self.cached_input.unwrap_or(self.input).times(cached) + self.output.times(tokens.output_tokens)
    }
}

/// The origin of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceSource {
    BuiltIn,
    File,
}

/// The price of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrice {
    /// `chat` or `embedding`.
    pub mode: String,
    pub rates: Rates,
    pub above_272k: Option<Rates>,
    /// Dollars per web search that the provider runs; `None` if unknown.
    pub search: Option<Price>,
    pub source: PriceSource,
}

/// The known prices, by model name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable(BTreeMap<String, ModelPrice>);

impl Default for PriceTable {
    /// The built-in table.
    fn default() -> Self {
        // A test reads the table. If it were invalid, prices would be unknown, but never wrong.
        Self(file::parse(BUILT_IN, PriceSource::BuiltIn).unwrap_or_default())
    }
}

impl PriceTable {
    /// Adds the operator's table, which replaces prices of the same models. Changes nothing if the table is invalid.
    pub fn overlay(&mut self, text: &str) -> Result<(), PriceFileError> {
        self.0.extend(file::parse(text, PriceSource::File)?);
        Ok(())
    }

    /// All models with their prices, sorted by name.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelPrice)> {
        self.0.iter().map(|(name, price)| (name.as_str(), price))
    }

    /// The price of a model. For a dated name (`gpt-5-2025-08-07`), the price of the undated model.
    pub fn find(&self, model: &str) -> Option<&ModelPrice> {
        self.0.get(model).or_else(|| self.0.get(undated(model)?))
    }

    /// The cost of a request without web searches, in nano-dollars; `None` if the price is unknown.
    pub fn cost(&self, model: &str, tokens: TokenUsage) -> Option<i64> {
        self.cost_with_searches(model, tokens, 0)
    }

    /// The cost of a request in which the provider ran this many web searches; `None` if a price that counts is unknown.
    pub fn cost_with_searches(&self, model: &str, tokens: TokenUsage, searches: u32) -> Option<i64> {
        let price = self.find(model)?;
        let fees = if searches == 0 { 0 } else { price.search?.times(i64::from(searches)) * MILLION };
        let long = price.above_272k.as_ref().filter(|_| tokens.input_tokens > LONG_CONTEXT);
        nano_dollars(long.unwrap_or(&price.rates).cost(tokens) + fees)
    }
}

/// The name before `-YYYY-MM-DD`.
fn undated(model: &str) -> Option<&str> {
    const SHAPE: &[u8] = b"-0000-00-00";
    let start = model.len().checked_sub(SHAPE.len())?;
    let (name, date) = model.as_bytes().split_at(start);
    let fits = date.iter().zip(SHAPE).all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape });
    // The split is before an ASCII byte, so it is at a character boundary.
    (fits && !name.is_empty()).then(|| &model[..start])
}

#[cfg(test)]
#[path = "prices_tests.rs"]
mod tests;
