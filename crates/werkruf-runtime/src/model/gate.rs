//! The only way to the model providers: `admit → send → settle`.
//!
//! The gate bounds how many requests are in progress, whoever makes them: turns, summaries, tools, searches. [`Meter`] settles a request into its
//! usage row. A turn stages the row in its journal; a request outside a turn writes it by itself ([`ModelAccess`]).
//!
//! [`Meter`]: super::usage::Meter
//! [`ModelAccess`]: super::access::ModelAccess

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use werkruf_contract::Deadline;
use werkruf_llm::{AnswerStream, Embedded, Embeddings, ModelError, ModelRequest, Provider, WebSearch, WebSearchRequest, WebSearchResult};

use crate::conditions::Conditions;

/// The providers behind the gate.
pub struct ModelProviders {
    /// Answers turns: a language model, or the offline planner.
    pub chat: Arc<dyn Provider>,
    /// The same provider's web search, where a language model is configured.
    pub web_search: Option<WebSearch>,
    pub embeddings: Option<Embeddings>,
}

/// See the module's documentation.
pub struct ModelGate {
    providers: ModelProviders,
    /// Requests in progress, where they are limited.
    slots: Option<Arc<Semaphore>>,
    /// Embedding requests have slots of their own: a search must not wait for long answers, nor a chat for a batch of vectors.
    embedding_slots: Option<Arc<Semaphore>>,
    waiting: AtomicUsize,
    conditions: Conditions,
}

impl ModelGate {
    /// A gate that lets this many requests be in progress, and as many for embeddings; 0 means no limit.
    pub fn new(providers: ModelProviders, concurrency: usize) -> Self {
        let slots = || (concurrency > 0).then(|| Arc::new(Semaphore::new(concurrency)));
        Self { providers, slots: slots(), embedding_slots: slots(), waiting: AtomicUsize::new(0), conditions: Conditions::default() }
    }

    pub(crate) fn chat_provider(&self) -> &dyn Provider {
        &*self.providers.chat
    }

    /// What requests say about their providers, for the operator's alerts.
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// How many requests wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) const fn web_search(&self) -> Option<&WebSearch> {
        self.providers.web_search.as_ref()
    }

    pub(super) const fn embeddings(&self) -> Option<&Embeddings> {
        self.providers.embeddings.as_ref()
    }

    /// Waits until a request for an answer may be sent.
    pub(crate) async fn admit(&self) -> Admission<'_> {
        self.admit_into(self.slots.as_ref()).await
    }

    /// Waits until a request for vectors may be sent.
    pub(super) async fn admit_embedding(&self) -> Admission<'_> {
        self.admit_into(self.embedding_slots.as_ref()).await
    }

    async fn admit_into(&self, slots: Option<&Arc<Semaphore>>) -> Admission<'_> {
        let slot = match slots {
            // The semaphore is never closed, so this cannot fail.
            Some(slots) => {
                let _waiting = Waiting::new(&self.waiting);
                Arc::clone(slots).acquire_owned().await.ok()
            }
            None => None,
        };
        Admission { providers: &self.providers, _slot: slot }
    }
}

/// Counts a request while it waits for a slot, also when it gives up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permission to send one request. Held until its answer is complete.
pub(crate) struct Admission<'a> {
    providers: &'a ModelProviders,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Admission<'_> {
    /// Sends once. Resolves when the head of the answer has arrived.
    pub(crate) async fn send(&self, request: ModelRequest) -> Result<AnswerStream, ModelError> {
        self.providers.chat.stream(request).await
    }

    pub(super) async fn search_web(
        &self,
        web_search: &WebSearch,
        request: &WebSearchRequest,
        deadline: Deadline,
    ) -> Result<WebSearchResult, ModelError> {
        web_search.search(request, deadline).await
    }

    pub(super) async fn embed(
        &self,
        embeddings: &Embeddings,
        texts: &[String],
        dimensions: Option<u32>,
        deadline: Deadline,
    ) -> Result<Embedded, ModelError> {
        embeddings.embed(texts, dimensions, deadline).await
    }
}
