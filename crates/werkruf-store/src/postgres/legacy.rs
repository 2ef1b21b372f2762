//! [`Legacy`] on PostgreSQL: writes the rows of an older program, conversation by conversation, as `legacy::plan` has planned them.
//!
//! Runs in the system role, because an id may belong to another tenant already and the report must say so; every statement names its
//! tenant. Stored rows are not changed; a dry run counts the same new rows as a real one.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::types::Type;
use werkruf_contract::{BoxFuture, Uuid};

use super::PostgresStore;
use super::fault::Fault;
use super::flush::{DbRole, Transaction};
use super::param::{clean_or_null, ms, p};
use super::row::first;
use super::text::{clean, clean_json};
use super::turn_documents::{Call, document};
use crate::legacy::call::PlannedCall;
use crate::legacy::message::Draft;
use crate::legacy::plan::{Plan, PlannedConversation};
use crate::legacy::{ALREADY_IMPORTED, ASSISTANT, BATCH, OTHER_TENANT, Open, RUNNING, ids, prepare, user_of};
use crate::{Legacy, LegacyError, LegacyImport, LegacyReport, StoreError};

impl Legacy for PostgresStore {
    fn import_legacy(&self, request: LegacyImport) -> BoxFuture<'_, Result<LegacyReport, LegacyError>> {
        Box::pin(async move {
            let LegacyImport { source, tenant_id, user_id, max_state_bytes, dry_run } = request;
            let (plan, mut report) = prepare(source, tenant_id, max_state_bytes).await?;
            let import = Arc::new(Import { plan, tenant_id, user_id, dry_run });
            for from in (0..import.plan.conversations.len()).step_by(BATCH) {
                report = self.import_batch(&import, report, Some(from)).await?;
            }
            Ok(self.import_batch(&import, report, None).await?)
        })
    }
}

impl PostgresStore {
    /// A batch of conversations from this index on, or the calls outside any conversation; one transaction, which starts with the report
    /// of those before.
    async fn import_batch(&self, import: &Arc<Import>, so_far: LegacyReport, from: Option<usize>) -> Result<LegacyReport, StoreError> {
        let (import, so_far) = (Arc::clone(import), Arc::new(Mutex::new(so_far)));
        self.with(DbRole::System, move |transaction| {
            let import = Arc::clone(&import);
            let mut report = so_far.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Box::pin(async move {
                match from {
                    Some(from) => {
                        for planned in import.plan.conversations.iter().skip(from).take(BATCH) {
                            import.conversation(transaction, planned, &mut report).await?;
                        }
                    }
                    None => {
                        for call in &import.plan.loose {
                            import.loose(transaction, call, &mut report).await?;
                        }
                    }
                }
                Ok(report)
            })
        })
        .await
    }
}

/// The rows, their owner, and whether they are written at all.
struct Import {
    plan: Plan,
    tenant_id: Uuid,
    user_id: Option<String>,
    dry_run: bool,
}

impl Import {
    /// A conversation with everything in it.
    async fn conversation(&self, t: &Transaction, planned: &PlannedConversation, report: &mut LegacyReport) -> Result<(), Fault> {
        let open = self.open(t, planned, report).await?;
        let mut seq = self.next_seq(t, planned.id).await?;
        for (id, draft) in &planned.messages {
            let stored = "SELECT 1 FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND id = $3";
            let is_stored = !t.query(stored, &[p(&self.tenant_id), p(&planned.id), p(id)]).await?.is_empty();
            match (&open, is_stored) {
                (_, true) => report.skip_origin(draft.origin.as_ref(), ALREADY_IMPORTED),
                (Open::No(reason), false) => report.skip_origin(draft.origin.as_ref(), reason),
                (Open::Yes { .. }, false) => {
                    if !self.dry_run {
                        self.message(t, planned, *id, draft, seq).await?;
                    }
                    seq += 1;
                    report.wrote("messages");
                }
            }
        }
        if !self.dry_run && matches!(open, Open::Yes { .. }) {
            let sql =
                "UPDATE leases SET next_message_seq = $3 WHERE tenant_id = $1 AND conversation_id = $2 AND owner IS NULL RETURNING true";
            if t.query(sql, &[p(&self.tenant_id), p(&planned.id), p(&seq)]).await?.len() != 1 {
                return Err(StoreError::Busy.into());
            }
        }
        for call in &planned.calls {
            match &open {
                Open::Yes { user_id } => self.call(t, call, user_id, planned.created_at, report).await?,
                Open::No(reason) => report.skip(&call.origin.table, &call.origin.id, *reason),
            }
        }
        Ok(())
    }

