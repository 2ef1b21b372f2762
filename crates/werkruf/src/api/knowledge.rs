//! The knowledge of a tenant: adds documents, lists and deletes them, and searches their chunks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use werkruf_contract::Uuid;
use werkruf_knowledge::{DEFAULT_COLLECTION, Document, DocumentRow, SearchMode, SearchRequest, Trust};

use super::body::{self, Params, PathParam};
use super::error::ApiError;
use super::knowledge_rights::{check_missing, check_write, grantee};
use super::policy::{Authenticated, Policy};
use super::view::Iso;
use super::{ApiState, page};
use crate::routing::{self, ApiRouter, IntoParams, ToSchema, routes};

pub(super) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
pub(super) const MAX_DOCUMENTS: usize = 1_000;
pub(super) const MAX_NAME_BYTES: usize = 512;
/// The most bytes of a document's metadata: lists show them, up to a thousand documents at once.
const MAX_METADATA_BYTES: usize = 16 * 1024;
const MAX_QUERY_BYTES: usize = 16 * 1024;
const MAX_RESULTS: usize = 100;
const DEFAULT_RESULTS: usize = 10;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default()
        .routes(Policy::WriteDocuments.on(routes!(add)))
        .routes(Policy::ReadTools.on(routes!(list)))
        .routes(Policy::ReadTools.on(routes!(show)))
        .routes(Policy::WriteDocuments.on(routes!(delete)))
        .routes(Policy::ReadTools.on(routes!(collections)))
        .routes(Policy::ReadTools.on(routes!(collection)))
        .routes(Policy::ReadTools.on(routes!(search)))
}

/// One document, or several.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only for the OpenAPI schema; the body is parsed by hand, because it may be one document or several")]
struct NewDocuments {
    collection: Option<String>,
    /// `{id?, title, text, language?, metadata?}`; at most 1,000.
    documents: Option<Vec<serde_json::Map<String, Value>>>,
    /// The id of a single document.
    id: Option<String>,
    title: Option<String>,
    text: Option<String>,
    language: Option<String>,
    metadata: Option<serde_json::Map<String, Value>>,
}

/// What was added.
#[derive(Serialize, ToSchema)]
struct AddedDocuments {
    /// Number of new documents.
    accepted: u64,
    replaced: u64,
    unchanged: u64,
    /// Number of chunks written.
    chunks: u64,
    ingestion_run_id: String,
}

/// Selects a collection; `default` by default.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CollectionQuery {
    collection: Option<String>,
}

/// Selects a page of a collection; `default` by default.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DocumentPage {
    collection: Option<String>,
    /// The last id of the page before.
    after: Option<String>,
    /// 1 to 1000; 100 by default.
    #[param(value_type = Option<u32>)]
    limit: Option<String>,
}

/// A document without its text.
#[derive(Serialize, ToSchema)]
struct DocumentView {
    id: String,
    collection: String,
    title: String,
    language: Option<String>,
    metadata: Value,
    digest: String,
    /// Starts at 1 and grows with every replacement.
    version: i64,
    chunks: i64,
    ingestion_run_id: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Iso,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Iso,
    /// The chunks in order. Only in the response for a single document.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<ChunkView>>,
}

#[derive(Serialize, ToSchema)]
struct ChunkView {
    id: Uuid,
    heading: String,
    content: String,
}

