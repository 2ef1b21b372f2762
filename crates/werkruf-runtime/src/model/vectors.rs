//! Requests for vectors.

use werkruf_contract::{Deadline, NoModels};
use werkruf_llm::{Embedded, RequestSize, TokenUsage, in_time};

use super::access::ModelAccess;
use super::failures::{RequestError, late};
use super::usage::Settlement;

impl ModelAccess {
    /// One vector per text, in order. The token count is missing where the server reports none.
    pub(crate) async fn request_vectors(
        &self,
        texts: &[String],
        dimensions: Option<u32>,
        deadline: Deadline,
    ) -> Result<Embedded, RequestError> {
        let gate = &self.accounts.gate;
        let Some(embeddings) = gate.embeddings() else { return Err(NoModels::not_configured().into()) };
        let meter = self.meter(embeddings.name(), embeddings.model(), "embedding", texts.iter().map(String::len).sum());
        let Some(admission) = in_time(deadline, gate.admit_embedding()).await else { return Err(late().nothing_happened().into()) };
        let reserved = self.reserve(&meter, || (RequestSize::of_texts(texts), 0), false, deadline).await?;
        let sending = &reserved.sending;
        match admission.embed(embeddings, texts, dimensions, deadline).await {
            Ok(embedded) => {
                sending.identify(embedded.request_id.as_deref());
                let usage =
                    embedded.tokens.map(|tokens| TokenUsage { input_tokens: tokens, total_tokens: tokens, ..TokenUsage::default() });
                self.settle(&meter, &reserved, &Settlement::Answered { usage, text: "", model: None }).await;
                Ok(embedded)
            }
            Err(error) => {
                self.settle(&meter, &reserved, &Settlement::Failed { error: &error, received: "" }).await;
                Err(RequestError::of_model(error, meter.provider))
            }
        }
    }
}
