//! The knowledge base that the API, the command line and the tool share: it adds documents and searches chunks.

use std::sync::Arc;

use crate::{
    Added, CollectionLanguages, CollectionRow, DEFAULT_COLLECTION, Grantee, Knowledge, Library, NewDocuments, SearchQuery, SearchResult,
};
use werkruf_contract::{Clock, Models, Uuid};
use werkruf_store::StoreError;

use super::answerable::is_answerable;
use super::background::compute;
use super::deletion::Deletions;
use super::document::Document;
use super::embedder::Embedder;

/// The memory limit of all indexes together.
const MOST_BYTES: usize = 1 << 30;

/// The documents of all tenants, and the search over them.
pub struct KnowledgeBase {
    library: Library,
    embedder: Option<Arc<Embedder>>,
    clock: Clock,
    /// Whether `ask_gpt` is there to be offered when nothing is found.
    offers_ask_gpt: bool,
    deletions: Deletions,
}

/// What a search compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    /// Words and vectors.
    #[default]
    Hybrid,
    /// Words only.
    Lexical,
}

/// A search request.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    /// Who searches.
    pub grantee: Grantee,
    /// The user of the usage row for the query's vector.
    pub user_id: String,
    /// `None` in place of a name is the default collection.
    pub collections: Vec<Option<String>>,
    pub query: String,
    pub top_k: usize,
    pub mode: SearchMode,
    /// Model access of the turn that searches; `None` outside a turn.
    pub models: Option<Arc<dyn Models>>,
}

/// The result of a search, and how it was searched.
#[derive(Debug, Clone, Default)]
pub struct SearchAnswer {
    pub found: SearchResult,
    /// Whether none of the hits is evidence for an answer.
    pub nothing_found: bool,
    pub mode: SearchMode,
    pub embedding_model: Option<String>,
    /// Why the search did less than requested.
    pub degraded: Option<&'static str>,
}

impl KnowledgeBase {
    /// A knowledge base over this store. Without an embedder only words are searched.
    pub fn new(store: Arc<dyn Knowledge>, embedder: Option<Arc<Embedder>>, clock: Clock) -> Self {
        let model = embedder.as_ref().map(|embedder| embedder.model().to_owned());
        Self { library: Library::new(store, model, MOST_BYTES), embedder, clock, offers_ask_gpt: false, deletions: Deletions::default() }
    }

    /// Offers `ask_gpt` when nothing is found. Only for a server that has this tool.
    #[must_use]
    pub fn offering_ask_gpt(self, offers_ask_gpt: bool) -> Self {
        Self { offers_ask_gpt, ..self }
    }

    pub(super) const fn offers_ask_gpt(&self) -> bool {
        self.offers_ask_gpt
    }

    /// The store with the rows.
    pub fn store(&self) -> &dyn Knowledge {
        self.library.store().as_ref()
    }

    /// The indexes.
    pub const fn library(&self) -> &Library {
        &self.library
    }

