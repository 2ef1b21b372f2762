//! The embedding model, and the loop that computes a vector for every chunk.
//!
//! A chunk is searchable by its words as soon as it is stored; its vector follows later. Failed batches are retried without limit and
//! after every restart, because the store lists the chunks without a vector. A text that the model refuses is marked and skipped.
//! Replicas that share a database share the work: each claims a batch, so that no chunk is embedded and paid for twice.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use werkruf_contract::{Clock, Deadline, Uuid};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{Embedded, Embeddings, ModelError, ModelFault, TokenUsage};
use werkruf_store::knowledge::{Chunk, Knowledge, NewVector, UnembeddedChunk, UsageOwner};
use werkruf_store::{NewUsage, StoreError};

/// Most texts in one request.
const BATCH: u32 = 64;
/// A longer text is truncated before embedding; models refuse more than about 8,000 tokens.
const MOST_LETTERS: usize = 8_000;
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a search waits for the vector of its query.
const FOR_A_QUESTION: Duration = Duration::from_millis(700);
/// How often the store is polled without a wakeup.
const LOOK: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An embedding model and its background loop.
pub struct Embedder {
    client: Embeddings,
    /// The languages that the model knows.
    languages: Vec<String>,
    prices: Arc<PriceTable>,
    clock: Clock,
    wake: Notify,
    /// The owner id of this process's claims.
    owner: Uuid,
    /// When the loop last made progress, in milliseconds since 1970.
    progress_ms: AtomicI64,
}

impl Embedder {
    /// An embedder for a model that knows these languages.
    pub fn new(client: Embeddings, languages: Vec<String>, prices: Arc<PriceTable>, clock: Clock) -> Self {
        let owner = clock.new_id();
        Self { client, languages, prices, clock, wake: Notify::new(), owner, progress_ms: AtomicI64::new(0) }
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        self.client.model()
    }

    /// The languages that the model knows.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// When the loop last made progress; 0 means never.
    pub fn progress_ms(&self) -> i64 {
        self.progress_ms.load(Ordering::Relaxed)
    }

    /// Wakes the loop, because new chunks have no vector yet.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The vector of a search query; `None` if the model fails or does not answer in time.
    pub(super) async fn question(&self, text: &str, who: UsageOwner, store: &dyn Knowledge) -> Option<Vec<f32>> {
        let text: String = text.chars().take(MOST_LETTERS).collect();
        match self.client.embed(std::slice::from_ref(&text), Deadline::after(FOR_A_QUESTION)).await {
            Ok(Embedded { mut vectors, tokens }) => {
                self.bill(store, who, tokens, text.len()).await;
                vectors.pop()
            }
            Err(error) => {
                tracing::warn!(%error, "the question has no vector; words alone answer it");
                None
            }
        }
    }

