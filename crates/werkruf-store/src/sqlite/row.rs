//! From SQLite's rows to ours. Columns are read by number, in the order of the column lists here.

use jiff::Timestamp;
use rusqlite::types::ValueRef;
use rusqlite::{Params, Row, Statement};
use werkruf_contract::{CallKind, CallStatus, Effect, EventType, State, TurnStatus, Uuid};

use super::text::parse_stamp;
use crate::{AttemptRow, CallRow, ConversationRow, EventRow, KeyRow, MessageRow, Scopes, StoreError, TurnRow};

pub(super) const CONVERSATION: &str = "id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at";

pub(super) const MESSAGE: &str =
    "id, conversation_id, created_at, content, role, tool_calls, tool_call_id, tool_name, status, metadata, seq, turn_id, tokens";

pub(super) const TURN: &str = "id, tenant_id, conversation_id, user_id, kind, assistant, status, step, takeovers, stalled, key_id, cancel_requested, \
     error, error_code, message, created_at, updated_at, finished_at";

pub(super) const CALL: &str = "id, tenant_id, conversation_id, turn_id, step, output_index, response_id, kind, tool_name, call_id, \
     item_id, status, request, raw_arguments, repairs, response, error, error_type, error_code, error_detail, effect, attempt, \
     cache_hit, dedupe_key, dedupe_of, retry_of, idempotency_key, permission, context, trace_id, run_id, ingestion_run_id, \
     workflow_id, case_id, meta, created_at, updated_at, started_at, finished_at";

pub(super) const KEY: &str = "id, tenant_id, user_id, scopes, name, expires_at, created_at";

/// One row, read from left to right.
pub(super) struct Columns<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl<'r> Columns<'r> {
    pub(super) const fn new(row: &'r Row<'r>) -> Self {
        Self { row, next: 0 }
    }

    fn value(&mut self) -> Result<ValueRef<'r>, StoreError> {
        let value = self.row.get_ref(self.next)?;
        self.next += 1;
        Ok(value)
    }

    fn broken(&self, wanted: &str) -> StoreError {
        let column = self.row.as_ref().column_name(self.next - 1).unwrap_or("?");
        StoreError::Broken(format!("column {column} is no {wanted}"))
    }

    fn str_or_null(&mut self) -> Result<Option<&'r str>, StoreError> {
        match self.value()? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => std::str::from_utf8(bytes).map(Some).map_err(|_| self.broken("text")),
            ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => Err(self.broken("text")),
        }
    }

    fn str(&mut self) -> Result<&'r str, StoreError> {
        self.str_or_null()?.ok_or_else(|| self.broken("text"))
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.str().map(str::to_owned)
    }

    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.str_or_null()?.map(str::to_owned))
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.value()? {
            ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
            ValueRef::Null | ValueRef::Text(_) | ValueRef::Integer(_) | ValueRef::Real(_) => Err(self.broken("bytes")),
        }
    }

    pub(super) fn id(&mut self) -> Result<Uuid, StoreError> {
        self.id_or_null()?.ok_or_else(|| self.broken("id"))
    }

    pub(super) fn id_or_null(&mut self) -> Result<Option<Uuid>, StoreError> {
        match self.str_or_null()? {
            Some(text) => Uuid::try_parse(text).map(Some).map_err(|_| self.broken("id")),
            None => Ok(None),
        }
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.time_or_null()?.ok_or_else(|| self.broken("time"))
    }

    pub(super) fn time_or_null(&mut self) -> Result<Option<Timestamp>, StoreError> {
        match self.str_or_null()? {
            Some(text) => parse_stamp(text.as_bytes()).map(Some).ok_or_else(|| self.broken("time")),
            None => Ok(None),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        self.int_or_null()?.ok_or_else(|| self.broken("number"))
    }

    pub(super) fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        match self.value()? {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(number) => Ok(Some(number)),
            ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => Err(self.broken("number")),
        }
    }

    pub(super) fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| self.broken("count"))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    /// A word out of a fixed list.
    pub(super) fn word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.str()?;
        parse(text).ok_or_else(|| self.broken("known word"))
    }

    pub(super) fn state(&mut self) -> Result<State, StoreError> {
        let text = self.str()?;
        // Most conversations have none, and looking is cheaper than parsing.
        if text == "{}" {
            return Ok(State::new());
        }
        serde_json::from_str(text).map_err(|_| self.broken("JSON object"))
    }
}

/// The first row, if any, through `read`.
pub(super) fn first<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => read(&mut Columns::new(row)).map(Some),
        None => Ok(None),
    }
}

