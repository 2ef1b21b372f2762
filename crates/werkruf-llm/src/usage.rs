//! Token usage as providers report it, with the field names of either API.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::TokenUsage;
use crate::raw::{count, object};

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<f64>,
    #[serde(default)]
    input_tokens: Option<f64>,
    #[serde(default)]
    completion_tokens: Option<f64>,
    #[serde(default)]
    output_tokens: Option<f64>,
    #[serde(default)]
    total_tokens: Option<f64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    #[serde(default)]
    input_tokens_details: Option<Details>,
    #[serde(default)]
    completion_tokens_details: Option<Details>,
    #[serde(default)]
    output_tokens_details: Option<Details>,
    /// DeepSeek's name for cached tokens, and two of other servers.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<f64>,
    #[serde(default)]
    cached_tokens: Option<f64>,
    #[serde(default)]
    num_cached_tokens: Option<f64>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<f64>,
    #[serde(default)]
    reasoning_tokens: Option<f64>,
}

/// Reads a `usage` object; `None` if it contains no counts.
pub(crate) fn usage(raw: &RawValue) -> Option<TokenUsage> {
    tokens(object(raw)?)
}

/// The same for a response that is parsed already.
pub(crate) fn usage_of(value: &Value) -> Option<TokenUsage> {
    tokens(WireUsage::deserialize(value.as_object()?).ok()?)
}

fn tokens(wire: WireUsage) -> Option<TokenUsage> {
    let (input, output) = (wire.prompt_tokens.or(wire.input_tokens), wire.completion_tokens.or(wire.output_tokens));
    if input.is_none() && output.is_none() && wire.total_tokens.is_none() {
        return None;
    }
    let cached = wire.prompt_tokens_details.or(wire.input_tokens_details).and_then(|details| details.cached_tokens);
    let reasoning = wire.completion_tokens_details.or(wire.output_tokens_details).and_then(|details| details.reasoning_tokens);
    let (input_tokens, output_tokens) = (count(input), count(output));
    Some(TokenUsage {
        input_tokens,
        cached_tokens: count(cached.or(wire.prompt_cache_hit_tokens).or(wire.cached_tokens).or(wire.num_cached_tokens)),
        output_tokens,
        reasoning_tokens: count(reasoning),
        total_tokens: wire.total_tokens.map_or(input_tokens + output_tokens, |total| count(Some(total))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_gives_the_same_tokens_in_text_and_value() {
        let expected = TokenUsage { input_tokens: 10, cached_tokens: 4, output_tokens: 5, reasoning_tokens: 0, total_tokens: 15 };
        for wire in [
            json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}),
            json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 4}}),
            json!({"prompt_tokens": 10.0, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": null}),
            json!({"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 4}),
            json!({"prompt_tokens": 10, "completion_tokens": 5, "num_cached_tokens": 4}),
        ] {
            let raw = RawValue::from_string(wire.to_string()).unwrap();
            assert_eq!((usage(&raw), usage_of(&wire)), (Some(expected), Some(expected)), "{wire}");
        }
        assert_eq!((usage_of(&json!({})), usage_of(&json!(null)), usage_of(&json!([1, 2]))), (None, None, None));
    }
}