    /// A call outside any conversation, with a turn of its own.
    async fn loose(&self, t: &Transaction, call: &PlannedCall, report: &mut LegacyReport) -> Result<(), Fault> {
        let user_id = user_of(None, self.user_id.as_deref(), None);
        self.call(t, call, &user_id, call.row.created_at, report).await
    }

    /// Finds or creates the conversation.
    async fn open(&self, t: &Transaction, planned: &PlannedConversation, report: &mut LegacyReport) -> Result<Open, Fault> {
        let sql = "SELECT tenant_id, user_id FROM conversations WHERE id = $1 ORDER BY tenant_id <> $2 LIMIT 1";
        let stored = t.query(sql, &[p(&planned.id), p(&self.tenant_id)]).await?;
        match first(&stored, |columns| Ok((columns.id()?, columns.text()?)))? {
            Some((tenant, _)) if tenant != self.tenant_id => {
                report.skip_origin(planned.origin.as_ref(), OTHER_TENANT);
                Ok(Open::No(OTHER_TENANT))
            }
            Some((_, user_id)) => {
                report.skip_origin(planned.origin.as_ref(), ALREADY_IMPORTED);
                // Locked, so that no turn starts while the history grows.
                let sql = "SELECT owner IS NOT NULL FROM leases WHERE tenant_id = $1 AND conversation_id = $2 FOR UPDATE";
                let held = t.query(sql, &[p(&self.tenant_id), p(&planned.id)]).await?;
                let held = first(&held, |columns| columns.flag())?.unwrap_or(false);
                Ok(if held { Open::No(RUNNING) } else { Open::Yes { user_id } })
            }
            None => {
                let user_id = self.user(t, planned.user.as_deref()).await?;
                if !self.dry_run {
                    self.create(t, planned, &user_id).await?;
                }
                report.wrote("conversations");
                Ok(Open::Yes { user_id })
            }
        }
    }

    async fn create(&self, t: &Transaction, planned: &PlannedConversation, user_id: &str) -> Result<(), Fault> {
        let state = Value::Object(planned.state.clone()).to_string();
        let (state, user_id, channel, title) = (clean_json(&state), clean(user_id), clean(&planned.channel), clean(&planned.title));
        let (created_at, updated_at) = (ms(planned.created_at), ms(planned.updated_at));
        let sql = "INSERT INTO conversations (id, tenant_id, user_id, channel, assistant, title, state, created_at, updated_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9)";
        let values = [
            p(&planned.id),
            p(&self.tenant_id),
            p(&user_id),
            p(&channel),
            p(&ASSISTANT),
            p(&title),
            p(&state),
            p(&created_at),
            p(&updated_at),
        ];
        t.query(sql, &values).await?;
        let lease = "INSERT INTO leases (tenant_id, conversation_id, epoch, next_event_seq, next_message_seq) VALUES ($1, $2, 0, 1, 1)";
        t.query(lease, &[p(&self.tenant_id), p(&planned.id)]).await?;
        Ok(())
    }

    /// The user that the other program names, by number or external id; else the one that the operator named.
    async fn user(&self, t: &Transaction, named: Option<&str>) -> Result<String, Fault> {
        let sql = "SELECT id FROM users WHERE tenant_id = $1 AND (external_id = $2 OR id::text = $2) ORDER BY external_id IS NULL LIMIT 1";
        let known = match named {
            Some(named) => first(&t.query(sql, &[p(&self.tenant_id), p(&clean(named))]).await?, |columns| columns.int())?,
            None => None,
        };
        Ok(user_of(known, self.user_id.as_deref(), named))
    }

