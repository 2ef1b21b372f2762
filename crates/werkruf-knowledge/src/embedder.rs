//! The embedding model, and the loop that computes a vector for every chunk.
//!
//! A chunk is searchable by its words as soon as it is stored; its vector follows later. Failed batches are retried without limit and
//! after every restart, because the store lists the chunks without a vector. A text that the model refuses is marked and skipped.
//! Replicas that share a database share the work: each claims a batch, so that no chunk is embedded and paid for twice.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::{Chunk, Knowledge, Library, NewVector, UnembeddedChunk};
use tokio::sync::Notify;
use werkruf_contract::{Clock, Deadline, ErrorCode, Failure, ModelSource, Models, ToolErrorType, Uuid};
use werkruf_store::StoreError;

/// Most texts in one request.
const BATCH: u32 = 64;
/// A longer text is truncated before embedding; models refuse more than about 8,000 tokens.
const MAX_CHARS: usize = 8_000;
const BATCH_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a search waits for the vector of its query.
const QUERY_TIMEOUT: Duration = Duration::from_millis(700);
/// How often the store is polled without a wakeup.
const POLL: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const DATABASE_UNAVAILABLE: &str = "database_unavailable";

/// An embedding model and its background loop.
pub struct Embedder {
    models: Arc<dyn ModelSource>,
    model: String,
    /// The languages that the model knows.
    languages: Vec<String>,
    clock: Clock,
    wake: Notify,
    /// The owner id of this process's claims.
    owner: Uuid,
    /// When the loop last made progress, in milliseconds since 1970.
    progress_ms: AtomicI64,
    /// The size of the stored vectors of the model, once it is known.
    size: OnceLock<usize>,
    /// The last chunk of a batch that failed. The next attempt starts behind it, so that one bad text does not hold up all others.
    failed_until: AtomicI64,
    /// Whether the model failed to give usable vectors for the last batch.
    failing: AtomicBool,
}

