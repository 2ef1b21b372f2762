//! From PostgreSQL's rows to ours. Columns are read by number, in the order of the column lists here.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use werkruf_contract::{CallKind, CallStatus, Effect, EventType, State, TurnStatus, Uuid};

use super::text::Text;
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

pub(super) const EVENT: &str = "seq, type, turn_id, data, created_at";

/// One row, read from left to right.
pub(super) struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Columns<'r> {
    pub(super) const fn new(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    fn value<T: FromSql<'r>>(&mut self) -> Result<Option<T>, StoreError> {
        let at = self.next;
        self.next += 1;
        self.row.try_get(at).map_err(|error| StoreError::Broken(error.to_string()))
    }

    fn broken(&self, wanted: &str) -> StoreError {
        let column = self.row.columns().get(self.next - 1).map_or("?", |column| column.name());
        StoreError::Broken(format!("column {column} is no {wanted}"))
    }

    fn must<T: FromSql<'r>>(&mut self, wanted: &str) -> Result<T, StoreError> {
        self.value()?.ok_or_else(|| self.broken(wanted))
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.must::<Text>("text").map(|text| text.0)
    }

    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        Ok(self.value::<Text>()?.map(|text| text.0))
    }

    pub(super) fn id(&mut self) -> Result<Uuid, StoreError> {
        self.must("id")
    }

    pub(super) fn id_or_null(&mut self) -> Result<Option<Uuid>, StoreError> {
        self.value()
    }

    pub(super) fn ids(&mut self) -> Result<Vec<Uuid>, StoreError> {
        self.must("list of ids")
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.must("time")
    }

    pub(super) fn time_or_null(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.value()
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        self.must("bytes")
    }

    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        self.must("number")
    }

    pub(super) fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        self.value()
    }

    pub(super) fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| self.broken("count"))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        self.must("flag")
    }

    pub(super) fn flag_or_null(&mut self) -> Result<Option<bool>, StoreError> {
        self.value()
    }

    /// A word out of a fixed list.
    pub(super) fn word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| self.broken("known word"))
    }

    pub(super) fn state(&mut self) -> Result<State, StoreError> {
        self.state_or_null()?.ok_or_else(|| self.broken("JSON object"))
    }

    pub(super) fn state_or_null(&mut self) -> Result<Option<State>, StoreError> {
        let Some(text) = self.text_or_null()? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|_| self.broken("JSON object"))
    }
}

/// The first row, if any, through `read`.
pub(super) fn first<T>(rows: &[Row], read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    rows.first().map(|row| read(&mut Columns::new(row))).transpose()
}

/// The one row a statement always has.
pub(super) fn only<T>(rows: &[Row], read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
    first(rows, read)?.ok_or_else(|| StoreError::Broken("a statement that always answers has not".to_owned()))
}

/// Every row through `read`.
pub(super) fn all<T>(rows: &[Row], read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(|row| read(&mut Columns::new(row))).collect()
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
