//! [`Maintenance`] on PostgreSQL. A person's content is removed from every table; ids, times, statuses and usage rows stay, so that the
//! registry remains readable.
//!
//! Invariants: one transaction; a turn that a process is running is never touched; rows of other people keep their content. A new text
//! or JSON column must be handled here or be named with a reason in SQLite's `erase_tests.rs`; a module says in its list of tables what
//! happens with its rows.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::hold::{changed, end_turn};
use super::manage_people::lock_people;
use super::param::{ms, p};
use super::row::{self, all};
use super::text::clean;
use super::{PostgresStore, audit, budgets};
use crate::module::rows_to_erase;
use crate::reading::CONNECTION;
use crate::{
    Author, Backup, CloseReason, Erased, Maintenance, MaintenanceError, MaintenanceFuture, Modules, Recorder, StoreError, TurnCloser,
    TurnRow, crash,
};

impl Maintenance for PostgresStore {
    fn back_up(&self, target: PathBuf, _force: bool) -> MaintenanceFuture<'_, Backup> {
        let why = "PostgreSQL is backed up with its own tools: pg_dump --format=custom, or continuous archiving; see docs/operations.md";
        Box::pin(async move { Err(MaintenanceError::Unfit { path: target, why: why.to_owned() }) })
    }
    fn erase_person(
        &self,
        tenant_id: Uuid,
        user_id: String,
        cancel: bool,
        closer: Arc<dyn TurnCloser>,
        by: Author,
        now: Timestamp,
    ) -> MaintenanceFuture<'_, Option<Erased>> {
        Box::pin(async move {
            let (user_id, of_modules) = (clean(&user_id).into_owned(), statements_of(self.modules));
            let erasure =
                Arc::new(Erasure { tenant_id, user_id, cancel, closer, of_modules, now: ms(now), by, recorder: self.recorder.clone() });
            let erasing = self.with(DbRole::Tenant(tenant_id), move |transaction| {
                let erasure = Arc::clone(&erasure);
                Box::pin(async move { erasure.run(transaction).await })
            });
            let erased = erasing.await?;
            crash::point("erased");
            Ok(erased)
        })
    }
    fn unfinished_turns_of(&self, tenant_id: Uuid, user_id: String) -> MaintenanceFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let user_id = clean(&user_id);
            let rows = self.query(DbRole::Tenant(tenant_id), &unfinished_sql(), &[p(&tenant_id), p(&user_id)]).await?;
            Ok(all(&rows, row::turn)?.into_iter().map(|turn| turn.id).collect())
        })
    }
}

fn unfinished_sql() -> String {
    format!(
        "SELECT {} FROM turns WHERE finished_at IS NULL AND tenant_id = $1 AND (user_id = $2 OR conversation_id IN
           (SELECT id FROM conversations WHERE tenant_id = $1 AND user_id = $2)) ORDER BY status = 'accepted', id",
        row::TURN
    )
}

// $1 tenant, $2 user.
const CONVERSATIONS: &str = "SELECT id FROM conversations WHERE tenant_id = $1 AND user_id = $2";
const TURNS: &str = "SELECT id FROM turns WHERE tenant_id = $1 AND (user_id = $2
      OR conversation_id IN (SELECT id FROM conversations WHERE tenant_id = $1 AND user_id = $2))";
const PERSON: &str =
    "UPDATE users SET first_name = 'erased', last_name = '', email = NULL, phone = NULL, phone_key = NULL, whatsapp_user_id = NULL,
    external_id = NULL, token_roles = NULL, token_roles_until = NULL, locale = 'en-US', time_zone = NULL
    WHERE tenant_id = $1 AND id::text = $2 RETURNING true";
const RIGHTS: &str = "DELETE FROM user_roles WHERE tenant_id = $1 AND user_id::text = $2";
/// Before the connections: a login that is being finished needs its request and has locked it, or finds it gone and stores nothing.
const LINKS: &str = "DELETE FROM connection_requests WHERE tenant_id = $1 AND user_id = $2";
/// The windows of the person and of their keys: `KIND/user/ID` and `KIND/key/ID`.
const RATES: &str = "DELETE FROM rate_windows WHERE tenant_id = $1 AND (substr(subject, strpos(subject, '/')) = '/user/' || $2
    OR substr(subject, strpos(subject, '/')) IN (SELECT '/key/' || id FROM api_keys WHERE tenant_id = $1 AND user_id = $2))";
