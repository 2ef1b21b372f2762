//! A message that only accepts what a tool offered: the tool's own call, without a model request.

use std::sync::Arc;

use serde_json::Value;
use werkruf_contract::{CallKind, State, merge_state};
use werkruf_llm::{Answer, Message, ToolCall};

use super::state::Turn;
use crate::journal::Change;

impl Turn {
    /// The call that the message accepts, in the form of a model's answer. Any other message ends all offers, with the next commit.
    pub(super) fn accepted_offer(&mut self) -> Option<Answer> {
        if self.progress.step > 0 || self.client.is_some() || self.progress.limit.is_some() {
            return None;
        }
        let Some(Message::User { content, .. }) = self.messages.last() else { return None };
        let scope = Arc::clone(&self.scope);
        let tools: Vec<_> = scope.setup.registry.all_for(scope.caller.principal.tenant()).collect();
        let usable = |name: &str| self.offer.definitions.iter().any(|tool| tool.name == name);
        let accepted = tools
            .iter()
            .filter(|entry| usable(&entry.spec().name))
            .find_map(|entry| Some((entry.spec().name.to_string(), entry.tool.claims(&self.state, content)?)));
        if let Some((name, arguments)) = accepted {
            return Some(answer_with_call(name, &arguments));
        }
        let ended: State = tools
            .iter()
            .flat_map(|entry| entry.tool.offers())
            .filter(|field| self.state.contains_key(**field))
            .map(|field| ((*field).to_owned(), Value::Null))
            .collect();
        if !ended.is_empty() {
            merge_state(Arc::make_mut(&mut self.state), ended.clone());
            scope.journal.stage(Change::StatePatch(ended));
        }
        None
    }
}

fn answer_with_call(name: String, arguments: &Value) -> Answer {
    let call = ToolCall {
        kind: CallKind::Function,
        item_id: None,
        call_id: None,
        output_index: 0,
        name,
        arguments: arguments.to_string(),
        status: None,
    };
    Answer { calls: vec![call], executable: true, ..Answer::default() }
}
