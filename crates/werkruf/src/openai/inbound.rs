//! Converts a request of an OpenAI client into a message for the runtime.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
use werkruf_contract::ToolContext;
use werkruf_llm::history_formats::HistoryFormat;
use werkruf_runtime::{Caller, ClientRequest, InboundMessage};

use super::input::{Input, UserMessage};
use super::model::CHANNEL;
use super::server_tools::server_tools;
use super::start::TurnRequest;
use super::target::Target;
use super::transcript::TranscriptDigest;
use crate::api::body;
use crate::api::error::ApiError;

/// The message for the runtime, and the digest of the client's transcript with it.
pub(super) fn inbound_message(
    headers: &HeaderMap,
    context: &ToolContext,
    caller: Caller,
    assistant: Option<String>,
    target: &Target,
    input: &Input,
    mut request: TurnRequest,
) -> Result<(InboundMessage, TranscriptDigest), ApiError> {
    let (conversation_id, after, start_digest) = match target {
        // A client that sends only new messages is at the current end of the conversation, so its digest does not start empty.
        Target::Named(id) if !input.is_continued() => (Some(*id), request.after, id.to_string()),
        Target::Named(id) => (Some(*id), request.after, String::new()),
        Target::Resumed(found) | Target::Unanswered(found) => (Some(found.conversation_id), Some(found.turn_id), String::new()),
        Target::Copied { copy, .. } => (Some(copy.id), None, String::new()),
        Target::AlreadyRun(_) | Target::New => (None, None, String::new()),
    };
    if let Target::Copied { copy, .. } = target {
        request.earlier.clone_from(&copy.history);
    }
    let (history, UserMessage { text, parts }, results) = match target {
        // The conversation has the message.
        Target::Unanswered(_) | Target::Copied { has_message: true, .. } => {
            (std::mem::take(&mut request.earlier), UserMessage::default(), input.results())
        }
        Target::Named(_) | Target::Resumed(_) | Target::Copied { .. } => {
            (std::mem::take(&mut request.earlier), input.new_user_message(), input.results())
        }
        // A new conversation waits for no results: those in the request belong to its history.
        Target::AlreadyRun(_) | Target::New => {
            let (history, message) = input.split_history();
            (history, message, Vec::new())
        }
    };
    let continues =
        request.continues.take().filter(|_| matches!(target, Target::Resumed(_) | Target::Unanswered(_) | Target::Copied { .. }));
    let digest = input.digest(start_digest);
    let idempotency = body::idempotency(headers, route(request.format), &request.raw)?;
    let held = Some(request.raw.held());
    let client_request = ClientRequest { continues, ..client_request(headers, input, history, digest.clone(), request) };
    let inbound = InboundMessage {
        caller,
        conversation_id,
        message: text,
        assistant,
        channel: CHANNEL.to_owned(),
        locale: None,
        debug: false,
        idempotency,
        inbound: None,
        context: context.clone(),
        parts,
        client: Some(Arc::new(client_request)),
        results,
        after,
        held,
    };
    Ok((inbound, digest))
}

/// The route of a request in idempotency keys.
const fn route(format: HistoryFormat) -> &'static str {
    match format {
        HistoryFormat::Responses => "v1/responses",
        HistoryFormat::Openai | HistoryFormat::Langchain => "v1/chat/completions",
    }
}

fn client_request(headers: &HeaderMap, input: &Input, history: Vec<Value>, digest: String, mut request: TurnRequest) -> ClientRequest {
    let mut server_tools = server_tools(headers);
    match request.allowed_tools.take() {
        Some(allowed) if request.tools.is_empty() => {
            let names = server_tools.map(|names| names.into_iter().filter(|name| allowed.contains(name)).collect());
            server_tools = Some(names.unwrap_or(allowed));
        }
        Some(allowed) => request.tools.retain(|tool| allowed.contains(&tool.name)),
        None => {}
    }
    let outside = request.instructions.filter(|text| !text.trim().is_empty());
    let instructions: Vec<String> = outside.into_iter().chain(input.instructions.iter().cloned()).collect();
    ClientRequest {
        instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
        history,
        tools: request.tools,
        tool_choice: request.tool_choice,
        parallel_tool_calls: request.parallel_tool_calls,
        temperature: request.temperature,
        max_output_tokens: request.max_output_tokens,
        max_tool_calls: request.max_tool_calls,
        options: request.options,
        server_tools,
        transcript_digest: digest,
        continues: None,
        endpoint: request.echo,
    }
}