impl Embedder {
    /// An embedder for a model that knows these languages; `None` where no embedding model is configured.
    pub fn new(models: Arc<dyn ModelSource>, languages: Vec<String>, clock: Clock) -> Option<Self> {
        let model = models.embedding_model()?.to_owned();
        let owner = clock.new_id();
        Some(Self {
            models,
            model,
            languages,
            clock,
            wake: Notify::new(),
            owner,
            progress_ms: AtomicI64::new(0),
            size: OnceLock::new(),
            failed_until: AtomicI64::new(0),
            failing: AtomicBool::new(false),
        })
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The languages that the model knows.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// When the loop last made progress; 0 means never.
    pub fn progress_ms(&self) -> i64 {
        self.progress_ms.load(Ordering::Relaxed)
    }

    /// Whether the model failed to give usable vectors for the last batch of chunks.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Model access for work that belongs to no turn.
    pub(super) fn models_for(&self, tenant_id: Uuid, user_id: &str) -> Arc<dyn Models> {
        self.models.models_for(tenant_id, user_id)
    }

    /// Wakes the loop, because new chunks have no vector yet.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The vector of a search query; `None` if the model fails or does not answer in time.
    pub(super) async fn query_vector(&self, text: &str, models: &dyn Models) -> Option<Vec<f32>> {
        let text: String = text.chars().take(MAX_CHARS).collect();
        match models.embed(vec![text], Deadline::after(QUERY_TIMEOUT)).await {
            Ok(mut vectors) => vectors.pop(),
            Err(failure) => {
                let cause = failure.cause.unwrap_or(failure.message);
                tracing::warn!(cause, "the query has no vector; the search uses words only");
                None
            }
        }
    }

    /// The background loop. It never returns; the caller drops the future to stop it.
    pub async fn run(&self, library: &Library) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.embed_pending(library).await {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    let _ = tokio::time::timeout(POLL, self.wake.notified()).await;
                }
                Err(failure) => {
                    let wait = failure.retry_after.unwrap_or(pause).min(LONGEST_PAUSE);
                    let cause = failure.cause.unwrap_or(failure.message);
                    tracing::warn!(cause, wait_ms = wait.as_millis(), "chunks wait for their vectors");
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Embeds every chunk without a vector, except those that another replica has claimed.
    pub async fn embed_pending(&self, library: &Library) -> Result<(), Failure> {
        let store = &**library.store();
        // Batches continue after the last one, because the chunks before it need not be looked at again.
        let mut after = self.failed_until.swap(0, Ordering::Relaxed);
        let mut over_budget = None;
        loop {
            let claimed = store.claim_unembedded(self.model.clone(), self.owner, after, BATCH).await;
            let mut batch = claimed.map_err(|error| store_failure(&error))?;
            let Some(first) = batch.first() else {
                if let Some(failure) = over_budget {
                    return Err(failure);
                }
                if after == 0 {
                    // The chunks that failed may have been deleted.
                    self.failing.store(false, Ordering::Relaxed);
                    self.made_progress();
                    return Ok(());
                }
                after = 0;
                continue;
            };
            // One request belongs to one tenant, because its usage row does.
            let tenant_id = first.tenant_id;
            let of_tenant = batch.iter().position(|chunk| chunk.tenant_id != tenant_id).unwrap_or(batch.len());
            batch.truncate(of_tenant);
            let last = batch.last().map_or(0, |chunk| chunk.number);
            let done = tokio::select! {
                done = self.embed_batch(library, tenant_id, &batch) => done,
                never = self.renew_claims(store) => match never {},
            };
            // Releases also the chunks that were not embedded, so that another replica can try them.
            store.release_claims(self.owner).await.map_err(|error| store_failure(&error))?;
            if let Err(failure) = done {
                if failure.is(ErrorCode::BudgetExceeded) {
                    // Other tenants have budgets of their own.
                    self.made_progress();
                    (after, over_budget) = (last, Some(failure));
                    continue;
                }
                self.failed_until.store(last, Ordering::Relaxed);
                // A database that does not answer says nothing about the model.
                if failure.code != DATABASE_UNAVAILABLE {
                    self.failing.store(true, Ordering::Relaxed);
                }
                return Err(failure);
            }
            self.failing.store(false, Ordering::Relaxed);
            self.made_progress();
            after = last;
        }
    }

    fn made_progress(&self) {
        self.progress_ms.store(self.clock.now().as_millisecond(), Ordering::Relaxed);
    }

    async fn embed_batch(&self, library: &Library, tenant_id: Uuid, batch: &[UnembeddedChunk]) -> Result<(), Failure> {
        // Before the request: a process that ends while it waits loses nothing that was paid for.
        library.pace.rested().await;
        let models = self.models_for(tenant_id, "");
        let vectors = vectors(&*models, batch).await?;
        self.check_sizes(&**library.store(), &vectors).await?;
        let storing = library.put_vectors(self.model.clone(), batch, vectors);
        library.pace.write_now(storing).await.map_err(|error| store_failure(&error))?;
        Ok(())
    }

    /// A model whose vectors have another size than the stored ones fails: they could not be compared.
    async fn check_sizes(&self, store: &dyn Knowledge, vectors: &[NewVector]) -> Result<(), Failure> {
        let mut sizes = vectors.iter().filter_map(|new| new.vector.as_ref().map(Vec::len));
        let Some(first) = sizes.next() else { return Ok(()) };
        let stored = match self.size.get() {
            Some(size) => Some(*size),
            None => store.vector_size(self.model.clone()).await.map_err(|error| store_failure(&error))?,
        };
        let expected = stored.unwrap_or(first);
        if first == 0 || first != expected || sizes.any(|size| size != expected) {
            let cause = format!("the model {} answers vectors of {first} numbers or of several sizes; {expected} are expected", self.model);
            let failure = Failure::new(ToolErrorType::Retryable, "bad_response", "The embedding model gives vectors of another size.");
            return Err(failure.because(cause));
        }
        self.size.get_or_init(|| expected);
        Ok(())
    }

    /// Renews the claims for as long as the future is polled.
    async fn renew_claims(&self, store: &dyn Knowledge) -> Infallible {
        let Some(ttl) = store.claim_ttl() else { return std::future::pending().await };
        loop {
            tokio::time::sleep(ttl / 3).await;
            if let Err(error) = store.renew_claims(self.owner).await {
                tracing::warn!(%error, "the claim to a batch could not be renewed; another server may embed it too");
            }
        }
    }
}

/// The vectors of a batch. A refused batch is split in halves until the refused text is alone.
async fn vectors(models: &dyn Models, batch: &[UnembeddedChunk]) -> Result<Vec<NewVector>, Failure> {
    let mut found = Vec::with_capacity(batch.len());
    let mut left = vec![batch];
    while let Some(part) = left.pop() {
        let texts = part.iter().map(embedded_text).collect();
        match models.embed(texts, Deadline::after(BATCH_TIMEOUT)).await {
            Ok(vectors) => {
                found.extend(part.iter().zip(vectors).map(|(chunk, vector)| NewVector { number: chunk.number, vector: Some(vector) }));
            }
            Err(Failure { upstream_status: Some(400 | 413 | 422), cause, .. }) => match part {
                [only] => {
                    tracing::error!(chunk = only.number, cause, "the model refuses a text; only its words are searchable");
                    found.push(NewVector { number: only.number, vector: None });
                }
                several => {
                    let (one, other) = several.split_at(several.len() / 2);
                    left.extend([other, one]);
                }
            },
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

fn embedded_text(chunk: &UnembeddedChunk) -> String {
    Chunk::indexed(&chunk.title, &chunk.heading, &chunk.content).chars().take(MAX_CHARS).collect()
}

/// A store error is retried like a failure of the model.
fn store_failure(error: &StoreError) -> Failure {
    Failure::new(ToolErrorType::Retryable, DATABASE_UNAVAILABLE, "The knowledge base cannot be reached.").because(error.to_string())
}
