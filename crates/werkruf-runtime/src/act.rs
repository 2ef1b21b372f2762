//! A step with calls: commit B, the corridor for our own tools, placeholders for those the client runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use werkruf_contract::{AssistantSnapshot, ClientCall, EventType, Failure, TurnStatus};
use werkruf_llm::history_formats::column;
use werkruf_llm::{Answer, HistoryCall, Message, ToolCall};
use werkruf_store::{NewMessage, StoreError, TurnChange, crash};

use crate::approve::park;
use crate::ask::Stop;
use crate::corridor::{Arguments, Asked, Finished, Plan, Walk};
use crate::ground::{Draft, Ground};
use crate::record::announce;
use crate::turn::{Limit, REPEATS, Turn, assistant_message, said_tokens};

/// A step's calls, sorted by who runs them.
struct Sorted {
    /// All of them, as the history has them.
    calls: Vec<HistoryCall>,
    ours: Vec<Asked>,
    theirs: Vec<ClientCall>,
}

/// What a step came to.
pub(crate) struct Acted {
    /// Where its calls begin among the turn's.
    pub(crate) first: usize,
    /// The last outcomes, not yet durable.
    pub(crate) draft: Draft,
    /// What the client is to run; the turn ends with them.
    pub(crate) theirs: Vec<ClientCall>,
}

impl Turn {
    /// Commit B, then the calls.
    pub(crate) async fn act(&mut self, answer: Answer) -> Result<Acted, Stop> {
        let taken = self.taken_ids(&answer.calls).await?;
        let Sorted { calls, ours, theirs } = self.sorted(&answer, &taken);
        let ground = Arc::clone(&self.ground);
        let walk =
            Walk { ground: &ground, step: self.progress.step, state: &self.state, context: &self.context, earlier: &self.progress.walked };
        let prepared = walk.prepare(ours).await?;
        let mut draft = ground.draft();
        let tokens = answer.usage.map(said_tokens);
        draft.write.messages.push(assistant_message(&ground, &answer.text, Some(column(&calls)), answer.carry.as_ref(), tokens));
        draft.write.usage.append(&mut self.progress.usage);
        draft.write.counted.append(&mut self.progress.counted);
        draft.write.turn =
            Some(TurnChange { status: TurnStatus::Acting, step: self.progress.step, error: None, message: None, transcript_digest: None });
        if !answer.text.is_empty() {
            let snapshot = AssistantSnapshot { content: answer.text.clone(), step: self.progress.step, turn_id: ground.turn_id };
            draft.event(EventType::AssistantSnapshot, &snapshot);
        }
        self.progress.provided.settle(&ground, &mut draft, self.progress.step, &self.context, &answer);
        let first = self.progress.walked.len();
        if prepared.is_empty() {
            // Nothing is sent by us, so nothing has to be durable before the end.
            expect_results(&ground, &mut draft, &theirs);
            self.remember(answer, calls, &[], None);
            return Ok(Acted { first, draft, theirs });
        }
        for call in &prepared {
            if call.row.started_at.is_some() {
                announce(&mut draft, &call.row);
            }
            if let Plan::Await(awaited) = &call.plan {
                draft.write.approvals.extend(awaited.wish.clone());
            }
            draft.write.calls.push(call.row.clone());
        }
        crash::point("before_b");
        ground.commit(draft).await?;
        crash::point("after_b");
        let Finished { walked, parked, draft: mut outcomes, state } = walk.finish(prepared).await?;
        expect_results(&ground, &mut outcomes, &theirs);
        if !parked.is_empty() {
            park(&ground, outcomes, self.progress.step, parked, Some(&self.progress.billed)).await?;
            return Err(Stop::Waiting);
        }
        self.remember(answer, calls, &walked, state);
        if first == 0 {
            self.progress.walked = walked;
        } else {
            self.progress.walked.extend(walked);
        }
        Ok(Acted { first, draft: outcomes, theirs })
    }

