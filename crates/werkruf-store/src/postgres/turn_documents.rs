//! JSON documents for the schema's functions: the rows that a turn writes. Values that are JSON stay text in them.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Serialize;
use werkruf_contract::Uuid;

use super::param::ms;
use super::text::clean_json;
use crate::{CallEnd, CallRetry, CallRow, CallStart, NewApproval, NewEvent, NewMessage, ProviderCallUpdate, Replacement, StoreError};

/// The text of a document. U+0000 in a value is an escape by now, so cleaning the whole text is enough.
pub(super) fn document(value: &impl Serialize) -> Result<String, StoreError> {
    let text = serde_json::to_string(value).map_err(|error| StoreError::Broken(error.to_string()))?;
    Ok(clean_json(&text).into_owned())
}

fn json(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| clean_json(text))
}

#[derive(Serialize)]
pub(super) struct Message<'a> {
    id: Uuid,
    role: &'a str,
    content: &'a str,
    tool_calls: Option<Cow<'a, str>>,
    tool_call_id: Option<&'a str>,
    tool_name: Option<&'a str>,
    status: Option<&'a str>,
    metadata: Option<Cow<'a, str>>,
    tokens: Option<i64>,
}

impl<'a> From<&'a NewMessage> for Message<'a> {
    fn from(message: &'a NewMessage) -> Self {
        Self {
            id: message.id,
            role: message.role,
            content: &message.content,
            tool_calls: json(message.tool_calls.as_ref()),
            tool_call_id: message.tool_call_id.as_deref(),
            tool_name: message.tool_name.as_deref(),
            status: message.status,
            metadata: json(message.metadata.as_ref()),
            tokens: message.tokens,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Event<'a> {
    r#type: &'static str,
    data: Cow<'a, str>,
}

impl<'a> From<&'a NewEvent> for Event<'a> {
    fn from(event: &'a NewEvent) -> Self {
        Self { r#type: event.kind.as_str(), data: clean_json(&event.data) }
    }
}

#[derive(Serialize)]
pub(super) struct Approval<'a> {
    id: Uuid,
    call_id: Uuid,
    tool_name: &'a str,
    server_label: Option<&'a str>,
    arguments: Cow<'a, str>,
    arguments_digest: &'a str,
    approver_roles: String,
    taint: Option<Cow<'a, str>>,
    asked_by: &'a str,
    asked_key: &'a str,
    retried_by: Option<&'a str>,
    expires_at: Timestamp,
}

impl<'a> From<&'a NewApproval> for Approval<'a> {
    fn from(approval: &'a NewApproval) -> Self {
        Self {
            id: approval.id,
            call_id: approval.call_id,
            tool_name: &approval.tool_name,
            server_label: approval.server_label.as_deref(),
            arguments: clean_json(&approval.arguments),
            arguments_digest: &approval.arguments_digest,
            approver_roles: clean_json(&serde_json::json!(approval.approver_roles).to_string()).into_owned(),
            taint: json(approval.taint.as_ref()),
            asked_by: &approval.asked_by,
            asked_key: &approval.asked_key,
            retried_by: approval.retried_by.as_deref(),
            expires_at: ms(approval.expires_at),
        }
    }
}

#[derive(Serialize)]
pub(super) struct CallResult<'a> {
    tool_call_id: &'a str,
    content: &'a str,
    status: &'a str,
    metadata: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Replacement> for CallResult<'a> {
    fn from(result: &'a Replacement) -> Self {
        let metadata = json(result.metadata.as_ref());
        Self { tool_call_id: &result.tool_call_id, content: &result.content, status: result.status, metadata }
    }
}

#[derive(Serialize)]
pub(super) struct Start {
    id: Uuid,
    started_at: Timestamp,
}

impl From<&CallStart> for Start {
    fn from(start: &CallStart) -> Self {
        Self { id: start.id, started_at: ms(start.started_at) }
    }
}

#[derive(Serialize)]
pub(super) struct ProviderUpdate<'a> {
    id: Uuid,
    tool_name: &'a str,
    response_id: Option<&'a str>,
    item_id: Option<&'a str>,
    call_id: Option<&'a str>,
    request: Option<Cow<'a, str>>,
    raw_arguments: Option<&'a str>,
}

impl<'a> From<&'a ProviderCallUpdate> for ProviderUpdate<'a> {
    fn from(update: &'a ProviderCallUpdate) -> Self {
        Self {
            id: update.id,
            tool_name: &update.tool_name,
            response_id: update.response_id.as_deref(),
            item_id: update.item_id.as_deref(),
            call_id: update.call_id.as_deref(),
            request: update.request.as_deref().map(clean_json),
            raw_arguments: update.raw_arguments.as_deref(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Retry<'a> {
    id: Uuid,
    attempt: u32,
    started_at: Timestamp,
    finished_at: Timestamp,
    status: &'static str,
    error: Cow<'a, str>,
    next_started_at: Timestamp,
}

impl<'a> From<&'a CallRetry> for Retry<'a> {
    fn from(retry: &'a CallRetry) -> Self {
        Self {
            id: retry.id,
            attempt: retry.attempt,
            started_at: ms(retry.started_at),
            finished_at: ms(retry.finished_at),
            status: retry.status.as_str(),
            error: clean_json(&retry.error),
            next_started_at: ms(retry.next_started_at),
        }
    }
}

#[derive(Serialize)]
pub(super) struct End<'a> {
    id: Uuid,
    status: &'static str,
    response: Option<Cow<'a, str>>,
    meta: Option<Cow<'a, str>>,
    error: Option<&'a str>,
    error_type: Option<&'a str>,
    error_code: Option<&'a str>,
    error_detail: Option<Cow<'a, str>>,
    permission: Option<Cow<'a, str>>,
    cache_hit: bool,
    finished_at: Timestamp,
}