    async fn message(&self, t: &Transaction, conversation: &PlannedConversation, id: Uuid, draft: &Draft, seq: i64) -> Result<(), Fault> {
        let mut call_id = draft.call_id.clone();
        let taken = "SELECT 1 FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND tool_call_id = $3";
        if let Some(wanted) = &call_id
            && !t.query(taken, &[p(&self.tenant_id), p(&conversation.id), p(&clean(wanted))]).await?.is_empty()
        {
            // The conversation has continued here meanwhile and used the same id.
            call_id = Some(format!("call_{id}"));
        }
        let (tool_calls, metadata) = (draft.tool_calls(), Value::Object(draft.metadata.clone()).to_string());
        let (tool_calls, metadata) = (tool_calls.as_deref().map(clean_json), clean_json(&metadata));
        let (content, call_id, tool_name) =
            (clean(&draft.content), clean_or_null(call_id.as_deref()), clean_or_null(draft.tool_name.as_deref()));
        let made = ms(draft.made.unwrap_or(conversation.created_at));
        let sql = "INSERT INTO messages (id, tenant_id, created_at, conversation_id, content, role, tool_calls, tool_call_id, tool_name,
                     status, metadata, seq) VALUES ($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9, $10, $11::jsonb, $12)";
        let values = [
            p(&id),
            p(&self.tenant_id),
            p(&made),
            p(&conversation.id),
            p(&content),
            p(&draft.role),
            p(&tool_calls),
            p(&call_id),
            p(&tool_name),
            p(&draft.status),
            p(&metadata),
            p(&seq),
        ];
        t.query(sql, &values).await?;
        Ok(())
    }

    /// A call, after those that its turn has already.
    async fn call(
        &self,
        t: &Transaction,
        call: &PlannedCall,
        user_id: &str,
        made: Timestamp,
        report: &mut LegacyReport,
    ) -> Result<(), Fault> {
        let stored = "SELECT 1 FROM tool_calls WHERE tenant_id = $1 AND id = $2";
        if !t.query(stored, &[p(&self.tenant_id), p(&call.row.id)]).await?.is_empty() {
            report.skip(&call.origin.table, &call.origin.id, ALREADY_IMPORTED);
            return Ok(());
        }
        report.wrote("tool_calls");
        if self.dry_run {
            return Ok(());
        }
        let stream_id = call.row.conversation_id.unwrap_or(call.row.id);
        let turn_id = ids::derived(self.tenant_id, &["turns", &stream_id.to_string()], made);
        self.turn(t, call, turn_id, user_id).await?;
        // The turn's step counts its calls; raising it locks the row.
        let sql = "UPDATE turns SET step = step + 1 WHERE tenant_id = $1 AND id = $2 RETURNING step";
        let step = first(&t.query(sql, &[p(&self.tenant_id), p(&turn_id)]).await?, |columns| columns.small())?;
        let step = step.ok_or_else(|| StoreError::Moved { what: "turn", id: turn_id.to_string() })?;
        let mut row = call.row.clone();
        (row.turn_id, row.step) = (turn_id, step);
        let calls = document(&[Call::from(&row)])?;
        t.query("SELECT put_calls($1::text::jsonb)::text", &[(&calls, Type::TEXT)]).await?;
        Ok(())
    }

    /// The one turn for everything that the other program did in a conversation. It has ended.
    async fn turn(&self, t: &Transaction, call: &PlannedCall, id: Uuid, user_id: &str) -> Result<(), Fault> {
        let (made, user_id) = (ms(call.row.created_at), clean(user_id));
        let sql =
            "INSERT INTO turns (id, tenant_id, conversation_id, user_id, kind, assistant, status, created_at, updated_at, finished_at)
                   VALUES ($1, $2, $3, $4, 'chat', $5, 'completed', $6, $6, $6) ON CONFLICT (tenant_id, id) DO NOTHING";
        let values = [p(&id), p(&self.tenant_id), p(&call.row.conversation_id), p(&user_id), p(&ASSISTANT), p(&made)];
        t.query(sql, &values).await?;
        Ok(())
    }

    async fn next_seq(&self, t: &Transaction, conversation_id: Uuid) -> Result<i64, Fault> {
        let sql = "SELECT next_message_seq FROM leases WHERE tenant_id = $1 AND conversation_id = $2";
        let rows = t.query(sql, &[p(&self.tenant_id), p(&conversation_id)]).await?;
        Ok(first(&rows, |columns| columns.int())?.unwrap_or(1))
    }
}
