//! The format of a price file: `{models: [{model, mode?, usd_per_million: {input, cached_input?, output}, search_usd_per_query?, …}]}`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{ModelPrice, Price, PriceSource, Rates};

/// An error in a price file, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PriceFileError {
    /// A JSON pointer into the file; empty for the whole file.
    pub path: String,
    pub message: String,
}

#[derive(Deserialize)]
struct File {
    /// Only USD is accepted, because another currency would be counted as dollars.
    #[serde(default)]
    currency: Option<String>,
    models: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    model: String,
    #[serde(default)]
    mode: Option<String>,
    usd_per_million: RateFields,
    #[serde(default)]
    usd_per_million_above_272k: Option<RateFields>,
    #[serde(default, deserialize_with = "search_fee")]
    search_usd_per_query: Option<Price>,
}

#[derive(Deserialize)]
struct RateFields {
    #[serde(deserialize_with = "price")]
    input: Price,
    #[serde(default, deserialize_with = "price_or_none")]
    cached_input: Option<Price>,
    #[serde(deserialize_with = "price")]
    output: Price,
}

impl From<RateFields> for Rates {
    fn from(fields: RateFields) -> Self {
        Self { input: fields.input, cached_input: fields.cached_input, output: fields.output }
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

/// A fee, or fees by the size of the context that a search adds. Requests name no size, and the provider's default is `medium`.
fn search_fee<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    let value = match Value::deserialize(deserializer)? {
        Value::Object(mut sizes) => sizes.remove("search_context_size_medium").unwrap_or_default(),
        value => value,
    };
    if value.is_null() { Ok(None) } else { read(&value).map(Some).map_err(serde::de::Error::custom) }
}

/// Reads a decimal from text, or from a JSON number in its shortest notation.
fn read(value: &Value) -> Result<Price, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    Price::parse(&text).ok_or_else(|| format!("{value} is not a price; write dollars as \"1.25\""))
}

pub(super) fn parse(text: &str, source: PriceSource) -> Result<BTreeMap<String, ModelPrice>, PriceFileError> {
    let invalid = |path: String, message: String| PriceFileError { path, message };
    let file: File = serde_json::from_str(text).map_err(|error| invalid(String::new(), error.to_string()))?;
    if let Some(currency) = file.currency.filter(|currency| currency != "USD") {
        return Err(invalid("/currency".to_owned(), format!("{currency} is not supported; prices are in USD")));
    }
    let mut models = BTreeMap::new();
    for (at, entry) in file.models.into_iter().enumerate() {
        let entry: Entry = serde_json::from_value(entry).map_err(|error| invalid(format!("/models/{at}"), error.to_string()))?;
        let price = ModelPrice {
            mode: entry.mode.unwrap_or_else(|| "chat".to_owned()),
            rates: entry.usd_per_million.into(),
            above_272k: entry.usd_per_million_above_272k.map(Rates::from),
            search: entry.search_usd_per_query,
            source,
        };
        if entry.model.is_empty() {
            return Err(invalid(format!("/models/{at}/model"), "is empty".to_owned()));
        }
        if models.insert(entry.model.clone(), price).is_some() {
            return Err(invalid(format!("/models/{at}/model"), format!("{} is listed twice", entry.model)));
        }
    }
    Ok(models)
}