    /// The embedding model, if one is configured.
    pub const fn embedder(&self) -> Option<&Arc<Embedder>> {
        self.embedder.as_ref()
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Adds documents in one transaction. They are searchable by words when the call returns. It waits while searches need the processors.
    pub async fn add(&self, tenant_id: Uuid, collection: Option<String>, documents: Vec<Document>) -> Result<(Added, String), StoreError> {
        self.library.pace.write(self.add_now(tenant_id, collection, documents)).await
    }

    async fn add_now(&self, tenant_id: Uuid, collection: Option<String>, documents: Vec<Document>) -> Result<(Added, String), StoreError> {
        let clock = self.clock.clone();
        // Splitting a few megabytes takes a while, so it does not run on a thread that serves requests.
        let documents = compute(move || documents.into_iter().map(|document| document.cut(&clock)).collect()).await?;
        let ingestion_run_id = format!("ingest_{}", self.clock.new_id());
        let collection = named(collection);
        let batch = NewDocuments {
            tenant_id,
            collection: collection.clone(),
            ingestion_run_id: ingestion_run_id.clone(),
            documents,
            now: self.clock.now(),
        };
        let added = self.library.write(tenant_id, &collection, self.store().add_documents(batch)).await?;
        if let Some(embedder) = self.embedder.as_ref().filter(|_| added.chunks > 0) {
            embedder.wake();
        }
        Ok((added, ingestion_run_id))
    }

    /// Deletes a document; false if it does not exist. It cannot be found any more when the call returns, and no file of the database
    /// contains its text unless [`Self::keeps_deleted_text`].
    pub async fn delete(&self, tenant_id: Uuid, collection: Option<String>, document_id: String) -> Result<bool, StoreError> {
        let collection = named(collection);
        let deleting = self.store().delete_document(tenant_id, collection.clone(), document_id);
        let removed = self.library.write(tenant_id, &collection, deleting).await?;
        if removed {
            self.deletions.purge(self.store()).await;
        }
        Ok(removed)
    }

    /// Whether a file of the database still contains the text of a deleted document, because a reader prevents its removal.
    pub fn keeps_deleted_text(&self) -> bool {
        self.deletions.is_pending()
    }

    /// Removes the text of deletions that had to wait. Never returns; the caller drops the future to stop it.
    pub async fn purge_in_background(&self) {
        self.deletions.run(self.store()).await;
    }

    /// A collection, its languages, and the weight of its vectors in a search.
    pub async fn collection(&self, grantee: Grantee, name: &str) -> Result<Option<(CollectionRow, CollectionLanguages, f32)>, StoreError> {
        let model = self.embedder.as_ref().map(|embedder| embedder.model().to_owned());
        let Some(row) = self.store().collection(grantee, name.to_owned(), model).await? else { return Ok(None) };
        let languages = CollectionLanguages::of(&row.languages);
        let alpha = self.embedder.as_ref().filter(|_| row.embedded > 0).map_or(0.0, |embedder| languages.alpha(embedder.languages()));
        Ok(Some((row, languages, alpha)))
    }

    /// Searches each collection, with one vector of the query. If the embedder does not answer in time, the search uses words only.
    pub async fn search(&self, request: SearchRequest) -> Result<Vec<SearchAnswer>, StoreError> {
        self.library.pace.note_search();
        let SearchRequest { grantee, user_id, collections, query, top_k, mode, models } = request;
        let embedder = self.embedder.as_ref().filter(|_| mode == SearchMode::Hybrid);
        let tenant_id = grantee.tenant_id();
        let mut search = SearchQuery { grantee, text: query, top: top_k, ..SearchQuery::default() };
        let mut degraded = None;
        if let Some(embedder) = embedder {
            let models = models.unwrap_or_else(|| embedder.models_for(tenant_id, &user_id));
            match embedder.query_vector(&search.text, &*models).await {
                Some(vector) => search.vector = Some(vector),
                None => degraded = Some("embedder_unavailable"),
            }
            search.model_languages = embedder.languages().to_vec();
        }
        let mut answers = Vec::with_capacity(collections.len());
        for collection in collections {
            let search = SearchQuery { collection: named(collection), ..search.clone() };
            answers.push(self.search_collection(search, embedder, degraded).await?);
        }
        Ok(answers)
    }

    async fn search_collection(
        &self,
        search: SearchQuery,
        embedder: Option<&Arc<Embedder>>,
        mut degraded: Option<&'static str>,
    ) -> Result<SearchAnswer, StoreError> {
        let found = self.library.search(search).await?;
        if found.wrong_size {
            tracing::warn!("the vector of the query has another size than the stored ones of the model; the search uses words only");
            degraded = Some("embedder_unavailable");
        }
        // A model that answers queries may still fail for the chunks, which then have no vectors to compare with.
        if found.alpha == 0.0 && embedder.is_some_and(|embedder| embedder.is_failing()) {
            degraded = Some("embedder_unavailable");
        }
        if found.building {
            degraded = Some("index_building");
        }
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