impl<'a> From<&'a CallEnd> for End<'a> {
    fn from(end: &'a CallEnd) -> Self {
        Self {
            id: end.id,
            status: end.status.as_str(),
            response: json(end.response.as_ref()),
            meta: json(end.meta.as_ref()),
            error: end.error.as_deref(),
            error_type: end.error_type.as_deref(),
            error_code: end.error_code.as_deref(),
            error_detail: json(end.error_detail.as_ref()),
            permission: json(end.permission.as_ref()),
            cache_hit: end.cache_hit,
            finished_at: ms(end.finished_at),
        }
    }
}

/// A whole row of `tool_calls`.
#[derive(Serialize)]
pub(super) struct Call<'a> {
    id: Uuid,
    tenant_id: Uuid,
    conversation_id: Option<Uuid>,
    turn_id: Uuid,
    step: u32,
    output_index: u32,
    response_id: Option<&'a str>,
    kind: &'static str,
    runner: &'static str,
    tool_name: &'a str,
    call_id: Option<&'a str>,
    item_id: Option<&'a str>,
    status: &'static str,
    request: Option<Cow<'a, str>>,
    raw_arguments: Option<&'a str>,
    repairs: Option<Cow<'a, str>>,
    response: Option<Cow<'a, str>>,
    error: Option<&'a str>,
    error_type: Option<&'a str>,
    error_code: Option<&'a str>,
    error_detail: Option<Cow<'a, str>>,
    effect: &'static str,
    attempt: u32,
    cache_hit: bool,
    dedupe_key: Option<&'a str>,
    dedupe_of: Option<Uuid>,
    retry_of: Option<Uuid>,
    idempotency_key: Option<&'a str>,
    permission: Option<Cow<'a, str>>,
    context: Cow<'a, str>,
    trace_id: Option<&'a str>,
    run_id: Option<&'a str>,
    ingestion_run_id: Option<&'a str>,
    workflow_id: Option<&'a str>,
    case_id: Option<&'a str>,
    meta: Option<Cow<'a, str>>,
    taint: Option<Cow<'a, str>>,
    created_at: Timestamp,
    updated_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl<'a> From<&'a CallRow> for Call<'a> {
    fn from(call: &'a CallRow) -> Self {
        Self {
            id: call.id,
            tenant_id: call.tenant_id,
            conversation_id: call.conversation_id,
            turn_id: call.turn_id,
            step: call.step,
            output_index: call.output_index,
            response_id: call.response_id.as_deref(),
            kind: call.kind.as_str(),
            runner: call.runner.as_str(),
            tool_name: &call.tool_name,
            call_id: call.call_id.as_deref(),
            item_id: call.item_id.as_deref(),
            status: call.status.as_str(),
            request: json(call.request.as_ref()),
            raw_arguments: call.raw_arguments.as_deref(),
            repairs: json(call.repairs.as_ref()),
            response: json(call.response.as_ref()),
            error: call.error.as_deref(),
            error_type: call.error_type.as_deref(),
            error_code: call.error_code.as_deref(),
            error_detail: json(call.error_detail.as_ref()),
            effect: call.effect.as_str(),
            attempt: call.attempt,
            cache_hit: call.cache_hit,
            dedupe_key: call.dedupe_key.as_deref(),
            dedupe_of: call.dedupe_of,
            retry_of: call.retry_of,
            idempotency_key: call.idempotency_key.as_deref(),
            permission: json(call.permission.as_ref()),
            context: clean_json(&call.context),
            trace_id: call.trace_id.as_deref(),
            run_id: call.run_id.as_deref(),
            ingestion_run_id: call.ingestion_run_id.as_deref(),
            workflow_id: call.workflow_id.as_deref(),
            case_id: call.case_id.as_deref(),
            meta: json(call.meta.as_ref()),
            taint: json(call.taint.as_ref()),
            created_at: ms(call.created_at),
            updated_at: ms(call.updated_at),
            started_at: call.started_at.map(ms),
            finished_at: call.finished_at.map(ms),
        }
    }
}

/// A call row must belong to the turn that writes it; another one is a defect of the caller.
pub(super) fn check_owner(calls: &[CallRow], tenant_id: Uuid, turn_id: Uuid) -> Result<(), StoreError> {
    match calls.iter().find(|call| call.tenant_id != tenant_id || call.turn_id != turn_id) {
        None => Ok(()),
        Some(call) => Err(StoreError::Broken(format!("call {} was written by turn {turn_id}, to which it does not belong", call.id))),
    }
}

/// A message must belong to a conversation, or it could never be read.
pub(super) fn check_conversation(messages: usize, conversation_id: Option<Uuid>, turn_id: Uuid) -> Result<(), StoreError> {
    if messages == 0 || conversation_id.is_some() {
        return Ok(());
    }
    Err(StoreError::Broken(format!("turn {turn_id} has a message but no conversation")))
}
