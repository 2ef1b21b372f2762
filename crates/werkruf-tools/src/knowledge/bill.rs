//! What a question to the model costs.
//!
//! Its row is there before the question leaves, counted and flagged; what becomes of the question corrects it. So one that is stopped,
//! late or cut off by a crash is billed like one that is answered, and like the turn's own.

use werkruf_contract::Invocation;
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{ModelError, ModelFault, TokenUsage};
use werkruf_store::NewUsage;
use werkruf_store::knowledge::UsageOwner;

use super::base::KnowledgeBase;

/// Bytes per token where nobody counted.
const BYTES_PER_TOKEN: usize = 4;

/// A bill that is open. One that cannot be written must not cost the answer.
pub(super) struct Bill<'a> {
    base: &'a KnowledgeBase,
    prices: &'a PriceTable,
    who: UsageOwner,
    usage: NewUsage,
    /// Bytes that were sent.
    sent: usize,
}

impl<'a> Bill<'a> {
    /// Writes down that a question of this many bytes goes to this model now.
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

    /// An answer came; what was not reported is counted.
    pub(super) async fn settle(mut self, model: &str, reported: Option<TokenUsage>, received: &str) {
        model.clone_into(&mut self.usage.model);
        self.write(reported, received).await;
    }

    /// None came.
    pub(super) async fn fail(mut self, error: &ModelError, received: &str) {
        match error.fault {
            ModelFault::Connect => self.strike().await,
            // Refused before it was read: sent, but nothing to pay for.
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

    /// Nothing was sent after all.
    async fn strike(self) {
        if let Err(error) = self.base.store().delete_usage(self.who.tenant_id, self.usage.id).await {
            tracing::error!(%error, "a question that was never sent stays billed");
        }
    }
}
