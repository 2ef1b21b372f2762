//! A message that only says yes to what a tool offered: the tool's own call, without asking the model.

use std::sync::Arc;

use serde_json::Value;
use werkruf_contract::{CallKind, State, merge_state};
use werkruf_llm::{Answer, Message, ToolCall};

use crate::ground::Draft;
use crate::turn::Turn;

impl Turn {
    /// The call that the message assents to. Any other message lets the offers lapse, with the next commit.
    pub(crate) fn claimed(&mut self, draft: &mut Option<Draft>) -> Option<Answer> {
        if self.progress.step > 0 || self.brought.is_some() || self.progress.last_word.is_some() {
            return None;
        }
        let Some(Message::User { content, .. }) = self.messages.last() else { return None };
        let ground = Arc::clone(&self.ground);
        let offered = |name: &str| self.offer.definitions.iter().any(|tool| tool.name == name);
        let tools = || ground.setup.registry.all().iter().filter(|entry| offered(&entry.spec().name));
        let claimed = tools().find_map(|entry| Some((entry.spec().name.to_string(), entry.tool.claims(&self.state, content)?)));
        if let Some((name, arguments)) = claimed {
            return Some(call(name, &arguments));
        }
        let lapsed: State = ground
            .setup
            .registry
            .all()
            .iter()
            .flat_map(|entry| entry.tool.offers())
            .filter(|field| self.state.contains_key(**field))
            .map(|field| ((*field).to_owned(), Value::Null))
            .collect();
        if !lapsed.is_empty() {
            merge_state(Arc::make_mut(&mut self.state), lapsed.clone());
            draft.get_or_insert_with(|| ground.draft()).write.state_patches.push(lapsed);
        }
        None
    }
}

/// A step in which the person, not the model, asked for one call.
fn call(name: String, arguments: &Value) -> Answer {
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
