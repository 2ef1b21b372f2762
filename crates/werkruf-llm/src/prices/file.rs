//! The shape of a price file: `{models: [{model, mode?, usd_per_million: {input, cached_input?, output}, …}]}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{ModelPrice, Price, PriceSource, Rates};

/// What is wrong with a price file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PriceFault {
    /// A JSON pointer into the file; empty for the whole.
    pub path: String,
    pub message: String,
}

#[derive(Deserialize)]
struct File {
    /// Another currency would be booked as dollars.
    #[serde(default)]
    currency: Option<String>,
    models: Vec<Value>,
}

#[derive(Deserialize)]
struct Line {
    model: String,
    #[serde(default)]
    mode: Option<String>,
    usd_per_million: Written,
    #[serde(default)]
    usd_per_million_above_272k: Option<Written>,
}

#[derive(Deserialize)]
struct Written {
    #[serde(deserialize_with = "price")]
    input: Price,
    #[serde(default, deserialize_with = "price_or_none")]
    cached_input: Option<Price>,
    #[serde(deserialize_with = "price")]
    output: Price,
}

impl From<Written> for Rates {
    fn from(written: Written) -> Self {
        Self { input: written.input, cached_input: written.cached_input, output: written.output }
    }
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
    read(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn price_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value => read(&value).map(Some).map_err(serde::de::Error::custom),
    }
}

/// A decimal as text; a JSON number is taken as it was most likely written.
fn read(value: &Value) -> Result<Price, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    Price::parse(&text).ok_or_else(|| format!("{value} is no price; write dollars per million tokens as \"1.25\""))
}

pub(super) fn parse(text: &str, source: PriceSource) -> Result<BTreeMap<String, ModelPrice>, PriceFault> {
    let fault = |path: String, message: String| PriceFault { path, message };
    let file: File = serde_json::from_str(text).map_err(|error| fault(String::new(), error.to_string()))?;
    if let Some(currency) = file.currency.filter(|currency| currency != "USD") {
        return Err(fault("/currency".to_owned(), format!("{currency} is not kept; prices are in USD")));
    }
    let mut models = BTreeMap::new();
    for (at, line) in file.models.into_iter().enumerate() {
        let line: Line = serde_json::from_value(line).map_err(|error| fault(format!("/models/{at}"), error.to_string()))?;
        let price = ModelPrice {
            mode: line.mode.unwrap_or_else(|| "chat".to_owned()),
            rates: line.usd_per_million.into(),
            above_272k: line.usd_per_million_above_272k.map(Rates::from),
            source,
        };
        if line.model.is_empty() {
            return Err(fault(format!("/models/{at}/model"), "is empty".to_owned()));
        }
        if models.insert(line.model.clone(), price).is_some() {
            return Err(fault(format!("/models/{at}/model"), format!("{} is there twice", line.model)));
        }
    }
    Ok(models)
}
