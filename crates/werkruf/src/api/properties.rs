//! Properties of the parsers of this API that must hold for any input; see [`crate::properties`].

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use werkruf_contract::{count_json_values, is_locale};
use werkruf_store::import::add_lines;

use super::body::{self, RawBody};
use super::byte_budget::{ByteBudget, Owner, Reservation};
use super::chat::ChatRequest;
use super::invoke::InvokeRequest;
use super::json_values::RawFields;
use super::{context, knowledge, knowledge_files, workspace};

/// More than any input takes.
const BUDGET: u64 = 1 << 40;

/// The bytes of a body, as they were read from a request.
pub(crate) fn raw(input: &[u8]) -> RawBody {
    let reservation = Reservation::new(Arc::new(ByteBudget::new(BUDGET)), Owner::Operator);
    RawBody::new(Bytes::copy_from_slice(input), Arc::new(reservation))
}

/// Fields read one by one are those of the whole object.
pub fn json_fields(input: &[u8]) -> bool {
    const NAMES: [&str; 4] = ["a", "b", "c", "messages"];
    let read = RawFields::read(input, &NAMES);
    let whole = serde_json::from_slice::<Map<String, Value>>(input);
    if let Ok(whole) = whole {
        let fields = read.ok();
        assert!(fields.is_some(), "an object was not read");
        let Some(fields) = fields else { return false };
        assert!(fields.count() <= count_json_values(input));
        let built = fields.build().ok();
        let expected: Map<String, Value> = whole.into_iter().filter(|(name, _)| NAMES.contains(&name.as_str())).collect();
        assert!(built.is_some_and(|built| Value::Object(built) == Value::Object(expected)));
        return true;
    }
    if let Ok(fields) = read {
        let _ = (fields.may_have_results(), fields.count(), fields.build());
    }
    false
}

/// A body of `/api/chat`.
pub fn chat_body(input: &[u8]) -> bool {
    let Ok(request) = body::json::<ChatRequest>(input) else { return false };
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        assert_eq!(request.message, value["message"].as_str().unwrap_or_default());
    }
    true
}

/// A body of a tool call: its input is what the client sent.
pub fn invoke_body(input: &[u8]) -> bool {
    let Ok(request) = body::json_with_values::<InvokeRequest>(&raw(input)) else { return false };
    if let Ok(value) = serde_json::from_slice::<Value>(input) {
        assert_eq!(request.input, value["input"]);
    }
    true
}

/// A file of workspace data is read, or refused.
pub fn workspace_import(input: &[u8]) -> bool {
    let Ok((text, _)) = workspace::read(input, |_| true) else { return false };
    assert!(text.len() <= input.len());
    add_lines(&text, &mut Vec::new());
    true
}

/// A body with documents.
pub fn knowledge_documents(input: &[u8]) -> bool {
    let Ok(shape) = body::json(input) else { return false };
    let Ok((collection, documents)) = knowledge::read(&raw(input), shape) else { return false };
    assert!(documents.len() <= knowledge::MAX_DOCUMENTS);
    let names = collection.iter().chain(documents.iter().filter_map(|document| document.id.as_ref()));
    names.for_each(|name| assert!(name.len() <= knowledge::MAX_NAME_BYTES && !name.contains('\0')));
    true
}

/// An upload. The first line of the input is the `Content-Type`.
pub fn upload(input: &[u8]) -> bool {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (content_type, content) = input.split_at(end);
    let Ok(boundary) = multer::parse_boundary(String::from_utf8_lossy(content_type)) else { return false };
    let content = Bytes::copy_from_slice(content.get(1..).unwrap_or_default());
    let length = content.len();
    let read = knowledge_files::read(content, boundary).now_or_never();
    assert!(read.is_some(), "the whole body is there, so nothing has to be waited for");
    let Some(Ok(upload)) = read else { return false };
    assert!(!upload.files.is_empty());
    assert!(upload.files.iter().map(|(_, content)| content.len()).sum::<usize>() <= length);
    true
}

/// Context headers, one per line.
pub fn context_headers(input: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(100) {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    let Ok(trace_id) = context::trace_id(&headers, None, None) else { return false };
    assert!(trace_id.as_ref().is_none_or(|id| !id.is_empty() && id.len() <= context::MAX_CHARACTERS));
    let Ok(read) = context::read(&headers, trace_id, |mode| mode == "strict") else { return false };
    assert!(read.run_id.is_none() || read.ingestion_run_id.is_none());
    assert!(read.safety_mode.is_none_or(|mode| mode == "strict"));
    assert!(read.locale.is_none_or(|locale| is_locale(&locale)));
    let texts = [read.run_id, read.ingestion_run_id, read.workflow_id, read.case_id, read.collection_id, read.document_id];
    texts.iter().flatten().for_each(|text| assert!(text.len() <= context::MAX_CHARACTERS));
    true
}
