//! `werkruf prices`: the prices that this installation uses to compute costs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use werkruf_llm::prices::{ModelPrice, Price, Rates};

use super::{Outcome, Session, print};

#[derive(Debug, Args)]
pub(super) struct Command {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// List every model with its price
    #[command(after_help = "Examples:\n  werkruf prices\n  WERKRUF_PRICES=prices.json werkruf prices list --json")]
    List,
}

pub(super) fn run(session: &Session, command: &Command) -> Outcome {
    match command.action.unwrap_or(Action::List) {
        Action::List => list(session),
    }
}

fn list(session: &Session) -> Outcome {
    let prices = session.config()?.prices;
    if session.globals.json {
        let models: Vec<Value> = prices.models().map(|(name, price)| line(name, price)).collect();
        print::json(&json!({"currency": "USD", "unit": "US dollars per 1,000,000 tokens, and per web search", "models": models}));
        return Ok(ExitCode::SUCCESS);
    }
    let rows = prices.models().flat_map(|(name, price)| {
        let above = price.above_272k.as_ref().map(|rates| row(&format!("{name} (over 272k)"), rates, price));
        [Some(row(name, &price.rates, price)), above].into_iter().flatten()
    });
    print::table(&["MODEL", "INPUT", "CACHED", "OUTPUT", "SEARCH", "FROM"], rows.collect());
    print::line("US dollars per million tokens, and per web search; usage of a model that is not listed is recorded without a cost.");
    Ok(ExitCode::SUCCESS)
}

fn row(name: &str, rates: &Rates, price: &ModelPrice) -> Vec<String> {
    let or_dash = |price: Option<Price>| price.map_or_else(|| "-".to_owned(), |price| price.to_string());
    let (cached, search) = (or_dash(rates.cached_input), or_dash(price.search));
    let source = print::field(&json!({"source": price.source}), "source").replace('_', "-");
    vec![name.to_owned(), rates.input.to_string(), cached, rates.output.to_string(), search, source]
}

fn line(name: &str, price: &ModelPrice) -> Value {
    let rates = |rates: &Rates| {
        let cached = rates.cached_input.map(|price| price.to_string());
        json!({"input": rates.input.to_string(), "cached_input": cached, "output": rates.output.to_string()})
    };
    json!({
        "model": name,
        "mode": price.mode,
        "usd_per_million": rates(&price.rates),
        "usd_per_million_above_272k": price.above_272k.as_ref().map(rates),
        "search_usd_per_query": price.search.map(|price| price.to_string()),
        "source": price.source,
    })
}
