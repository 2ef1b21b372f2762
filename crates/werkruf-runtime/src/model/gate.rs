//! Admits requests to model providers, one by one: `admit → send → settle`.
//!
//! The gate bounds how many requests are in progress. [`Meter`](super::usage::Meter) settles a request into its usage row.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use werkruf_llm::{AnswerStream, ModelError, ModelRequest, Provider};

/// The only way to the model providers.
pub struct ModelGate {
    provider: Arc<dyn Provider>,
    /// Requests in progress, where they are limited.
    slots: Option<Arc<Semaphore>>,
}

impl ModelGate {
    /// A gate that lets this many requests be in progress; 0 means no limit.
    pub fn new(provider: Arc<dyn Provider>, concurrency: usize) -> Self {
        Self { provider, slots: (concurrency > 0).then(|| Arc::new(Semaphore::new(concurrency))) }
    }

    pub(crate) fn provider_name(&self) -> &str {
        self.provider.name()
    }

    pub(crate) fn default_model(&self) -> &str {
        self.provider.default_model()
    }

    /// Whether the provider can write free text; the offline planner cannot.
    pub(crate) fn writes_text(&self) -> bool {
        self.provider.writes_text()
    }

    /// Waits until a request may be sent.
    pub(crate) async fn admit(&self) -> Admission {
        let slot = match &self.slots {
            // The semaphore is never closed, so this cannot fail.
            Some(slots) => Arc::clone(slots).acquire_owned().await.ok(),
            None => None,
        };
        Admission { provider: Arc::clone(&self.provider), _slot: slot }
    }
}

/// The permission to send one request. Held until its answer is complete.
pub(crate) struct Admission {
    provider: Arc<dyn Provider>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Sends once. Resolves when the head of the answer has arrived.
    pub(crate) async fn send(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        self.provider.stream(request).await
    }
}
