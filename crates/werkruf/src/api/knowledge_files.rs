//! Adds files to the knowledge of a tenant: each file becomes text in a process of its own, and then a document.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{iter, once};
use http::{HeaderMap, StatusCode, header};
use multer::{Multipart, parse_boundary};
use serde::Serialize;
use serde_json::{Map, json};
use werkruf_contract::Uuid;
use werkruf_knowledge::{DEFAULT_COLLECTION, Document};

use super::ApiState;
use super::body;
use super::error::ApiError;
use super::knowledge::{MAX_BODY_BYTES, MAX_NAME_BYTES};
use super::knowledge_rights::check_write;
use super::policy::{ApiCaller, Policy};
use crate::app::App;
use crate::reader::{Reader, ReaderError};
use crate::routing::{self, ApiRouter, ToSchema, routes};

const MAX_FILES: usize = 100;
/// How many files of one request are read at once.
const AT_ONCE: usize = 2;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::WriteDocuments.on(routes!(add_files)))
}

/// Files, and where they belong.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only for the OpenAPI schema; the body is multipart")]
struct NewFiles {
    /// `default` by default.
    collection: Option<String>,
    /// The language of all files, such as `de`; guessed without it.
    language: Option<String>,
    /// Files with their names; at most 100, and 16 MiB together. txt, md, html, pdf, docx, xlsx and csv are read.
    #[schema(value_type = Vec<String>, format = Binary)]
    file: Vec<Bytes>,
}

/// What became of each file.
#[derive(Serialize, ToSchema)]
struct AddedFiles {
    files: Vec<AddedFile>,
}

#[derive(Serialize, ToSchema)]
struct AddedFile {
    name: String,
    status: FileStatus,
    /// The id of the document, which is the name of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    document_id: Option<String>,
    /// Why the file failed, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FileStatus {
    /// A new document.
    Accepted,
    Replaced,
    Unchanged,
    Failed,
}

/// A request that was read.
#[derive(Default)]
pub(super) struct Upload {
    collection: Option<String>,
    language: Option<String>,
    pub(super) files: Vec<(String, Bytes)>,
}

/// Adds files. Each becomes a document whose id is the name of the file. A file that cannot be read does not affect the others.
#[routing::path(post, path = "/api/knowledge/files", operation_id = "knowledge_add_files", tag = "knowledge",
    request_body(content = NewFiles, content_type = "multipart/form-data"),
    responses((status = 200, body = AddedFiles), (status = "4XX", body = ref("#/components/schemas/Error")),
        (status = "5XX", body = ref("#/components/schemas/Error"))))]
async fn add_files(
    ApiCaller { api, identity }: ApiCaller,
    headers: HeaderMap,
    body: body::RequestBody,
) -> Result<Json<AddedFiles>, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = parse_boundary(content_type).map_err(|_| ApiError::invalid("Send the files as multipart/form-data."))?;
    let raw = body::bytes_up_to(body, MAX_BODY_BYTES).await?;
    let mut upload = read(raw.bytes(), boundary).await?;
    upload.collection = identity.collection_for(upload.collection)?;
    // Before a place is taken: whoever may not write must not keep others from it.
    check_write(&api, &identity, upload.collection.as_deref().unwrap_or(DEFAULT_COLLECTION)).await?;
    let Some(place) = api.app.reader.accept_upload() else {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_busy", "Other uploads are being read; try again in a moment.")
            .retry_after_ms(2_000));
    };
    if upload.files.iter().any(|(name, _)| Reader::converts(name)) {
        api.app.reader.check().await?;
    }
    let (app, tenant_id, held) = (Arc::clone(&api.app), identity.tenant_id, raw.held());
    let adding = api.run_detached(async move {
        let _kept = (place, held);
        add_all(&app, tenant_id, upload).await
    });
    let files = adding.await??;
    Ok(Json(AddedFiles { files }))
}

