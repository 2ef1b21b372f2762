//! What a request uses at most: the counted prompt and the longest answer, at list price.

use werkruf_llm::prices::PriceTable;
use werkruf_llm::{RequestSize, TokenUsage};

use crate::budgets::WorstCase;

/// The most web searches of one request, where a budget counts their fees.
pub(super) const MAX_SEARCHES: u32 = 10;

/// No provider accepts a lower limit for an answer.
const SHORTEST_ANSWER: i64 = 16;

/// The worst case of a request to this model that runs at most this many web searches. With `room`, what is left of the turn's own tokens, the
/// answer is limited to what the prompt leaves of it. A request that uses no tokens, such as one of the offline planner, costs nothing.
pub(crate) async fn worst_case(size: RequestSize, searches: u32, model: &str, prices: &PriceTable, room: Option<i64>) -> WorstCase {
    let whole = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let longest = whole(size.max_output_tokens());
    let input_tokens = whole(size.prompt_tokens().await);
    let left = room.map(|room| room.saturating_sub(input_tokens)).filter(|left| *left < longest && *left >= SHORTEST_ANSWER);
    let output_tokens = left.unwrap_or(longest);
    let total_tokens = input_tokens.saturating_add(output_tokens);
    let usage = TokenUsage { input_tokens, output_tokens, total_tokens, ..TokenUsage::default() };
    // Cost is rounded half up, and so is the cost of what the request uses in the end, which has fewer tokens.
    let nano_usd = if total_tokens == 0 { Some(0) } else { prices.cost_with_searches(model, usage, searches) };
    WorstCase { tokens: total_tokens, prompt: input_tokens, nano_usd, max_output: left.and_then(|left| u32::try_from(left).ok()) }
}