const OUTBOX: &str = "SELECT erase_outbox($1, $2)::text";
const KEYS: &str = "DELETE FROM api_keys WHERE tenant_id = $1 AND user_id = $2 RETURNING true";

// $1 tenant, $2 conversations.
const MESSAGES: &str = "DELETE FROM messages WHERE tenant_id = $1 AND conversation_id = ANY ($2) RETURNING true";
const OF_CONVERSATIONS: [&str; 2] = [
    "DELETE FROM events WHERE tenant_id = $1 AND conversation_id = ANY ($2)",
    "UPDATE conversations SET title = '', state = '{}', metadata = '{}', summary = NULL, summary_until = NULL, summary_untrusted = NULL WHERE tenant_id = $1 AND id = ANY ($2)",
];

// $1 tenant, $2 turns. The name of an unknown tool was invented by a model, so it may be content.
const CALLS: &str = "UPDATE tool_calls SET request = NULL, raw_arguments = NULL, repairs = NULL, response = NULL, error = NULL,
    error_detail = NULL, context = '{}', meta = NULL, permission = NULL, dedupe_key = NULL, idempotency_key = NULL,
    tool_name = CASE error_code WHEN 'unknown_tool' THEN 'erased' ELSE tool_name END
    WHERE tenant_id = $1 AND turn_id = ANY ($2) RETURNING true";
const OF_TURNS: [&str; 6] = [
    "UPDATE conversations SET summary = NULL, summary_until = NULL, summary_untrusted = NULL WHERE tenant_id = $1
       AND id IN (SELECT conversation_id FROM turns WHERE tenant_id = $1 AND id = ANY ($2))",
    "UPDATE call_attempts SET error = '{}' WHERE tenant_id = $1
       AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = $1 AND turn_id = ANY ($2))",
    "UPDATE approvals SET arguments = '{}', arguments_digest = '' WHERE tenant_id = $1
       AND call_id IN (SELECT id FROM tool_calls WHERE tenant_id = $1 AND turn_id = ANY ($2))",
    "DELETE FROM inbox WHERE tenant_id = $1 AND turn_id = ANY ($2)",
    // A turn without a conversation is a stream of its own.
    "DELETE FROM events WHERE tenant_id = $1 AND conversation_id = ANY ($2)",
    "UPDATE turns SET partial = NULL, error = NULL, message = NULL, client = NULL, transcript_digest = NULL, request_digest = NULL, context = NULL, inbound = NULL
       WHERE tenant_id = $1 AND id = ANY ($2)",
];
/// Messages of the person in another user's conversation lose their content and keep their seq, so that the history stays valid. The
/// person's own conversations are among these, and lose everything afterwards.
const IN_CONVERSATIONS: [&str; 2] = [
    "UPDATE messages SET content = '[erased]', metadata = '{}', tool_calls = CASE WHEN tool_calls IS NOT NULL THEN
       (SELECT coalesce(jsonb_agg(jsonb_build_object('id', call ->> 'id', 'name', call ->> 'name', 'args', '{}'::jsonb) ORDER BY n), '[]')
          FROM jsonb_array_elements(tool_calls) WITH ORDINALITY AS list (call, n)) END
     FROM turns WHERE turns.tenant_id = $1 AND turns.id = ANY ($2) AND messages.tenant_id = $1
       AND messages.conversation_id = turns.conversation_id AND messages.turn_id = turns.id",
    "UPDATE events SET data = json_build_object('turn_id', events.turn_id, 'erased', true)
     FROM turns WHERE turns.tenant_id = $1 AND turns.id = ANY ($2) AND events.tenant_id = $1
       AND events.conversation_id = turns.conversation_id AND events.turn_id = turns.id",
];

/// Records the erasure too, as the system role: a dump made afterwards contains the record.
const MARK: &str = "INSERT INTO settings (name, value) VALUES ($1, to_char($2 AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))
    ON CONFLICT (name) DO UPDATE SET value = greatest(settings.value, excluded.value)";

/// The erasure of one person.
struct Erasure {
    tenant_id: Uuid,
    user_id: String,
    cancel: bool,
    closer: Arc<dyn TurnCloser>,
    /// Statements on tables of modules; $1 tenant, $2 user.
    of_modules: Vec<String>,
    now: Timestamp,
    by: Author,
    recorder: Recorder,
}

