//! Plans the import of another program's rows, by conversation. A pure function: the same rows give the same plan.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde_json::{Map, Value};
use werkruf_contract::{Uuid, json_bytes};

use super::STATE_TOO_LARGE;
use super::call::{self, Home, PlannedCall};
use super::fields::{Fields, spelled};
use super::found::Source;
use super::ids;
use super::message::{self, Draft, Origin};
use crate::LegacyReport;

const TITLE_CHARACTERS: usize = 80;
const HOME: [&str; 5] = ["conversation_id", "chat_id", "thread_id", "session_id", "chatid"];

/// A conversation to import.
#[derive(Debug)]
pub(crate) struct PlannedConversation {
    /// `None`: the source has no row for it, only messages or calls that name it.
    pub(crate) origin: Option<Origin>,
    pub(crate) id: Uuid,
    /// The user id in the source.
    pub(crate) user: Option<String>,
    pub(crate) channel: String,
    pub(crate) title: String,
    pub(crate) state: Map<String, Value>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) messages: Vec<(Uuid, Draft)>,
    pub(crate) calls: Vec<PlannedCall>,
}

/// Everything to import; rows that were imported before are skipped later.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) conversations: Vec<PlannedConversation>,
    /// Calls that belong to no conversation.
    pub(crate) loose: Vec<PlannedCall>,
}

impl Plan {
    /// Leaves out session states that are larger than allowed, and reports them.
    pub(crate) fn drop_large_states(&mut self, max_bytes: usize, report: &mut LegacyReport) {
        for planned in &mut self.conversations {
            if json_bytes(&planned.state) > max_bytes {
                planned.state = Map::new();
                if let Some(origin) = &planned.origin {
                    report.skip(&format!("{}.state", origin.table), &origin.id, STATE_TOO_LARGE);
                }
            }
        }
    }
}

/// The rows of one conversation.
#[derive(Default)]
struct Group {
    row: Option<Fields>,
    messages: Vec<Draft>,
    calls: Vec<Fields>,
}

/// Makes the plan, and reports the rows that cannot be imported.
pub(crate) fn plan(source: Source, tenant_id: Uuid, report: &mut LegacyReport) -> Plan {
    // By the source's conversation ids, in the order of their first use.
    let mut order: Vec<String> = Vec::new();
    let mut groups: HashMap<String, Group> = HashMap::new();
    let mut group = |key: String, add: &mut dyn FnMut(&mut Group)| {
        let known = groups.entry(key.clone()).or_insert_with(|| {
            order.push(key);
            Group::default()
        });
        add(known);
    };
    for row in source.conversations {
        let mut row = Some(row);
        let key = row.as_ref().and_then(|row| spelled(&row.id)).unwrap_or_default();
        group(key, &mut |group| group.row = row.take());
    }
    for mut row in source.messages {
        let (table, id) = (row.table.clone(), row.id.clone());
        let Some(key) = row.text(&HOME) else {
            report.skip(&table, &id, "it names no conversation");
            continue;
        };
        match message::read(row) {
            Ok(draft) => {
                let mut draft = Some(draft);
                group(key, &mut |group| group.messages.extend(draft.take()));
            }
            Err(reason) => report.skip(&table, &id, reason),
        }
    }
    let mut loose = Vec::new();
    for mut row in source.calls {
        match row.text(&HOME) {
            Some(key) => {
                let mut row = Some(row);
                group(key, &mut |group| group.calls.extend(row.take()));
            }
            None => {
                let home = Home { tenant_id, conversation_id: None, made: Timestamp::UNIX_EPOCH };
                loose.extend(planned_call(row, &home, report));
            }
        }
    }
    let mut groups = order.into_iter().filter_map(|key| groups.remove(&key).map(|group| (key, group)));
    let conversations = groups.by_ref().map(|(key, group)| conversation(&key, group, tenant_id, report)).collect();
    Plan { conversations, loose }
}

fn planned_call(row: Fields, home: &Home, report: &mut LegacyReport) -> Option<PlannedCall> {
    let (table, id) = (row.table.clone(), row.id.clone());
    call::read(row, home).map_err(|reason| report.skip(&table, &id, reason)).ok()
}

fn conversation(key: &str, group: Group, tenant_id: Uuid, report: &mut LegacyReport) -> PlannedConversation {
    let Group { row, messages, calls } = group;
    let mut row = row.unwrap_or_else(|| Fields::new("", Map::new(), 0));
    let origin = (!row.table.is_empty()).then(|| Origin { table: row.table.clone(), id: row.id.clone() });
    let first = messages.iter().filter_map(|draft| draft.made).min();
    let created_at = row.time(&["created_at", "timestamp", "inserted_at"]).or(first).unwrap_or(Timestamp::UNIX_EPOCH);
    let updated_at = row.time(&["updated_at", "last_message_at"]);
    let id = ids::id(tenant_id, "conversations", &Value::from(key), created_at);
    let messages = settle(tenant_id, id, messages, created_at);
    let home = Home { tenant_id, conversation_id: Some(id), made: created_at };
    let mut calls: Vec<PlannedCall> = calls.into_iter().filter_map(|row| planned_call(row, &home, report)).collect();
    calls.sort_by_key(|call| call.row.created_at);
    let first_message =
        messages.iter().find(|(_, draft)| draft.role == "user").map(|(_, draft)| draft.content.chars().take(TITLE_CHARACTERS).collect());
    let title = row.text(&["title", "name", "subject"]).or(first_message).unwrap_or_default();
    let user = row.text(&["user_id", "userid", "owner_id", "user"]);
    let channel = row.text(&["channel"]).unwrap_or_else(|| "web".to_owned());
    let last = messages.iter().filter_map(|(_, draft)| draft.made).max();
    let state = state(row, key, user.as_deref(), origin.is_some());
    let updated_at = updated_at.or(last).unwrap_or(created_at);
    PlannedConversation { origin, id, user, channel, title, state, created_at, updated_at, messages, calls }
}