pub(super) async fn read(raw: Bytes, boundary: String) -> Result<Upload, ApiError> {
    let invalid = |error: multer::Error| ApiError::invalid(format!("The body is not valid multipart/form-data: {error}."));
    let mut parts = Multipart::new(once(async { Ok::<_, Infallible>(raw) }), boundary);
    let mut upload = Upload::default();
    while let Some(part) = parts.next_field().await.map_err(invalid)? {
        let (field, name) = (part.name().unwrap_or_default().to_owned(), part.file_name().map(str::to_owned));
        let content = part.bytes().await.map_err(invalid)?;
        match (name, field.as_str()) {
            (Some(name), _) => upload.files.push((name, content)),
            (None, "collection") => upload.collection = Some(text(&content)?).filter(|name| !name.is_empty()),
            (None, "language") => upload.language = Some(text(&content)?).filter(|code| !code.is_empty()),
            (None, _) => return Err(ApiError::invalid(format!("`{field}` is neither a file, nor collection, nor language."))),
        }
        if upload.files.len() > MAX_FILES {
            return Err(ApiError::invalid(format!("There are more than {MAX_FILES} files; send them in several requests.")));
        }
    }
    if upload.files.is_empty() {
        return Err(ApiError::invalid("There is no file in the body; give each file its name."));
    }
    Ok(upload)
}

fn text(content: &[u8]) -> Result<String, ApiError> {
    let text = std::str::from_utf8(content).ok().filter(|text| text.len() <= MAX_NAME_BYTES && !text.contains('\0'));
    text.map(|text| text.trim().to_owned())
        .ok_or_else(|| ApiError::invalid(format!("A collection and a language have at most {MAX_NAME_BYTES} bytes; shorten it.")))
}

/// Adds each file as soon as it is read, so that only a few texts are in memory at once.
async fn add_all(app: &App, tenant_id: Uuid, upload: Upload) -> Result<Vec<AddedFile>, ApiError> {
    let Upload { collection, language, files } = upload;
    let mut names = HashSet::new();
    let files: Vec<(String, Bytes, bool)> = files
        .into_iter()
        .map(|(name, content)| {
            let is_new = names.insert(name.clone());
            (name, content, is_new)
        })
        .collect();
    let mut read = iter(files)
        .map(|(name, content, is_new)| async move {
            let document = document(app, &name, &content, is_new).await;
            (name, document)
        })
        .buffered(AT_ONCE);
    let mut added = Vec::new();
    while let Some((name, document)) = read.next().await {
        let file = match document {
            Ok(document) => {
                let document = Document { language: language.clone(), ..document };
                let (counts, _) = app.knowledge.add(tenant_id, collection.clone(), vec![document]).await?;
                let status = match (counts.accepted, counts.replaced) {
                    (0, 0) => FileStatus::Unchanged,
                    (0, _) => FileStatus::Replaced,
                    _ => FileStatus::Accepted,
                };
                AddedFile { document_id: Some(name.clone()), name, status, reason: None }
            }
            Err(ReaderError::Unreadable(reason)) => AddedFile { name, status: FileStatus::Failed, document_id: None, reason: Some(reason) },
            Err(error) => return Err(error.into()),
        };
        added.push(file);
    }
    Ok(added)
}

async fn document(app: &App, name: &str, content: &[u8], is_new: bool) -> Result<Document, ReaderError> {
    if name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(ReaderError::Unreadable(format!("a name has 1 to {MAX_NAME_BYTES} bytes; rename it")));
    }
    if !is_new {
        return Err(ReaderError::Unreadable("another file of this request has the same name; rename it".to_owned()));
    }
    let file = app.reader.read(name, content).await?;
    let metadata = Map::from_iter([("path".to_owned(), json!(name))]);
    Ok(Document { id: Some(name.to_owned()), title: file.title, text: file.text, language: None, metadata })
}

impl From<ReaderError> for ApiError {
    fn from(error: ReaderError) -> Self {
        // A file that cannot be read is part of a response; the other errors are the installation's.
        let status = match error {
            ReaderError::Unreadable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ReaderError::Missing { .. } | ReaderError::Sandbox(_) => StatusCode::NOT_IMPLEMENTED,
        };
        Self::new(status, error.code(), format!("The file cannot be read: {error}."))
    }
}