fn statements_of(modules: Modules) -> Vec<String> {
    let sql = |(table, column)| format!("DELETE FROM {table} WHERE tenant_id = $1 AND {column}::text = $2");
    rows_to_erase(modules).map(sql).collect()
}

impl Erasure {
    /// `None` when no user has this id.
    async fn run(&self, transaction: &Transaction) -> Result<Option<Erased>, Fault> {
        // An edit or import that read the person before would write the person back afterwards.
        lock_people(transaction, self.tenant_id).await?;
        let user_id = self.user_id.as_str();
        let of_person = [p(&self.tenant_id), p(&user_id)];
        let unfinished: Vec<TurnRow> = all(&transaction.query(&unfinished_sql(), &of_person).await?, row::turn)?;
        for turn in unfinished {
            if !self.cancel {
                return Err(StoreError::Busy.into());
            }
            // Busy where a process is running it.
            end_turn(transaction, turn, CloseReason::Canceled, &*self.closer, self.now).await?;
        }
        // The outbox needs the addresses of the person.
        let found = [CONVERSATIONS, TURNS, budgets::OF_PERSON, OUTBOX, PERSON].map(|sql| Statement { sql, params: &of_person });
        let found = transaction.run(&found).await?;
        let [conversations, turns, budgets, _, person] = &found[..] else {
            return Err(StoreError::Broken("a result is missing".to_owned()).into());
        };
        let (conversations, turns) = (all(conversations, |columns| columns.id())?, all(turns, |columns| columns.id())?);
        let of_person_budgets = all(budgets, |columns| columns.id())?;
        if person.is_empty() && conversations.is_empty() && turns.is_empty() {
            return Ok(None);
        }
        let (of_turns, of_conversations) = ([p(&self.tenant_id), p(&turns)], [p(&self.tenant_id), p(&conversations)]);
        // The windows of the keys are found by the keys, so they go first.
        let connections = format!("DELETE FROM connections WHERE tenant_id = $1 AND user_id = $2 RETURNING {CONNECTION}");
        let [rates, rights, links, connections, keys] =
            [RATES, RIGHTS, LINKS, &connections, KEYS].map(|sql| Statement { sql, params: &of_person });
        let mut statements = vec![rates, rights, links];
        let counted = |statements: &mut Vec<_>, statement| {
            statements.push(statement);
            statements.len() - 1
        };
        let connections = counted(&mut statements, connections);
        let keys = counted(&mut statements, keys);
        let calls = counted(&mut statements, Statement { sql: CALLS, params: &of_turns });
        statements.extend(IN_CONVERSATIONS.iter().chain(&OF_TURNS).map(|sql| Statement { sql, params: &of_turns }));
        statements.extend(self.of_modules.iter().map(|sql| Statement { sql, params: &of_person }));
        statements.extend(OF_CONVERSATIONS.iter().map(|sql| Statement { sql, params: &of_conversations }));
        let messages = counted(&mut statements, Statement { sql: MESSAGES, params: &of_conversations });
        let done = transaction.run(&statements).await?;
        let rows = |place: usize| done.get(place).map_or(0, |rows| changed(rows.len()));
        let blanked = audit::blank(transaction, self.tenant_id, &self.user_id).await?;
        let name = format!("erased:{}:{}", self.tenant_id, self.user_id);
        transaction.query("SELECT set_config('role', 'werkruf_system', true)", &[]).await?;
        budgets::delete_all(transaction, self.tenant_id, &of_person_budgets).await?;
        transaction.query(MARK, &[p(&name.as_str()), p(&self.now)]).await?;
        let erased = Erased {
            tenant_id: self.tenant_id,
            user_id: self.user_id.clone(),
            erased_at: self.now,
            conversations: changed(conversations.len()),
            messages: rows(messages),
            turns: changed(turns.len()),
            calls: rows(calls),
            keys: rows(keys),
            // Dead rows stay in the files until PostgreSQL's vacuum removes them.
            compacted: false,
            copies: Vec::new(),
            connections: done.get(connections).map_or(Ok(Vec::new()), |rows| all(rows, row::connection))?,
        };
        audit::record(transaction, &self.recorder, self.tenant_id, &self.by, &[erased.act(&blanked)], self.now).await?;
        crash::point("inside_erase");
        Ok(Some(erased))
    }
}