    /// The background loop. It never returns; the caller drops the future to stop it.
    pub async fn watch(&self, store: &dyn Knowledge) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.embed_waiting(store).await {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    let _ = tokio::time::timeout(LOOK, self.wake.notified()).await;
                }
                Err(error) => {
                    let wait = error.retry_after.unwrap_or(pause).min(LONGEST_PAUSE);
                    tracing::warn!(%error, wait_ms = wait.as_millis(), "chunks wait for their vectors");
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Embeds every chunk without a vector, except those that another replica has claimed.
    pub async fn embed_waiting(&self, store: &dyn Knowledge) -> Result<(), ModelError> {
        loop {
            let claimed = store.claim_unembedded(self.model().to_owned(), self.owner, BATCH).await;
            let mut batch = claimed.map_err(|error| trouble(&error))?;
            self.progress_ms.store(self.clock.now().as_millisecond(), Ordering::Relaxed);
            let Some(first) = batch.first() else { return Ok(()) };
            // One request belongs to one tenant, because its usage row does.
            let tenant_id = first.tenant_id;
            batch.retain(|chunk| chunk.tenant_id == tenant_id);
            let done = tokio::select! {
                done = self.embed_batch(store, &batch) => done,
                never = self.keep_claims(store) => match never {},
            };
            // Releases also the chunks that were not embedded, so that another replica can try them.
            store.release_claims(self.owner).await.map_err(|error| trouble(&error))?;
            done?;
        }
    }

    async fn embed_batch(&self, store: &dyn Knowledge, batch: &[UnembeddedChunk]) -> Result<(), ModelError> {
        let vectors = self.vectors(store, batch).await?;
        store.put_vectors(self.model().to_owned(), vectors).await.map_err(|error| trouble(&error))?;
        Ok(())
    }

    /// Renews the claims for as long as the future is polled.
    async fn keep_claims(&self, store: &dyn Knowledge) -> Infallible {
        let Some(ttl) = store.claim_ttl() else { return std::future::pending().await };
        loop {
            tokio::time::sleep(ttl / 3).await;
            if let Err(error) = store.renew_claims(self.owner).await {
                tracing::warn!(%error, "the claim to a batch could not be renewed; another server may embed it too");
            }
        }
    }

    /// The vectors of a batch. A refused batch is split in halves until the refused text is alone.
    async fn vectors(&self, store: &dyn Knowledge, batch: &[UnembeddedChunk]) -> Result<Vec<NewVector>, ModelError> {
        let mut found = Vec::with_capacity(batch.len());
        let mut left = vec![batch];
        while let Some(part) = left.pop() {
            match self.embed(store, part).await {
                Ok(vectors) => {
                    found.extend(part.iter().zip(vectors).map(|(chunk, vector)| NewVector { number: chunk.number, vector: Some(vector) }));
                }
                Err(ModelError { fault: ModelFault::Refused { status: 400 | 413 | 422 }, message, .. }) => match part {
                    [only] => {
                        tracing::error!(chunk = only.number, message, "the model refuses a text; it is found by its words only");
                        found.push(NewVector { number: only.number, vector: None });
                    }
                    several => {
                        let (one, other) = several.split_at(several.len() / 2);
                        left.extend([other, one]);
                    }
                },
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn embed(&self, store: &dyn Knowledge, part: &[UnembeddedChunk]) -> Result<Vec<Vec<f32>>, ModelError> {
        let text =
            |chunk: &UnembeddedChunk| Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content).chars().take(MOST_LETTERS).collect();
        let texts: Vec<String> = part.iter().map(text).collect();
        let Embedded { vectors, tokens } = self.client.embed(&texts, Deadline::after(PATIENCE)).await?;
        let who = UsageOwner { tenant_id: part.first().map(|chunk| chunk.tenant_id).unwrap_or_default(), ..UsageOwner::default() };
        self.bill(store, who, tokens, texts.iter().map(String::len).sum()).await;
        Ok(vectors)
    }

    /// Writes the usage row of a request. A failed write is logged and does not lose the vectors.
    async fn bill(&self, store: &dyn Knowledge, who: UsageOwner, tokens: Option<i64>, bytes: usize) {
        let counted = || i64::try_from(bytes.div_ceil(4)).unwrap_or(i64::MAX);
        let input_tokens = tokens.unwrap_or_else(counted).max(0);
        let spent = TokenUsage { input_tokens, total_tokens: input_tokens, ..TokenUsage::default() };
        let usage = NewUsage {
            id: self.clock.new_id(),
            call_id: None,
            key_id: None,
            provider: self.client.name().to_owned(),
            model: self.model().to_owned(),
            operation: "embedding",
            tokens_prompt: input_tokens,
            tokens_cached: 0,
            tokens_completion: 0,
            tokens_reasoning: 0,
            tokens_total: input_tokens,
            estimated: tokens.is_none(),
            cost_nano_usd: self.prices.cost(self.model(), spent),
        };
        if let Err(error) = store.bill(who, usage, self.clock.now()).await {
            tracing::error!(%error, "what a vector cost could not be written down");
        }
    }
}

/// A store error is retried like a connection error of the model.
fn trouble(error: &StoreError) -> ModelError {
    ModelError::new(ModelFault::Connect, error.to_string())
}
