//! The usage row of one `ask_gpt` request to the model.
//!
//! The row is written before the request is sent, with an estimate and marked as estimated. The response corrects the row. A request
//! that is canceled, times out or is interrupted by a crash therefore has a usage row like any other, as the turn's own requests have.

use werkruf_contract::Invocation;
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{ModelError, ModelFault, TokenUsage};
use werkruf_store::NewUsage;
use werkruf_store::knowledge::UsageOwner;

use super::base::KnowledgeBase;

/// Bytes per token, for estimates.
const BYTES_PER_TOKEN: usize = 4;

/// The usage row of a request in progress. A failed write is logged and does not fail the request.
pub(super) struct Bill<'a> {
    base: &'a KnowledgeBase,
    prices: &'a PriceTable,
    who: UsageOwner,
    usage: NewUsage,
    /// Bytes of the request.
    sent: usize,
}

impl<'a> Bill<'a> {
    /// Writes the estimated row for a request of this many bytes to this model.
    pub(super) async fn open(
        base: &'a KnowledgeBase,
        prices: &'a PriceTable,
        invocation: &Invocation,
        (provider, model): (&str, &str),
        sent: usize,
    ) -> Self {
        let who = UsageOwner {
            tenant_id: invocation.principal.tenant_id,
            user_id: invocation.principal.user_id.clone(),
            conversation_id: invocation.conversation_id,
            turn_id: Some(invocation.turn_id),
        };
        let usage = NewUsage {
            id: base.clock().new_id(),
            call_id: Some(invocation.job_id),
            key_id: None,
            provider: provider.to_owned(),
            model: model.to_owned(),
            operation: "ask_gpt",
            tokens_prompt: 0,
            tokens_cached: 0,
            tokens_completion: 0,
            tokens_reasoning: 0,
            tokens_total: 0,
            estimated: true,
            cost_nano_usd: None,
        };
        let mut bill = Self { base, prices, who, usage, sent };
        bill.write(None, "").await;
        bill
    }

    /// Corrects the row after an answer. Without a report from the provider the tokens are estimated.
    pub(super) async fn settle(mut self, model: &str, reported: Option<TokenUsage>, received: &str) {
        model.clone_into(&mut self.usage.model);
        self.write(reported, received).await;
    }

    /// Corrects the row after an error.
    pub(super) async fn fail(mut self, error: &ModelError, received: &str) {
        match error.fault {
            ModelFault::Connect => self.strike().await,
            // The provider refused the request without running the model: sent, but free of charge.
            ModelFault::Refused { .. } => self.write(Some(TokenUsage::default()), "").await,
            ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => self.write(None, received).await,
        }
    }

    async fn write(&mut self, reported: Option<TokenUsage>, received: &str) {
        let tokens = reported.unwrap_or_else(|| {
            let count = |bytes: usize| i64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(i64::MAX);
            let (input_tokens, output_tokens) = (count(self.sent), count(received.len()));
            TokenUsage { input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, ..TokenUsage::default() }
        });
        let usage = &mut self.usage;
        usage.tokens_prompt = tokens.input_tokens.max(0);
        usage.tokens_cached = tokens.cached_tokens.max(0);
        usage.tokens_completion = tokens.output_tokens.max(0);
        usage.tokens_reasoning = tokens.reasoning_tokens.max(0);
        usage.tokens_total = tokens.total_tokens.max(0);
        usage.estimated = reported.is_none();
        usage.cost_nano_usd = self.prices.cost(&usage.model, tokens);
        let written = self.base.store().bill(self.who.clone(), self.usage.clone(), self.base.clock().now()).await;
        if let Err(error) = written {
            tracing::error!(%error, "what an answer cost could not be written down");
        }
    }

    /// Deletes the row, because the request was never sent.
    async fn strike(self) {
        if let Err(error) = self.base.store().delete_usage(self.who.tenant_id, self.usage.id).await {
            tracing::error!(%error, "a question that was never sent stays billed");
        }
    }
}
