use proptest::prelude::*;

use super::{Price, PriceSource, PriceTable, undated};
use crate::TokenUsage;

fn tokens(input_tokens: i64, cached_tokens: i64, output_tokens: i64) -> TokenUsage {
    TokenUsage {
        input_tokens,
        cached_tokens,
        output_tokens,
        reasoning_tokens: output_tokens / 2,
        total_tokens: input_tokens + output_tokens,
    }
}

#[test]
fn the_built_in_table_is_valid() {
    let table = PriceTable::default();
    assert!(table.models().count() >= 15);
    assert!(table.models().all(|(_, price)| price.source == PriceSource::BuiltIn));
    assert_eq!(table.cost("gpt-5", tokens(750, 0, 150)), Some(2_437_500));
    assert_eq!(table.cost("gpt-4o", tokens(750, 0, 150)), Some(3_375_000));
    assert_eq!(table.cost("text-embedding-3-small", tokens(1000, 0, 0)), Some(20_000));
    assert_eq!(table.cost("gpt-5", tokens(1000, 400, 0)), Some(600 * 1250 + 400 * 125));
    assert_eq!(table.cost("text-embedding-3-large", tokens(10, 4, 0)), Some(1300), "no price for cached: the full one");
    assert_eq!(table.cost("gpt-5.4", tokens(272_000, 0, 1)), Some(272_000 * 2500 + 15_000));
    assert_eq!(table.cost("gpt-5.4", tokens(272_001, 0, 1)), Some(272_001 * 5000 + 22_500), "the whole request");
}

#[test]
fn the_cost_without_a_price_is_unknown() {
    let table = PriceTable::default();
    for model in ["llama3", "gpt-5-turbo", "gpt-5-2025-08", "gpt-5-2025-08-07-preview", "-2025-08-07", "", "GPT-5"] {
        assert_eq!(table.cost(model, tokens(10, 0, 10)), None, "{model}");
    }
    assert_eq!(table.cost("gpt-5", tokens(0, 0, 0)), Some(0), "a request that was refused costs nothing, and that is known");
}

#[test]
fn a_dated_name_is_a_snapshot_of_its_model() {
    let table = PriceTable::default();
    assert_eq!(table.find("gpt-5-2025-08-07"), table.find("gpt-5"));
    assert_eq!(table.find("gpt-4o-mini-2024-07-18"), table.find("gpt-4o-mini"), "the longest name, not gpt-4o");
    assert_eq!(undated("é-2025-01-01"), Some("é"));
    assert_eq!(undated("2025-01-01"), None);
}

#[test]
fn rounding_is_half_up_and_happens_once() {
    let mut table = PriceTable::default();
    let file = r#"{"models": [{"model": "m", "usd_per_million": {"input": "0.0005", "cached_input": "0.00025", "output": "0.000249"}}]}"#;
    table.overlay(file).unwrap();
    assert_eq!(table.cost("m", tokens(1, 0, 0)), Some(1), "half a nano-dollar is one");
    assert_eq!(table.cost("m", tokens(1, 1, 0)), Some(0), "a quarter is none");
    assert_eq!(table.cost("m", tokens(2, 1, 1)), Some(1), "0.5 + 0.25 + 0.249 is 0.999: each for itself would be 1 + 0 + 0");
    assert_eq!(table.cost("m", tokens(1, 1, 1)), Some(0), "0.499");
    assert_eq!(table.cost("m", tokens(5, 9, -3)), Some(1), "more cached than sent, and less than nothing: 5 cached");
}

