//! What the API, the command line and the tool share: documents in, chunks out.

use std::sync::Arc;

use werkruf_contract::{Clock, Uuid};
use werkruf_store::StoreError;
use werkruf_store::knowledge::{
    Added, CollectionLanguages, CollectionRow, DEFAULT_COLLECTION, Knowledge, Library, NewDocuments, SearchQuery, SearchResult, UsageOwner,
};

use super::answerable::is_answerable;
use super::document::Document;
use super::embedder::Embedder;

/// What all indexes together may take of memory.
const MOST_BYTES: usize = 1 << 30;

/// Documents and how they are found.
pub struct KnowledgeBase {
    library: Library,
    embedder: Option<Arc<Embedder>>,
    clock: Clock,
}

/// How to search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// Texts and meaning.
    #[default]
    Hybrid,
    /// Texts alone.
    Lexical,
}

/// A question.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub tenant_id: Uuid,
    /// Who is billed for the question's vector.
    pub user_id: String,
    pub collection: Option<String>,
    pub query: String,
    pub top_k: usize,
    pub mode: SearchMode,
}

/// What was found, and how.
#[derive(Debug, Clone, Default)]
pub struct SearchAnswer {
    pub found: SearchResult,
    /// Whether nothing found is evidence of an answer.
    pub nothing_found: bool,
    pub mode: SearchMode,
    pub embedding_model: Option<String>,
    /// Why it was less than what was asked for.
    pub degraded: Option<&'static str>,
}

impl KnowledgeBase {
    /// Over these rows; without an embedder words alone are searched.
    pub fn new(store: Arc<dyn Knowledge>, embedder: Option<Arc<Embedder>>, clock: Clock) -> Self {
        Self { library: Library::new(store, MOST_BYTES), embedder, clock }
    }

    /// The rows.
    pub fn store(&self) -> &dyn Knowledge {
        self.library.store().as_ref()
    }

    /// The model for vectors, where there is one.
    pub const fn embedder(&self) -> Option<&Arc<Embedder>> {
        self.embedder.as_ref()
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes documents in, in one commit: searchable by words when it returns.
    pub async fn add(&self, tenant_id: Uuid, collection: Option<String>, documents: Vec<Document>) -> Result<(Added, String), StoreError> {
        let clock = self.clock.clone();
        // Cutting a few megabytes takes a while: not on a thread that serves requests.
        let cutting = tokio::task::spawn_blocking(move || documents.into_iter().map(|document| document.cut(&clock)).collect());
        let documents = cutting.await.map_err(|error| StoreError::Broken(format!("cutting documents did not end: {error}")))?;
        let ingestion_run_id = format!("ingest_{}", self.clock.new_id());
        let batch = NewDocuments {
            tenant_id,
            collection: named(collection),
            ingestion_run_id: ingestion_run_id.clone(),
            documents,
            now: self.clock.now(),
        };
        let added = self.store().add_documents(batch).await?;
        if let Some(embedder) = self.embedder.as_ref().filter(|_| added.chunks > 0) {
            embedder.wake();
        }
        Ok((added, ingestion_run_id))
    }

    /// A collection, its languages, and the weight its vectors have.
    pub async fn collection(&self, tenant_id: Uuid, name: &str) -> Result<Option<(CollectionRow, CollectionLanguages, f32)>, StoreError> {
        let model = self.embedder.as_ref().map(|embedder| embedder.model().to_owned());
        let Some(row) = self.store().collection(tenant_id, name.to_owned(), model).await? else { return Ok(None) };
        let spoken = CollectionLanguages::of(&row.languages);
        let alpha = self.embedder.as_ref().filter(|_| row.embedded > 0).map_or(0.0, |embedder| spoken.alpha(embedder.languages()));
        Ok(Some((row, spoken, alpha)))
    }

    /// Searches. An embedder that does not answer in time costs the vectors, not the answer.
    pub async fn search(&self, request: SearchRequest) -> Result<SearchAnswer, StoreError> {
        let SearchRequest { tenant_id, user_id, collection, query, top_k, mode } = request;
        let embedder = self.embedder.as_ref().filter(|_| mode == SearchMode::Hybrid);
        let mut asked = SearchQuery { tenant_id, collection: named(collection), text: query, top: top_k, ..SearchQuery::default() };
        let mut degraded = None;
        if let Some(embedder) = embedder {
            let who = UsageOwner { tenant_id, user_id, ..UsageOwner::default() };
            match embedder.question(&asked.text, who, self.store()).await {
                Some(vector) => asked.vector = Some((embedder.model().to_owned(), vector)),
                None => degraded = Some("embedder_unavailable"),
            }
            asked.model_languages = embedder.languages().to_vec();
        }
        let found = self.library.search(asked).await?;
        let model = embedder.map(|embedder| embedder.model());
        let nothing_found = !found.hits.iter().any(|(_, hit)| is_answerable(hit, model, found.knows_language()));
        let mode = if found.alpha > 0.0 { SearchMode::Hybrid } else { SearchMode::Lexical };
        let embedding_model = self.embedder.as_ref().map(|embedder| embedder.model().to_owned());
        Ok(SearchAnswer { found, nothing_found, mode, embedding_model, degraded })
    }
}

fn named(collection: Option<String>) -> String {
    collection.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_COLLECTION.to_owned())
}