/// The session state, with the columns without a counterpart under `imported`.
fn state(mut row: Fields, key: &str, user: Option<&str>, known: bool) -> Map<String, Value> {
    let mut state = match row.json(&["state", "session_state"]) {
        Some(Value::Object(state)) => state,
        Some(other) => {
            row.keep("state", other);
            Map::new()
        }
        None => Map::new(),
    };
    let mut imported = row.rest();
    if let Some(user) = user {
        imported.insert("user_id".to_owned(), user.into());
    }
    if known && Uuid::try_parse(key).is_err() {
        imported.insert("id".to_owned(), key.into());
    }
    if !imported.is_empty() {
        state.insert("imported".to_owned(), imported.into());
    }
    state
}

/// Orders the messages, puts results that were inside a message after it, and makes the ids of calls unique.
fn settle(tenant_id: Uuid, home: Uuid, drafts: Vec<Draft>, made: Timestamp) -> Vec<(Uuid, Draft)> {
    let mut time = made;
    let mut drafts: Vec<Draft> = drafts
        .into_iter()
        .map(|mut draft| {
            // A message without a time stays after the one before it.
            time = draft.made.unwrap_or(time);
            draft.made = Some(time);
            draft
        })
        .collect();
    drafts.sort_by_key(|draft| draft.made);
    let answered: HashMap<String, usize> = drafts.iter().enumerate().filter_map(|(at, draft)| Some((draft.call_id.clone()?, at))).collect();
    let mut pairs = Pairs::default();
    let mut settled = Vec::new();
    for (place, mut draft) in drafts.into_iter().enumerate() {
        let time = draft.made.unwrap_or(made);
        let source = draft.origin.as_ref().map_or(Value::Null, |origin| origin.id.clone());
        let name = spelled(&source).unwrap_or_default();
        let id = match Uuid::try_parse(&name) {
            Ok(own) => own,
            Err(_) => ids::derived(tenant_id, &["messages", &home.to_string(), &name], time),
        };
        let results = std::mem::take(&mut draft.results);
        pairs.settle(&mut draft, id);
        settled.push((id, draft));
        for (mut result, at) in results.into_iter().zip(0_u32..) {
            // A later message with the same result takes precedence.
            if result.call_id.as_ref().and_then(|call| answered.get(call)).is_some_and(|later| *later > place) {
                continue;
            }
            let result_id = ids::derived(tenant_id, &["results", &id.to_string(), &at.to_string()], time);
            result.made = Some(time);
            pairs.settle(&mut result, result_id);
            settled.push((result_id, result));
        }
    }
    settled
}

/// Assigns the ids of calls and results: the source's own, unless missing or used before.
#[derive(Default)]
struct Pairs {
    used: HashSet<String>,
    answered: HashSet<String>,
    /// Calls without a result: id in the source, id here, name.
    open: Vec<(String, String, String)>,
}

impl Pairs {
    fn settle(&mut self, draft: &mut Draft, id: Uuid) {
        if !draft.calls.is_empty() {
            self.open.clear();
        }
        let mut renamed = BTreeMap::new();
        for (call, at) in draft.calls.iter_mut().zip(0_u32..) {
            let theirs = call.id.clone();
            if theirs.is_empty() || !self.used.insert(theirs.clone()) {
                call.id = format!("call_{id}_{at}");
                renamed.insert(call.id.clone(), Value::from(theirs.clone()));
            }
            self.open.push((theirs, call.id.clone(), call.name.clone()));
        }
        if draft.role == "tool" {
            let theirs = draft.call_id.take().unwrap_or_default();
            let call = self.open.iter().position(|(open, ..)| *open == theirs).map(|at| self.open.remove(at));
            let ours = match call {
                Some((_, ours, name)) => {
                    draft.tool_name.get_or_insert(name);
                    ours
                }
                None if theirs.is_empty() || self.answered.contains(&theirs) => format!("call_{id}"),
                None => theirs.clone(),
            };
            if ours != theirs {
                renamed.insert(ours.clone(), theirs.into());
            }
            self.answered.insert(ours.clone());
            draft.call_id = Some(ours);
        }
        if !renamed.is_empty() {
            let renamed: Map<String, Value> = renamed.into_iter().collect();
            draft.metadata.insert("imported_call_ids".to_owned(), renamed.into());
        }
    }
}