#[test]
fn web_searches_are_charged_apart_and_rounded_with_the_tokens() {
    let mut table = PriceTable::default();
    assert_eq!(table.cost_with_searches("gpt-5-2025-08-07", tokens(100, 0, 10), 3), Some(225_000 + 30_000_000));
    let model = |name: &str, fee: &str| {
        format!(r#"{{"model": "{name}", "usd_per_million": {{"input": "0.0001", "output": "0"}}, "search_usd_per_query": {fee}}}"#)
    };
    let sizes = r#"{"search_context_size_low": 0.03, "search_context_size_medium": 0.035, "search_context_size_high": 0.05}"#;
    let entries = [("text", r#""0.0000000004""#), ("sizes", sizes), ("null", "null"), ("other", r#"{"search_context_size_low": 0.03}"#)];
    let models: Vec<String> = entries.iter().map(|(name, fee)| model(name, fee)).collect();
    table.overlay(&format!(r#"{{"models": [{}]}}"#, models.join(", "))).unwrap();
    assert_eq!(
        table.cost_with_searches("text", tokens(1, 0, 0), 1),
        Some(1),
        "0.1 + 0.4 is half a nano-dollar; each for itself would be none"
    );
    assert_eq!(table.cost_with_searches("text", tokens(0, 0, 0), 1), Some(0));
    assert_eq!(table.cost_with_searches("sizes", tokens(0, 0, 0), 2), Some(70_000_000), "requests name no size, which means medium");
    for unknown in ["null", "other", "llama3"] {
        assert_eq!(table.cost_with_searches(unknown, tokens(1000, 0, 0), 1), None, "{unknown}");
    }
    assert_eq!(table.cost_with_searches("null", tokens(10_000, 0, 0), 0), Some(1000), "no search, no fee");
    assert!(table.overlay(&format!(r#"{{"models": [{}]}}"#, model("m", r#""a cent""#))).is_err());
    assert_eq!(table.cost_with_searches("gpt-5", tokens(0, 0, 0), u32::MAX), Some(42_949_672_950_000_000));
}

#[test]
fn an_operators_table_overrides_prices_or_is_rejected() {
    let mut table = PriceTable::default();
    let before = table.clone();
    for (text, path) in [
        ("[]", ""),
        (r#"{"models": [{"model": "a"}]}"#, "/models/0"),
        (r#"{"currency": "EUR", "models": []}"#, "/currency"),
        (r#"{"models": [{"model": "a", "usd_per_million": {"input": "1", "output": "1e-6"}}]}"#, "/models/0"),
        (r#"{"models": [{"model": "a", "usd_per_million": {"input": "-1", "output": "1"}}]}"#, "/models/0"),
        (
            r#"{"models": [{"model": "a", "usd_per_million": {"input": "1", "output": "1"}},
             {"model": "a", "usd_per_million": {"input": "1", "output": "1"}}]}"#,
            "/models/1/model",
        ),
    ] {
        assert_eq!(table.overlay(text).unwrap_err().path, path, "{text}");
        assert_eq!(table, before);
    }
    let file = r#"{"source": "us", "unit": "any", "models": [
        {"model": "gpt-5", "usd_per_million": {"input": "1", "cached_input": null, "output": "2"}, "max_input_tokens": 3},
        {"model": "ours", "mode": "chat", "usd_per_million": {"input": 0.5, "output": 0}}]}"#;
    table.overlay(file).unwrap();
    assert_eq!(table.cost("gpt-5", tokens(10, 10, 10)), Some(30_000));
    assert_eq!(table.cost("ours", tokens(10, 0, 10)), Some(5000));
    assert_eq!(table.cost("gpt-4o", tokens(750, 0, 150)), Some(3_375_000), "others stay");
}

#[test]
fn invalid_prices_are_rejected() {
    for text in [
        "",
        ".",
        "1.",
        ".5",
        "-1",
        "+1",
        "1,5",
        "1e3",
        "1 ",
        "١",
        "0.1234567890123",
        "1000001",
        "99999999999999999999999999999999999999999",
    ] {
        assert_eq!(Price::parse(text), None, "{text}");
    }
    assert_eq!(Price::parse("0.1234567890120").unwrap().to_string(), "0.123456789012");
    assert_eq!(Price::parse("0010.50").unwrap().to_string(), "10.5");
}

proptest! {
    /// With whole nano-dollars per token nothing is rounded.
    #[test]
    fn cost_is_exact(whole in 0_i64..100_000, input in 0_i64..1_000_000_000, cached in 0_i64..1_000_000_000, output in 0_i64..1_000_000_000) {
        let price = format!("{}.{:03}", whole / 1000, whole % 1000);
        let mut table = PriceTable::default();
        table.overlay(&format!(r#"{{"models": [{{"model": "m", "usd_per_million": {{"input": "{price}", "output": "{price}"}}}}]}}"#)).unwrap();
        prop_assert_eq!(table.cost("m", tokens(input, cached, output)), Some(whole * (input + output)));
    }

    #[test]
    fn a_price_survives_a_round_trip(units in 0_u64..1_000_000_000_000_000_000) {
        let text = format!("{}.{:012}", units / 1_000_000_000_000, units % 1_000_000_000_000);
        let price = Price::parse(&text).unwrap();
        prop_assert_eq!(Price::parse(&price.to_string()), Some(price));
    }
}
