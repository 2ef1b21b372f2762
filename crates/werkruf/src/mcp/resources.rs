//! Resources: documents of the knowledge base and recorded calls, to read only, for whoever may read them on the other routes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::model::{
    CacheScope, ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use serde_json::json;
use werkruf_contract::Uuid;
use werkruf_knowledge::DocumentRow;
use werkruf_store::{CallFilter, ConversationFilter, ConversationRow, Order, Page};

use super::request::{McpRequest, protocol_error};
use crate::api::call_view::CallView;
use crate::api::knowledge_rights::grantee;
use crate::api::policy::Policy;
use crate::api::{ApiError, lookup, page};
use crate::identity::Visibility;

const SCHEME: &str = "werkruf://";
const JSON: &str = "application/json";
/// Resources on one page of the list.
const PAGE: u32 = 100;
/// What a segment of a URI shows as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a page of the list begins.
#[derive(Debug, PartialEq, Eq)]
enum Cursor {
    /// After this document of this collection, or at the first collection from this name on.
    Documents(String, Option<String>),
    /// After this conversation.
    Conversations(Option<Uuid>),
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let mut segments = text.split('/').map(decoded);
        match (segments.next()??.as_str(), segments.next(), segments.next()) {
            ("knowledge", Some(collection), None) => Some(Self::Documents(collection?, None)),
            ("knowledge", Some(collection), Some(document)) => Some(Self::Documents(collection?, Some(document?))),
            ("conversations", None, None) => Some(Self::Conversations(None)),
            ("conversations", Some(id), None) => Some(Self::Conversations(Some(Uuid::parse_str(&id?).ok()?))),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Documents(collection, None) => format!("knowledge/{}", encoded(collection)),
            Self::Documents(collection, Some(document)) => format!("knowledge/{}/{}", encoded(collection), encoded(document)),
            Self::Conversations(None) => "conversations".to_owned(),
            Self::Conversations(Some(id)) => format!("conversations/{id}"),
        }
    }
}

fn encoded(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

fn decoded(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(Into::into)
}

fn reads_documents(request: &McpRequest) -> bool {
    request.api.app.config.modules.knowledge && Policy::ReadTools.check(&request.identity).is_ok()
}

/// `resources/list`: the documents that the caller may read, then the caller's conversations.
pub(super) async fn list(request: &McpRequest, cursor: Option<String>) -> Result<ListResourcesResult, ErrorData> {
    let cursor = match cursor {
        None => Cursor::Documents(String::new(), None),
        Some(text) => Cursor::parse(&text).ok_or_else(|| ErrorData::invalid_params("The cursor is not one of this list.", None))?,
    };
    let (resources, next) = match cursor {
        Cursor::Documents(collection, after) if reads_documents(request) => documents(request, collection, after).await,
        Cursor::Documents(..) => conversations(request, None).await,
        Cursor::Conversations(after) => conversations(request, after).await,
    }
    .map_err(|error| protocol_error(&error))?;
    let mut result = ListResourcesResult::with_all_items(resources).with_ttl_ms(0).with_cache_scope(CacheScope::Private);
    result.next_cursor = next.map(|cursor| cursor.text());
    Ok(result)
}

/// A page of documents. The page after the last document begins with the conversations.
async fn documents(request: &McpRequest, from: String, mut after: Option<String>) -> Result<(Vec<Resource>, Option<Cursor>), ApiError> {
    let (identity, knowledge) = (&request.identity, request.api.app.database.knowledge());
    let mut collections = knowledge.collections(grantee(identity)).await?;
    collections.retain(|name| name.as_str() >= from.as_str() && identity.collection_for(Some(name.clone())).is_ok());
    collections.sort_unstable();
    let mut resources = Vec::new();
    for collection in collections {
        let after = after.take().filter(|_| collection == from);
        let room = PAGE - u32::try_from(resources.len()).unwrap_or(PAGE);
        let rows = knowledge.documents(grantee(identity), collection.clone(), after, room).await?;
        let last = rows.last().map(|row| row.document_id.clone());
        resources.extend(rows.iter().map(document_resource));
        if resources.len() >= PAGE as usize {
            return Ok((resources, Some(Cursor::Documents(collection, last))));
        }
    }
    Ok((resources, reads_calls(request).then_some(Cursor::Conversations(None))))
}

fn document_uri(collection: &str, document: &str) -> String {
    format!("{SCHEME}knowledge/{}/{}", encoded(collection), encoded(document))
}

fn document_resource(row: &DocumentRow) -> Resource {
    let resource = Resource::new(document_uri(&row.collection, &row.document_id), row.document_id.clone());
    resource.with_title(row.title.clone()).with_mime_type("text/plain")
}

fn reads_calls(request: &McpRequest) -> bool {
    Policy::Read.check(&request.identity).is_ok()
}

async fn conversations(request: &McpRequest, after: Option<Uuid>) -> Result<(Vec<Resource>, Option<Cursor>), ApiError> {
    if !reads_calls(request) {
        return Ok((Vec::new(), None));
    }
    let identity = &request.identity;
    let filter = match identity.visibility()? {
        Visibility::All => ConversationFilter::default(),
        Visibility::Own(own) => ConversationFilter::of(own),
    };
    let page = Page { after, limit: PAGE, order: Order::NewestFirst, max_bytes: page::MAX_BYTES };
    let rows = request.api.app.records().conversations(identity.tenant_id, filter, page).await?;
    let next = page::next_after(&rows, &page, |row| row.id).map(|id| Cursor::Conversations(Some(id)));
    Ok((rows.iter().map(conversation_resource).collect(), next))
}

fn conversation_resource(row: &ConversationRow) -> Resource {
    let title = if row.title.is_empty() { "A conversation" } else { &row.title };
    Resource::new(format!("{SCHEME}conversations/{}/calls", row.id), format!("calls of {}", row.id))
        .with_title(title.to_owned())
        .with_description("The tool calls of this conversation.")
        .with_mime_type(JSON)
}

/// `resources/templates/list`.
pub(super) fn templates(request: &McpRequest) -> ListResourceTemplatesResult {
    let mut templates = Vec::new();
    if reads_documents(request) {
        let template = ResourceTemplate::new(format!("{SCHEME}knowledge/{{collection}}/{{document}}"), "document");
        templates.push(template.with_description("A document of the knowledge base.").with_mime_type("text/plain"));
    }
    if reads_calls(request) {
        let of_conversation = ResourceTemplate::new(format!("{SCHEME}conversations/{{id}}/calls{{?after}}"), "calls");
        templates.push(of_conversation.with_description("The tool calls of a conversation, oldest first.").with_mime_type(JSON));
        let one = ResourceTemplate::new(format!("{SCHEME}calls/{{job_id}}"), "call");
        templates.push(one.with_description("One tool call and its outcome.").with_mime_type(JSON));
    }
    ListResourceTemplatesResult::with_all_items(templates)
}

/// `resources/read`.
pub(super) async fn read(request: &McpRequest, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let found = read_text(request, uri).await;
    let (text, kind) = found.map_err(|error| match error.status().as_u16() {
        404 | 403 => ErrorData::resource_not_found("There is no such resource.", Some(json!({"uri": uri}))),
        _ => protocol_error(&error),
    })?;
    request.reserve_answer(&text)?;
    let result = ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(kind)]);
    Ok(result.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

async fn read_text(request: &McpRequest, uri: &str) -> Result<(String, &'static str), ApiError> {
    let unknown = || ApiError::not_found("resource");
    let (path, query) = uri.strip_prefix(SCHEME).map(|rest| rest.split_once('?').unwrap_or((rest, ""))).ok_or_else(unknown)?;
    let segments: Option<Vec<String>> = path.split('/').map(decoded).collect();
    let segments = segments.ok_or_else(unknown)?;
    match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["knowledge", collection, document] if reads_documents(request) => {
            Ok((document_text(request, collection, document).await?, "text/plain"))
        }
        ["conversations", id, "calls"] if reads_calls(request) => Ok((calls(request, id, query).await?, JSON)),
        ["calls", id] if reads_calls(request) => {
            let id = Uuid::parse_str(id).map_err(|_| unknown())?;
            let (call, _) = lookup::call(&request.api, &request.identity, &id.to_string()).await?;
            let text = serde_json::to_string(&CallView::new(&call, request.identity.scopes.admin));
            Ok((text.map_err(|error| page::serialize_error(&error))?, JSON))
        }
        _ => Err(unknown()),
    }
}

