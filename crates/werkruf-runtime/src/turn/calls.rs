//! The calls of a step: commit B, the pipeline for the server's tools, placeholders for calls that the client runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use werkruf_contract::{AssistantSnapshot, CallKind, ClientCall, ErrorCode, EventType, Failure, FinishReason, Runner, TurnStatus};
use werkruf_llm::history_formats::column;
use werkruf_llm::{Answer, HistoryCall, Message, ToolCall};
use werkruf_store::{NewMessage, StoreError, TurnChange};

use super::end::{assistant_message, assistant_metadata};
use super::state::{Limit, REPEATS, Stop, Turn, text_tokens};
use crate::call::{Arguments, CallBatch, CallRequest, FinishedCall, TurnScope, announce, await_approvals, stage_approval};
use crate::client_request::ClientRequest;
use crate::journal::CommitPoint;
use crate::taint::UntrustedResult;

/// A step's calls, sorted by who runs them.
struct SortedCalls {
    /// All of them, as the history has them.
    history: Vec<HistoryCall>,
    server: Vec<CallRequest>,
    client: Vec<ClientCall>,
}

/// What a step came to. The last outcomes are staged.
pub(super) struct StepResult {
    /// The index of the step's first call among the turn's.
    pub(super) first_call: usize,
    /// Calls for the client to run; the turn ends with them.
    pub(super) client_calls: Vec<ClientCall>,
}

impl Turn {
    /// Commit B, then the calls.
    pub(super) async fn run_calls(&mut self, answer: Answer) -> Result<StepResult, Stop> {
        let used_ids = self.used_call_ids(&answer.calls).await?;
        let SortedCalls { history, server, client } = self.sort_calls(&answer, &used_ids);
        let scope = Arc::clone(&self.scope);
        let untrusted = self.progress.provider_items.untrusted(&answer);
        self.taint.add(untrusted.iter().cloned());
        let batch = CallBatch {
            scope: &scope,
            step: self.progress.step,
            state: &self.state,
            context: &self.context,
            earlier: &self.progress.finished,
            taint: &self.taint,
        };
        let prepared = batch.prepare(server).await?;
        let step = self.progress.step;
        stage_answer(&scope, &answer, &history, step, &untrusted);
        self.progress.provider_items.settle(&scope, step, &self.context, &answer);
        let first_call = self.progress.finished.len();
        if prepared.is_empty() {
            // The server sends nothing, so nothing has to be durable before the end.
            stage_placeholders(&scope, &client);
            self.add_step(answer, history, &[], None);
            return Ok(StepResult { first_call, client_calls: client });
        }
        for call in &prepared {
            if call.row.started_at.is_some() {
                announce(&scope, &call.row);
            }
            if let Some(approval) = call.new_approval() {
                stage_approval(&scope, approval).await?;
            }
            scope.journal.stage(call.row.clone());
        }
        scope.journal.commit(CommitPoint::Calls).await?;
        let result = batch.run(prepared).await?;
        stage_placeholders(&scope, &client);
        if !result.waiting.is_empty() {
            await_approvals(&scope, step, result.waiting, Some(&scope.used())).await?;
            return Err(Stop::AwaitingApproval);
        }
        self.add_step(answer, history, &result.finished, result.state);
        if first_call == 0 {
            self.progress.finished = result.finished;
        } else {
            self.progress.finished.extend(result.finished);
        }
        Ok(StepResult { first_call, client_calls: client })
    }

