//! What a request uses at most: the counted prompt and the longest answer, at list price.

use werkruf_llm::prices::PriceTable;
use werkruf_llm::{RequestSize, TokenUsage};

use crate::budgets::WorstCase;

/// The most web searches of one request, where a budget counts their fees.
pub(super) const MAX_SEARCHES: u32 = 10;

/// The worst case of a request to this model that runs at most this many web searches. A request that uses no tokens, such as one of the offline
/// planner, costs nothing.
pub(crate) async fn worst_case(size: RequestSize, searches: u32, model: &str, prices: &PriceTable) -> WorstCase {
    let whole = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let output_tokens = whole(size.max_output_tokens());
    let input_tokens = whole(size.prompt_tokens().await);
    let total_tokens = input_tokens.saturating_add(output_tokens);
    let usage = TokenUsage { input_tokens, output_tokens, total_tokens, ..TokenUsage::default() };
    // Cost is rounded half up, and so is the cost of what the request uses in the end, which has fewer tokens.
    let nano_usd = if total_tokens == 0 { Some(0) } else { prices.cost_with_searches(model, usage, searches) };
    WorstCase { tokens: total_tokens, nano_usd }
}
