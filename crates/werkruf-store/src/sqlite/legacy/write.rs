//! Writes a plan to the tables. Existing rows stay unchanged; a dry run counts the same new rows as a real run.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::Value;
use werkruf_contract::Uuid;

use crate::legacy::call::PlannedCall;
use crate::legacy::ids;
use crate::legacy::message::Draft;
use crate::legacy::plan::PlannedConversation;
use crate::legacy::{ALREADY_IMPORTED, ASSISTANT, OTHER_TENANT, Open, RUNNING, user_of};
use crate::sqlite::history::make_lease;
use crate::sqlite::insert;
use crate::sqlite::row::first;
use crate::sqlite::text::{Id, Stamp, id_or_null};
use crate::{LegacyReport, StoreError};

/// The target of an import, and whether it is a dry run.
#[derive(Clone)]
pub(super) struct Writing {
    pub(super) tenant_id: Uuid,
    pub(super) user_id: Option<String>,
    pub(super) dry_run: bool,
}

impl Writing {
    /// Writes a conversation with its messages and calls.
    pub(super) fn conversation(&self, c: &Connection, planned: &PlannedConversation, report: &mut LegacyReport) -> Result<(), StoreError> {
        let open = self.open(c, planned, report)?;
        let mut seq = next_seq(c, self.tenant_id, planned.id)?;
        for (id, draft) in &planned.messages {
            let exists_already = exists(c, "SELECT 1 FROM messages WHERE conversation_id = ?1 AND id = ?2", planned.id, *id)?;
            match (&open, exists_already) {
                (_, true) => report.skip_origin(draft.origin.as_ref(), ALREADY_IMPORTED),
                (Open::No(reason), false) => report.skip_origin(draft.origin.as_ref(), reason),
                (Open::Yes { .. }, false) => {
                    if !self.dry_run {
                        self.message(c, planned, *id, draft, seq)?;
                    }
                    seq += 1;
                    report.wrote("messages");
                }
            }
        }
        if !self.dry_run && matches!(open, Open::Yes { .. }) {
            let updated = c
                .prepare_cached("UPDATE leases SET next_message_seq = ?3 WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner IS NULL")?
                .execute(params![Id::from(self.tenant_id), Id::from(planned.id), seq])?;
            if updated != 1 {
                return Err(StoreError::Busy);
            }
        }
        for call in &planned.calls {
            match &open {
                Open::Yes { user_id } => self.call(c, call, user_id, planned.created_at, report)?,
                Open::No(reason) => report.skip(&call.origin.table, &call.origin.id, *reason),
            }
        }
        Ok(())
    }

    /// Writes a call without a conversation, with its own turn.
    pub(super) fn loose(&self, c: &Connection, call: &PlannedCall, report: &mut LegacyReport) -> Result<(), StoreError> {
        let user_id = user_of(None, self.user_id.as_deref(), None);
        self.call(c, call, &user_id, call.row.created_at, report)
    }

    /// Finds or creates the conversation.
    fn open(&self, c: &Connection, planned: &PlannedConversation, report: &mut LegacyReport) -> Result<Open, StoreError> {
        let mut statement = c.prepare_cached("SELECT tenant_id, user_id FROM conversations WHERE id = ?1")?;
        let existing = first(&mut statement, params![Id::from(planned.id)], |columns| Ok((columns.id()?, columns.text()?)))?;
        match existing {
            Some((tenant, _)) if tenant != self.tenant_id => {
                report.skip_origin(planned.origin.as_ref(), OTHER_TENANT);
                Ok(Open::No(OTHER_TENANT))
            }
            Some((_, user_id)) => {
                report.skip_origin(planned.origin.as_ref(), ALREADY_IMPORTED);
                let sql = "SELECT 1 FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2 AND owner IS NOT NULL";
                Ok(if exists(c, sql, self.tenant_id, planned.id)? { Open::No(RUNNING) } else { Open::Yes { user_id } })
            }
            None => {
                let user_id = self.user(c, planned.user.as_deref())?;
                if !self.dry_run {
                    self.make(c, planned, &user_id)?;
                }
                report.wrote("conversations");
                Ok(Open::Yes { user_id })
            }
        }
    }