    /// Gives the model's calls ids that the conversation has not used, and separates the client's calls from the server's.
    fn sort_calls(&mut self, answer: &Answer, used_ids: &[String]) -> SortedCalls {
        let messages = Arc::clone(&self.messages);
        let mut used: HashSet<&str> = used_ids.iter().map(String::as_str).collect();
        if answer.calls.iter().any(|call| call.pairing_id().is_some()) {
            used.extend(messages.iter().filter_map(|message| match message {
                Message::Tool { call_id, .. } => Some(call_id.as_str()),
                Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => None,
            }));
        }
        let mut repeated: HashMap<String, bool> = HashMap::new();
        let mut sorted = SortedCalls { history: Vec::with_capacity(answer.calls.len()), server: Vec::new(), client: Vec::new() };
        for (at, call) in answer.calls.iter().enumerate() {
            let job_id = self.scope.clock.new_id();
            let id = match call.pairing_id() {
                Some(id) if used.insert(id) => id.to_owned(),
                Some(_) | None => format!("call_{job_id}"),
            };
            let name = call.name.clone();
            let arguments = match call.is_approval_request() {
                true => self.scope.setup.redaction.text(&call.arguments),
                false => call.arguments.clone(),
            };
            sorted.history.push(HistoryCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() });
            if self.is_client_call(call) && at < self.scope.limits.calls_per_step {
                sorted.client.push(ClientCall { id, name, arguments });
                continue;
            }
            let refused = self.over_clients_limit(call, &sorted.server).or_else(|| self.refused(at, call, &mut repeated));
            let refused = refused.or_else(|| self.unanswerable(answer, call));
            sorted.server.push(CallRequest {
                kind: call.kind,
                item_id: call.item_id.clone(),
                call_id: call.call_id.clone(),
                response_id: answer.response_id.clone(),
                output_index: call.output_index,
                history_id: Some(id),
                server_label: call.server_label.as_ref().map(|label| self.scope.setup.redaction.text(label)),
                refused,
                ..CallRequest::new(job_id, name, Arguments::Raw(arguments))
            });
        }
        sorted
    }

    fn is_client_call(&self, call: &ToolCall) -> bool {
        let is_tool = |client: &Arc<ClientRequest>| client.tools.iter().any(|tool| tool.name == call.name);
        !call.is_approval_request() && self.client.as_ref().is_some_and(is_tool)
    }

    /// Why nobody is asked about a call that the provider wants to run: the request to answer is not known, or the turn ends with calls for the
    /// client before an answer could leave.
    fn unanswerable(&self, answer: &Answer, call: &ToolCall) -> Option<Failure> {
        let answerable = call.item_id.is_some() && answer.carry.is_some() && !answer.calls.iter().any(|call| self.is_client_call(call));
        let refused = call.is_approval_request() && !answerable;
        refused.then(|| Failure::upstream(ErrorCode::ProviderCallNotRun, "").nothing_happened())
    }

    /// A client may limit the calls of the server's tools in one turn. Calls that were refused do not count.
    fn over_clients_limit(&self, call: &ToolCall, of_step: &[CallRequest]) -> Option<Failure> {
        let most = self.client.as_ref().filter(|_| !call.is_approval_request())?.max_tool_calls?;
        let was_made =
            |call: &&FinishedCall| call.row.runner == Runner::Server && (call.outcome.result.is_ok() || call.outcome.attempt > 0);
        let is_made = |call: &&CallRequest| call.refused.is_none() && call.kind != CallKind::Mcp;
        let made = self.progress.finished.iter().filter(was_made).count() + of_step.iter().filter(is_made).count();
        let message = format!("The client allows {most} calls, and all of them were made. Answer with what you have.");
        (made >= usize::try_from(most).unwrap_or(usize::MAX)).then(|| Failure::validation(ErrorCode::TooManyCalls, message))
    }

    /// Why a call is refused before the pipeline.
    fn refused(&mut self, at: usize, call: &ToolCall, repeated: &mut HashMap<String, bool>) -> Option<Failure> {
        let most = self.scope.limits.calls_per_step;
        if at >= most {
            let message = format!("Only the first {most} calls of one answer are run. Ask for fewer at once.");
            return Some(Failure::validation(ErrorCode::TooManyCalls, message));
        }
        // A tool that this assistant does not have is refused even if it exists.
        if !call.is_approval_request()
            && !self.offer.definitions.iter().any(|tool| tool.name == call.name)
            && self.scope.setup.registry.find_for(self.scope.caller.principal.tenant(), &call.name).is_some()
        {
            return Some(Failure::validation(ErrorCode::UnknownTool, "You were not given this tool. Use only the tools you were given."));
        }
        self.repeated(call, repeated)
    }

    /// Ids that the conversation has used outside the messages of this turn's history; those need no look-up.
    async fn used_call_ids(&self, calls: &[ToolCall]) -> Result<Vec<String>, StoreError> {
        let ids: Vec<String> = calls.iter().filter_map(|call| call.pairing_id().map(str::to_owned)).collect();
        match self.scope.conversation_id {
            Some(conversation_id) if self.trimmed && !ids.is_empty() => {
                self.scope.turns.taken_call_ids(self.scope.tenant_id(), conversation_id, ids).await
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// The same call in too many steps of one turn is not run again. Copies inside one step count once.
    fn repeated(&mut self, call: &ToolCall, this_step: &mut HashMap<String, bool>) -> Option<Failure> {
        let key = format!("{}\n{}", call.name, call.arguments);
        let most = self.scope.setup.registry.find(&call.name).map_or(REPEATS, |entry| entry.spec().repeat_limit);
        let over = *this_step.entry(key.clone()).or_insert_with(|| {
            let count = self.progress.repeats.entry(key).or_default();
            *count += 1;
            *count > most
        });
        if over {
            self.progress.limit = Some(Limit::Repeats);
        }
        over.then(|| {
            Failure::validation(ErrorCode::RepeatLimit, "This very call was made several times already. Answer with what you have.")
        })
    }
}

/// Stages the assistant message of a step with calls, and its text as an event.
fn stage_answer(scope: &TurnScope, answer: &Answer, calls: &[HistoryCall], step: u32, untrusted: &[UntrustedResult]) {
    let journal = &scope.journal;
    let tokens = answer.usage.map(text_tokens);
    let metadata = assistant_metadata(answer.carry.as_ref(), FinishReason::Stop, untrusted, &answer.annotations);
    journal.stage(assistant_message(scope, &answer.text, Some(column(calls)), metadata, tokens));
    journal.stage(TurnChange { status: TurnStatus::Acting, step, error: None, message: None, transcript_digest: None });
    if !answer.text.is_empty() {
        let annotations = answer.annotations.clone();
        let snapshot = AssistantSnapshot { annotations, ..AssistantSnapshot::text(answer.text.clone(), step, scope.turn_id) };
        journal.stage_event(EventType::AssistantSnapshot, &snapshot);
    }
}

/// Stages placeholders for results that the client will send, so that the history is valid before they come.
pub(crate) fn stage_placeholders(scope: &TurnScope, calls: &[ClientCall]) {
    let content = json!({"status": "waiting for the client"}).to_string();
    for call in calls {
        let result = NewMessage::result(scope.clock.new_id(), call.id.as_str(), call.name.as_str(), content.as_str(), "pending");
        scope.journal.stage(result);
    }
}