/// The title and the text of a document.
async fn document_text(request: &McpRequest, collection: &str, document: &str) -> Result<String, ApiError> {
    let (identity, knowledge) = (&request.identity, request.api.app.database.knowledge());
    identity.collection_for(Some(collection.to_owned()))?;
    let row = knowledge.document(grantee(identity), collection.to_owned(), document.to_owned()).await?;
    let row = row.ok_or_else(|| ApiError::not_found("document"))?;
    let chunks = knowledge.document_chunks(grantee(identity), collection.to_owned(), document.to_owned()).await?;
    let texts = std::iter::once(row.title).chain(chunks.into_iter().map(|chunk| chunk.content));
    Ok(texts.collect::<Vec<_>>().join("\n\n"))
}

/// `{tool_calls, next_after}`, as `GET /api/tool-calls` answers.
async fn calls(request: &McpRequest, id: &str, query: &str) -> Result<String, ApiError> {
    let id = Uuid::parse_str(id).map_err(|_| ApiError::not_found("conversation"))?;
    let conversation = lookup::conversation(&request.api, &request.identity, &id.to_string()).await?;
    let after = query.strip_prefix("after=").map(Uuid::parse_str).transpose().map_err(|_| ApiError::not_found("resource"))?;
    let page = Page { after, limit: PAGE, order: Order::OldestFirst, max_bytes: page::MAX_BYTES };
    let filter = CallFilter { conversation_id: Some(conversation.id), ..CallFilter::default() };
    let rows = request.api.app.records().calls(conversation.tenant_id, filter, page).await?;
    let views: Vec<CallView<'_>> = rows.iter().map(|row| CallView::new(row, request.identity.scopes.admin)).collect();
    let next_after = page::next_after(&rows, &page, |row| row.id);
    serde_json::to_string(&json!({"tool_calls": views, "next_after": next_after})).map_err(|error| page::serialize_error(&error))
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;

    use super::{Cursor, document_uri};

    #[test]
    fn a_cursor_says_where_the_next_page_begins() {
        for cursor in [
            Cursor::Documents(String::new(), None),
            Cursor::Documents("hr".to_owned(), Some("a/b c".to_owned())),
            Cursor::Conversations(None),
            Cursor::Conversations(Some(Uuid::nil())),
        ] {
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        assert_eq!(Cursor::parse("conversations/x"), None);
        assert_eq!(Cursor::parse(""), None);
    }

    #[test]
    fn names_in_a_uri_are_encoded() {
        assert_eq!(document_uri("a b", "x/ü?"), "werkruf://knowledge/a%20b/x%2F%C3%BC%3F");
    }
}