    fn make(&self, c: &Connection, planned: &PlannedConversation, user_id: &str) -> Result<(), StoreError> {
        c.prepare_cached(
            "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            Id::from(planned.id),
            Id::from(self.tenant_id),
            user_id,
            planned.channel,
            ASSISTANT,
            planned.title,
            Value::Object(planned.state.clone()).to_string(),
            Stamp::from(planned.created_at),
            Stamp::from(planned.updated_at),
        ])?;
        make_lease(c, self.tenant_id, planned.id, 0)
    }

    /// The user of a conversation: by id or external id, else the user that the operator named.
    fn user(&self, c: &Connection, named: Option<&str>) -> Result<String, StoreError> {
        let mut statement =
            c.prepare_cached("SELECT id FROM users WHERE tenant_id = ?1 AND (external_id = ?2 OR CAST(id AS TEXT) = ?2) ORDER BY external_id IS NULL LIMIT 1")?;
        let known = match named {
            Some(named) => first(&mut statement, params![Id::from(self.tenant_id), named], |columns| columns.int())?,
            None => None,
        };
        Ok(user_of(known, self.user_id.as_deref(), named))
    }

    fn message(&self, c: &Connection, home: &PlannedConversation, id: Uuid, draft: &Draft, seq: i64) -> Result<(), StoreError> {
        let mut call_id = draft.call_id.clone();
        let taken = "SELECT 1 FROM messages WHERE conversation_id = ?1 AND tool_call_id = ?2";
        if let Some(wanted) = &call_id
            && c.prepare_cached(taken)?.exists(params![Id::from(home.id), wanted])?
        {
            // The conversation was continued here meanwhile and used the same call id.
            call_id = Some(format!("call_{id}"));
        }
        c.prepare_cached(
            "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name,
               status, metadata, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            Id::from(id),
            Id::from(self.tenant_id),
            Stamp::from(draft.made.unwrap_or(home.created_at)),
            Id::from(home.id),
            draft.content,
            draft.role,
            draft.tool_calls(),
            call_id,
            draft.tool_name,
            draft.status,
            Value::Object(draft.metadata.clone()).to_string(),
            seq,
        ])?;
        Ok(())
    }

    /// Writes a call after those that its turn already has.
    fn call(
        &self,
        c: &Connection,
        call: &PlannedCall,
        user_id: &str,
        made: Timestamp,
        report: &mut LegacyReport,
    ) -> Result<(), StoreError> {
        if exists(c, "SELECT 1 FROM tool_calls WHERE tenant_id = ?1 AND id = ?2", self.tenant_id, call.row.id)? {
            report.skip(&call.origin.table, &call.origin.id, ALREADY_IMPORTED);
            return Ok(());
        }
        report.wrote("tool_calls");
        if self.dry_run {
            return Ok(());
        }
        let home = call.row.conversation_id.unwrap_or(call.row.id);
        let turn_id = ids::derived(self.tenant_id, &["turns", &home.to_string()], made);
        self.turn(c, call, turn_id, user_id)?;
        let mut last = c.prepare_cached("SELECT coalesce(max(step), 0) FROM tool_calls WHERE turn_id = ?1")?;
        let step = first(&mut last, params![Id::from(turn_id)], |columns| columns.small())?.unwrap_or(0) + 1;
        let mut row = call.row.clone();
        (row.turn_id, row.step) = (turn_id, step);
        insert::call(c, &row)?;
        let counted = c.prepare_cached("UPDATE turns SET step = ?3 WHERE tenant_id = ?1 AND id = ?2")?.execute(params![
            Id::from(self.tenant_id),
            Id::from(turn_id),
            step
        ])?;
        if counted == 1 { Ok(()) } else { Err(StoreError::Moved { what: "turn", id: turn_id.to_string() }) }
    }

    /// Writes the ended turn that holds all imported calls of a conversation.
    fn turn(&self, c: &Connection, call: &PlannedCall, id: Uuid, user_id: &str) -> Result<(), StoreError> {
        c.prepare_cached(
            "INSERT INTO turns (id, tenant_id, conversation_id, user_id, kind, assistant, status, created_at, updated_at, finished_at)
             VALUES (?1, ?2, ?3, ?4, 'chat', ?5, 'completed', ?6, ?6, ?6) ON CONFLICT (tenant_id, id) DO NOTHING",
        )?
        .execute(params![
            Id::from(id),
            Id::from(self.tenant_id),
            id_or_null(call.row.conversation_id),
            user_id,
            ASSISTANT,
            Stamp::from(call.row.created_at),
        ])?;
        Ok(())
    }
}

fn exists(c: &Connection, sql: &str, one: Uuid, two: Uuid) -> Result<bool, StoreError> {
    Ok(c.prepare_cached(sql)?.exists(params![Id::from(one), Id::from(two)])?)
}

fn next_seq(c: &Connection, tenant_id: Uuid, conversation_id: Uuid) -> Result<i64, StoreError> {
    let mut statement = c.prepare_cached("SELECT next_message_seq FROM leases WHERE tenant_id = ?1 AND conversation_id = ?2")?;
    Ok(first(&mut statement, params![Id::from(tenant_id), Id::from(conversation_id)], |columns| columns.int())?.unwrap_or(1))
}