/// Every row through `read`.
pub(super) fn all<T>(
    statement: &mut Statement<'_>,
    params: impl Params,
    read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(&mut Columns::new(row))?);
    }
    Ok(found)
}

pub(super) fn conversation(c: &mut Columns<'_>) -> Result<ConversationRow, StoreError> {
    Ok(ConversationRow {
        id: c.id()?,
        tenant_id: c.id()?,
        user_id: c.text()?,
        channel: c.text()?,
        assistant: c.text()?,
        title: c.text()?,
        state: c.state()?,
        created_at: c.time()?,
        updated_at: c.time()?,
    })
}

pub(super) fn message(c: &mut Columns<'_>) -> Result<MessageRow, StoreError> {
    Ok(MessageRow {
        id: c.id()?,
        conversation_id: c.id()?,
        created_at: c.time()?,
        content: c.text()?,
        role: c.text()?,
        tool_calls: c.text_or_null()?,
        tool_call_id: c.text_or_null()?,
        tool_name: c.text_or_null()?,
        status: c.text_or_null()?,
        metadata: c.text()?,
        seq: c.int_or_null()?,
        turn_id: c.id_or_null()?,
        tokens: c.int_or_null()?,
    })
}

pub(super) fn turn(c: &mut Columns<'_>) -> Result<TurnRow, StoreError> {
    Ok(TurnRow {
        id: c.id()?,
        tenant_id: c.id()?,
        conversation_id: c.id_or_null()?,
        user_id: c.text()?,
        kind: c.text()?,
        assistant: c.text()?,
        status: c.word(TurnStatus::parse)?,
        step: c.small()?,
        takeovers: c.small()?,
        stalled: c.small()?,
        key_id: c.id_or_null()?,
        cancel_requested: c.flag()?,
        error: c.text_or_null()?,
        error_code: c.text_or_null()?,
        message: c.text_or_null()?,
        created_at: c.time()?,
        updated_at: c.time()?,
        finished_at: c.time_or_null()?,
    })
}

pub(super) fn call(c: &mut Columns<'_>) -> Result<CallRow, StoreError> {
    Ok(CallRow {
        id: c.id()?,
        tenant_id: c.id()?,
        conversation_id: c.id_or_null()?,
        turn_id: c.id()?,
        step: c.small()?,
        output_index: c.small()?,
        response_id: c.text_or_null()?,
        kind: c.word(CallKind::parse)?,
        tool_name: c.text()?,
        call_id: c.text_or_null()?,
        item_id: c.text_or_null()?,
        status: c.word(CallStatus::parse)?,
        request: c.text_or_null()?,
        raw_arguments: c.text_or_null()?,
        repairs: c.text_or_null()?,
        response: c.text_or_null()?,
        error: c.text_or_null()?,
        error_type: c.text_or_null()?,
        error_code: c.text_or_null()?,
        error_detail: c.text_or_null()?,
        effect: c.word(Effect::parse)?,
        attempt: c.small()?,
        cache_hit: c.flag()?,
        dedupe_key: c.text_or_null()?,
        dedupe_of: c.id_or_null()?,
        retry_of: c.id_or_null()?,
        idempotency_key: c.text_or_null()?,
        permission: c.text_or_null()?,
        context: c.text()?,
        trace_id: c.text_or_null()?,
        run_id: c.text_or_null()?,
        ingestion_run_id: c.text_or_null()?,
        workflow_id: c.text_or_null()?,
        case_id: c.text_or_null()?,
        meta: c.text_or_null()?,
        created_at: c.time()?,
        updated_at: c.time()?,
        started_at: c.time_or_null()?,
        finished_at: c.time_or_null()?,
    })
}

pub(super) fn attempt(c: &mut Columns<'_>) -> Result<AttemptRow, StoreError> {
    Ok(AttemptRow {
        attempt: c.small()?,
        started_at: c.time()?,
        finished_at: c.time()?,
        status: c.word(CallStatus::parse)?,
        error: c.text()?,
    })
}

pub(super) fn event(c: &mut Columns<'_>) -> Result<EventRow, StoreError> {
    Ok(EventRow { seq: c.int()?, kind: c.word(EventType::parse)?, turn_id: c.id_or_null()?, data: c.text()?, created_at: c.time()? })
}

pub(super) fn key(c: &mut Columns<'_>) -> Result<KeyRow, StoreError> {
    Ok(KeyRow {
        id: c.id()?,
        tenant_id: c.id()?,
        user_id: c.text_or_null()?,
        scopes: c.word(|names| Scopes::parse(names.split(',').filter(|name| !name.is_empty())).ok())?,
        name: c.text_or_null()?,
        expires_at: c.time_or_null()?,
        created_at: c.time()?,
    })
}