    /// The model's calls with ids the conversation does not know yet, ours as the corridor takes them.
    fn sorted(&mut self, answer: &Answer, taken: &[String]) -> Sorted {
        let history = Arc::clone(&self.messages);
        let mut used: HashSet<&str> = taken.iter().map(String::as_str).collect();
        if answer.calls.iter().any(|call| call.call_id.is_some()) {
            used.extend(history.iter().filter_map(|message| match message {
                Message::Tool { call_id, .. } => Some(call_id.as_str()),
                Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => None,
            }));
        }
        let mut repeated: HashMap<String, bool> = HashMap::new();
        let mut sorted = Sorted { calls: Vec::with_capacity(answer.calls.len()), ours: Vec::new(), theirs: Vec::new() };
        for (at, call) in answer.calls.iter().enumerate() {
            let job_id = self.ground.clock.new_id();
            let wire = call.call_id.as_deref().filter(|id| !id.is_empty());
            let id = match wire {
                Some(id) if used.insert(id) => id.to_owned(),
                Some(_) | None => format!("call_{job_id}"),
            };
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            sorted.calls.push(HistoryCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() });
            if self.is_theirs(&call.name) && at < self.ground.limits.calls_per_step {
                sorted.theirs.push(ClientCall { id, name, arguments });
                continue;
            }
            let refused = self.refused(at, call, &mut repeated);
            sorted.ours.push(Asked {
                job_id,
                kind: call.kind,
                item_id: call.item_id.clone(),
                call_id: call.call_id.clone(),
                response_id: answer.response_id.clone(),
                output_index: call.output_index,
                name,
                arguments: Arguments::Raw(arguments),
                history_id: Some(id),
                retry_of: None,
                idempotency_key: None,
                refused,
            });
        }
        sorted
    }

    /// Whether the client runs this tool.
    fn is_theirs(&self, name: &str) -> bool {
        self.brought.as_ref().is_some_and(|brought| brought.tools.iter().any(|tool| tool.name == name))
    }

    /// What is wrong with a call before anybody looks at it.
    fn refused(&mut self, at: usize, call: &ToolCall, repeated: &mut HashMap<String, bool>) -> Option<Failure> {
        let most = self.ground.limits.calls_per_step;
        if at >= most {
            let message = format!("Only the first {most} calls of one answer are run. Ask for fewer at once.");
            return Some(Failure::validation("too_many_calls", message));
        }
        // A tool this assistant was not offered is no tool, whoever knows its name.
        if !self.offer.definitions.iter().any(|tool| tool.name == call.name) && self.ground.setup.registry.find(&call.name).is_some() {
            return Some(Failure::validation("unknown_tool", "You were not given this tool. Use only the tools you were given."));
        }
        self.repeated(call, repeated)
    }

    /// Ids that the conversation has used outside the messages at hand; those at hand need no look-up.
    async fn taken_ids(&self, calls: &[ToolCall]) -> Result<Vec<String>, StoreError> {
        let ids: Vec<String> = calls.iter().filter_map(|call| call.call_id.clone()).collect();
        match self.ground.conversation_id {
            Some(conversation_id) if self.trimmed && !ids.is_empty() => {
                self.ground.turns.taken_call_ids(self.ground.fence.tenant_id, conversation_id, ids).await
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// The same call in too many steps of one turn is not run again. Copies inside one step count once.
    fn repeated(&mut self, call: &ToolCall, this_step: &mut HashMap<String, bool>) -> Option<Failure> {
        let key = format!("{}\n{}", call.name, call.arguments);
        let over = *this_step.entry(key.clone()).or_insert_with(|| {
            let seen = self.progress.repeats.entry(key).or_default();
            *seen += 1;
            *seen > REPEATS
        });
        if over {
            self.progress.last_word = Some(Limit::Repeats);
        }
        over.then(|| Failure::validation("repeat_limit", "This very call was made several times already. Answer with what you have."))
    }
}

/// Placeholders for results that the client will send: the history is whole before they come.
pub(crate) fn expect_results(ground: &Ground, draft: &mut Draft, theirs: &[ClientCall]) {
    let content = json!({"status": "waiting for the client"}).to_string();
    draft.write.messages.extend(theirs.iter().map(|call| result(ground, call, content.clone(), "pending")));
}

/// What stands for the result of a client's call.
pub(crate) fn result(ground: &Ground, call: &ClientCall, content: String, status: &'static str) -> NewMessage {
    NewMessage {
        id: ground.clock.new_id(),
        role: "tool",
        content,
        tool_calls: None,
        tool_call_id: Some(call.id.clone()),
        tool_name: Some(call.name.clone()),
        status: Some(status),
        metadata: None,
        tokens: None,
    }
}