#[derive(Serialize, ToSchema)]
struct DocumentList {
    documents: Vec<DocumentView>,
    next_after: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct CollectionList {
    collections: Vec<String>,
    next_after: Option<String>,
}

/// A collection and the progress of its vectors.
#[derive(Serialize, ToSchema)]
struct CollectionView {
    name: String,
    documents: i64,
    chunks: i64,
    embedded: i64,
    pending: i64,
    failed: i64,
    languages: Vec<String>,
    embedding_model: Option<String>,
    alpha: f64,
}

#[derive(Deserialize, ToSchema)]
struct Search {
    query: String,
    #[serde(default)]
    top_k: Option<i64>,
    #[serde(default)]
    collection: Option<String>,
    /// `hybrid` or `lexical`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    mode: Option<SearchMode>,
}

#[derive(Serialize, ToSchema)]
struct Results {
    results: Vec<ResultView>,
    /// Whether none of the results is evidence for an answer.
    nothing_found: bool,
    routing: Routing,
}

#[derive(Serialize, ToSchema)]
struct Routing {
    #[schema(value_type = String)]
    mode: SearchMode,
    embedding_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'static str>,
    /// Whether the texts of the collection are untrusted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    untrusted: bool,
}

/// A chunk with its scores.
#[derive(Serialize, ToSchema)]
struct ResultView {
    id: Uuid,
    document_id: String,
    title: String,
    heading: String,
    content: String,
    score: f32,
    bm25: f32,
    similarity: Option<f32>,
    rank_bm25: Option<u32>,
    rank_vector: Option<u32>,
}

/// Adds documents. A document with an existing id replaces the old one; unchanged documents are skipped. Lexical search finds them
/// at once, vector search after their vectors are computed.
#[routing::path(post, path = "/api/knowledge/documents", operation_id = "knowledge_add", tag = "knowledge", request_body = NewDocuments,
    responses((status = 200, body = AddedDocuments), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn add(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    body: body::RequestBody,
) -> Result<Json<AddedDocuments>, ApiError> {
    let raw = body::bytes_up_to(body, MAX_BODY_BYTES).await?;
    let mut shape: Shape = body::parse_long(raw.clone(), |raw| body::json(raw)).await?;
    shape.collection = identity.collection_for(shape.collection)?;
    check_write(&api, &identity, shape.collection.as_deref().unwrap_or(DEFAULT_COLLECTION)).await?;
    let (collection, documents) = body::parse_long(raw.clone(), |raw| read(raw, shape)).await?;
    let (app, tenant_id, held) = (Arc::clone(&api.app), identity.tenant_id, raw.held());
    let adding = api.run_detached(async move {
        let _held = held;
        app.knowledge.add(tenant_id, collection, documents).await
    });
    let (added, ingestion_run_id) = adding.await??;
    Ok(Json(AddedDocuments {
        accepted: added.accepted,
        replaced: added.replaced,
        unchanged: added.unchanged,
        chunks: added.chunks,
        ingestion_run_id,
    }))
}

/// What must be known of a body before its documents are read: nothing of them is kept.
#[derive(Deserialize)]
pub(super) struct Shape {
    collection: Option<String>,
    documents: Option<IgnoredAny>,
}

pub(super) fn read(raw: &body::RawBody, shape: Shape) -> Result<(Option<String>, Vec<Document>), ApiError> {
    #[derive(Deserialize)]
    struct Many {
        documents: Vec<Document>,
    }
    let Shape { collection, documents } = shape;
    let documents = if documents.is_some() { body::json_with_values::<Many>(raw)?.documents } else { vec![body::json_with_values(raw)?] };
    if documents.len() > MAX_DOCUMENTS {
        return Err(ApiError::invalid(format!("There are more than {MAX_DOCUMENTS} documents; send them in several requests.")));
    }
    let mut names = collection.iter().chain(documents.iter().filter_map(|document| document.id.as_ref()));
    if names.any(|name| name.len() > MAX_NAME_BYTES || name.contains('\0')) {
        return Err(ApiError::invalid(format!("A collection and an id have at most {MAX_NAME_BYTES} bytes; shorten it.")));
    }
    if documents.iter().any(|document| json!(document.metadata).to_string().len() > MAX_METADATA_BYTES) {
        return Err(ApiError::invalid(format!("The metadata of a document have at most {MAX_METADATA_BYTES} bytes; shorten them.")));
    }
    Ok((collection, documents))
}

/// Lists documents by id, without their text.
#[routing::path(get, path = "/api/knowledge/documents", operation_id = "knowledge_list", tag = "knowledge", params(DocumentPage),
    responses((status = 200, body = DocumentList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn list(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    Params(query): Params<DocumentPage>,
) -> Result<Json<DocumentList>, ApiError> {
    let limit = page::limit(query.limit.as_deref())?;
    let (grantee, collection) = (grantee(&identity), collection_or_default(identity.collection_for(query.collection)?));
    let rows = api.app.database.knowledge().documents(grantee.clone(), collection.clone(), query.after, limit).await?;
    if rows.is_empty() && api.app.database.knowledge().newest_change(grantee.clone(), collection.clone()).await?.is_none() {
        check_missing(&api, &grantee, &collection).await?;
    }
    let before = rows.iter().scan(0, |bytes, row| Some(std::mem::replace(bytes, *bytes + row.metadata.len())));
    let shown = before.take_while(|bytes| *bytes < page::MAX_BYTES).count();
    let more = shown < rows.len() || rows.len() >= limit as usize;
    let next_after = rows[..shown].last().filter(|_| more).map(|row| row.document_id.clone());
    Ok(Json(DocumentList { documents: rows.into_iter().take(shown).map(view).collect(), next_after }))
}

/// One document with its chunks.
#[routing::path(get, path = "/api/knowledge/documents/{id}", operation_id = "knowledge_show", tag = "knowledge",
    params(("id" = String, Path, description = "The id given when the document was added."), CollectionQuery),
    responses((status = 200, body = DocumentView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn show(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    PathParam(id): PathParam,
    Params(query): Params<CollectionQuery>,
) -> Result<Json<DocumentView>, ApiError> {
    let (grantee, collection) = (grantee(&identity), collection_or_default(identity.collection_for(query.collection)?));
    let row = api.app.database.knowledge().document(grantee.clone(), collection.clone(), id.clone()).await?;
    let row = row.ok_or_else(|| ApiError::not_found("document"))?;
    let chunks = api.app.database.knowledge().document_chunks(grantee, collection, id).await?;
    let content = chunks.into_iter().map(|chunk| ChunkView { id: chunk.id, heading: chunk.heading, content: chunk.content }).collect();
    Ok(Json(DocumentView { content: Some(content), ..view(row) }))
}

/// Deletes a document with its chunks and vectors.
#[routing::path(delete, path = "/api/knowledge/documents/{id}", operation_id = "knowledge_delete", tag = "knowledge",
    params(("id" = String, Path, description = "The id given when the document was added."), CollectionQuery),
    responses((status = 204), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn delete(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    PathParam(id): PathParam,
    Params(query): Params<CollectionQuery>,
) -> Result<StatusCode, ApiError> {
    let collection = collection_or_default(identity.collection_for(query.collection)?);
    check_write(&api, &identity, &collection).await?;
    let (app, tenant_id) = (Arc::clone(&api.app), identity.tenant_id);
    let removed = api.run_detached(async move { app.knowledge.delete(tenant_id, Some(collection), id).await }).await??;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("document")) }
}

/// The names of the collections that the caller may read.
#[routing::path(get, path = "/api/knowledge/collections", operation_id = "knowledge_collections", tag = "knowledge",
    responses((status = 200, body = CollectionList), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn collections(State(api): State<Arc<ApiState>>, Authenticated(identity): Authenticated) -> Result<Json<CollectionList>, ApiError> {
    let mut collections = api.app.database.knowledge().collections(grantee(&identity)).await?;
    collections.retain(|name| identity.collection_for(Some(name.clone())).is_ok());
    Ok(Json(CollectionList { collections, next_after: None }))
}

/// One collection and the progress of its vectors.
#[routing::path(get, path = "/api/knowledge/collections/{name}", operation_id = "knowledge_collection", tag = "knowledge",
    params(("name" = String, Path)),
    responses((status = 200, body = CollectionView), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn collection(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    PathParam(name): PathParam,
) -> Result<Json<CollectionView>, ApiError> {
    identity.collection_for(Some(name.clone()))?;
    let found = api.app.knowledge.collection(grantee(&identity), &name).await?;
    let (row, languages, alpha) = found.ok_or_else(|| ApiError::not_found("collection"))?;
    let embedder = api.app.knowledge.embedder();
    Ok(Json(CollectionView {
        name,
        documents: row.documents,
        chunks: row.chunks,
        embedded: row.embedded,
        pending: if embedder.is_some() { row.chunks - row.embedded - row.failed } else { 0 },
        failed: row.failed,
        languages: languages.codes().to_vec(),
        embedding_model: embedder.map(|embedder| embedder.model().to_owned()),
        alpha: (f64::from(alpha) * 10.0).round() / 10.0,
    }))
}

/// Searches one collection. Every candidate is returned with all its scores.
#[routing::path(post, path = "/api/knowledge/search", operation_id = "knowledge_search", tag = "knowledge", request_body = Search,
    responses((status = 200, body = Results), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn search(
    State(api): State<Arc<ApiState>>,
    Authenticated(identity): Authenticated,
    body: body::RequestBody,
) -> Result<Json<Results>, ApiError> {
    let raw = body::bytes(body).await?;
    let Search { query, top_k, collection, mode } = body::json(&raw)?;
    if query.trim().is_empty() || query.len() > MAX_QUERY_BYTES {
        return Err(ApiError::invalid("The query is empty or longer than 16 KiB; send a shorter one."));
    }
    let top_k = top_k.map_or(DEFAULT_RESULTS, |top_k| usize::try_from(top_k).unwrap_or(1).clamp(1, MAX_RESULTS));
    let user_id = identity.principal.as_ref().map(|person| person.user_id.clone()).unwrap_or_default();
    let (grantee, mode) = (grantee(&identity), mode.unwrap_or_default());
    let collection = collection_or_default(identity.collection_for(collection)?);
    let searched = Some(collection.clone());
    let request = SearchRequest { grantee: grantee.clone(), user_id, collections: vec![searched], query, top_k, mode, models: None };
    let answer = api.app.knowledge.search(request).await?.pop().unwrap_or_default();
    if !answer.found.exists {
        check_missing(&api, &grantee, &collection).await?;
    }
    let untrusted = answer.found.trust == Trust::Untrusted;
    let results = answer.found.hits.into_iter().map(|(row, hit)| ResultView {
        id: row.id,
        document_id: row.document_id,
        title: row.title,
        heading: row.heading,
        content: row.content,
        score: hit.score,
        bm25: hit.bm25,
        similarity: hit.similarity,
        rank_bm25: hit.rank_bm25,
        rank_vector: hit.rank_vector,
    });
    let routing = Routing { mode: answer.mode, embedding_model: answer.embedding_model, degraded: answer.degraded, untrusted };
    Ok(Json(Results { results: results.collect(), nothing_found: answer.nothing_found, routing }))
}

fn collection_or_default(collection: Option<String>) -> String {
    collection.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_COLLECTION.to_owned())
}

fn view(row: DocumentRow) -> DocumentView {
    DocumentView {
        id: row.document_id,
        collection: row.collection,
        title: row.title,
        language: row.language,
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
        digest: row.digest,
        version: row.version,
        chunks: row.chunks,
        ingestion_run_id: row.ingestion_run_id,
        created_at: Iso(row.created_at),
        updated_at: Iso(row.updated_at),
        content: None,
    }
}
