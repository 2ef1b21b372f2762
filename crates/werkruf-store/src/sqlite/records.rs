//! [`Records`] on SQLite: rows by id, and lists.

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ToSql, params, params_from_iter};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::row::{self, all, all_within, first};
use super::text::{Id, id_or_null};
use crate::rows::NEWEST_BY_END;
use crate::{
    AttemptRow, CallFilter, CallRow, ConversationFilter, ConversationRow, IdOf, ListRow, MessageRow, Order, Page, Records, StoreError,
    StoreFuture, TurnRow,
};

impl Records for SqliteStore {
    fn conversation(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ConversationRow>> {
        Box::pin(self.readers.look_up(move |c| by_id(c, row::CONVERSATION, "conversations", tenant_id, id, row::conversation)))
    }
    fn conversations(&self, tenant_id: Uuid, filter: ConversationFilter, page: Page) -> StoreFuture<'_, Vec<ConversationRow>> {
        Box::pin(self.readers.list(move |c| {
            let mut list = List::new(row::CONVERSATION_WITHOUT_STATE, "conversations", tenant_id);
            if let Some(user_id) = filter.user_id {
                list.only("user_id = ?", user_id);
            }
            if !filter.last_used_first {
                return list.page(c, page, row::conversation);
            }
            if let Some(after) = page.after {
                list.only("(updated_at, id) < (SELECT updated_at, id FROM conversations AS last WHERE last.tenant_id = conversations.tenant_id AND last.id = ?)", Id::from(after));
            }
            list.sql.push_str(" ORDER BY updated_at DESC, id DESC LIMIT ?");
            list.values.push(Box::new(page.limit));
            list.read(c, page, row::conversation)
        }))
    }
    fn messages(&self, tenant_id: Uuid, conversation_id: Uuid, page: Page) -> StoreFuture<'_, Vec<MessageRow>> {
        Box::pin(self.readers.list(move |c| messages(c, &Id::from(tenant_id), &Id::from(conversation_id), page)))
    }
    fn turn(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<TurnRow>> {
        Box::pin(self.readers.look_up(move |c| by_id(c, row::TURN, "turns", tenant_id, id, row::turn)))
    }
    fn call(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<CallRow>> {
        Box::pin(self.readers.look_up(move |c| by_id(c, row::CALL, "tool_calls", tenant_id, id, row::call)))
    }
    fn calls(&self, tenant_id: Uuid, filter: CallFilter, page: Page) -> StoreFuture<'_, Vec<CallRow>> {
        Box::pin(self.readers.list(move |c| {
            let mut list = List::new(row::CALL, "tool_calls", tenant_id);
            if let Some(id) = filter.conversation_id {
                list.only("conversation_id = ?", Id::from(id));
            }
            if let Some(id) = filter.turn_id {
                list.only_few("turn_id = ?", Id::from(id));
            }
            if let Some(user_id) = filter.user_id {
                list.only(
                    "EXISTS (SELECT 1 FROM turns WHERE turns.tenant_id = tool_calls.tenant_id AND turns.id = tool_calls.turn_id
                       AND turns.user_id = ?)",
                    user_id,
                );
            }
            if let Some(tool) = filter.tool {
                list.only("tool_name = ?", tool);
            }
            if let Some(status) = filter.status {
                list.only("status = ?", status.as_str());
            }
            list.page(c, page, row::call)
        }))
    }
    fn attempts(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, Vec<AttemptRow>> {
        Box::pin(self.readers.look_up(move |c| {
            let mut statement = c.prepare_cached(
                "SELECT attempt, started_at, finished_at, status, error FROM call_attempts WHERE tenant_id = ?1 AND call_id = ?2
                 ORDER BY attempt",
            )?;
            all(&mut statement, params![Id::from(tenant_id), Id::from(call_id)], row::attempt)
        }))
    }
    fn ids_like(&self, tenant_id: Uuid, of: IdOf, text: String, limit: u32) -> StoreFuture<'_, Vec<Uuid>> {
        Box::pin(self.readers.list(move |c| ids_like(c, of.table(), tenant_id, text, limit)))
    }
    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let read = |c: &Connection| {
                c.prepare_cached("SELECT count(*) FROM settings")?.query_row([], |row| row.get::<_, i64>(0))?;
                Ok(())
            };
            if self.writer.is_full() {
                // While the server reports a full disk it accepts no writes, so this probe must find out when there is space again.
                for value in PROBES {
                    self.writer.submit(move |c| probe(c, value)).await?;
                }
                self.writer.disk_has_space();
            } else {
                self.writer.submit(read).await?;
            }
            self.readers.look_up(read).await
        })
    }
}

/// Writes as much as a large turn would, and then an empty value. The first value is random because SQLite writes no page for an unchanged value.
const PROBES: [&str; 2] = ["hex(randomblob(65536))", "''"];

fn probe(c: &Connection, value: &str) -> Result<(), StoreError> {
    let sql =
        format!("INSERT INTO settings (name, value) VALUES ('probe', {value}) ON CONFLICT (name) DO UPDATE SET value = excluded.value");
    c.prepare_cached(&sql)?.execute([])?;
    Ok(())
}

fn by_id<T>(
    c: &Connection,
    columns: &str,
    table: &str,
    tenant_id: Uuid,
    id: Uuid,
    read: impl FnOnce(&mut row::Columns<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = c.prepare_cached(&format!("SELECT {columns} FROM {table} WHERE tenant_id = ?1 AND id = ?2"))?;
    first(&mut statement, params![Id::from(tenant_id), Id::from(id)], read)
}

/// A list by id, with optional conditions.
pub(super) struct List {
    sql: String,
    values: Vec<Box<dyn ToSql>>,
    /// The conditions leave few rows: sorting these is cheap, while a scan in the order of ids would read all rows of the tenant.
    few: bool,
}

impl List {
    pub(super) fn new(columns: &str, table: &str, tenant_id: Uuid) -> Self {
        let sql = format!("SELECT {columns} FROM {table} WHERE tenant_id = ?");
        Self { sql, values: vec![Box::new(Id::from(tenant_id))], few: false }
    }

    /// A condition that few rows meet.
    pub(super) fn only_few(&mut self, condition: &str, value: impl ToSql + 'static) {
        self.only(condition, value);
        self.few = true;
    }

    pub(super) fn only(&mut self, condition: &str, value: impl ToSql + 'static) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(Box::new(value));
    }

    /// Restricts the list to a page.
    fn limit_to(&mut self, page: Page) {
        let (after, direction) = match page.order {
            Order::OldestFirst => ("id > ?", ""),
            Order::NewestFirst => ("id < ?", " DESC"),
        };
        if let Some(id) = page.after {
            self.only(after, Id::from(id));
        }
        // The plus sign keeps the planner off the index on id.
        self.sql.push_str(if self.few { " ORDER BY +id" } else { " ORDER BY id" });
        self.sql.push_str(direction);
        self.sql.push_str(" LIMIT ?");
        self.values.push(Box::new(page.limit));
    }

    /// The statement of a page, whose query plan a test checks.
    #[cfg(test)]
    pub(super) fn page_sql(mut self) -> String {
        self.limit_to(Page::default());
        self.sql
    }

    pub(super) fn page<T: ListRow>(
        mut self,
        c: &Connection,
        page: Page,
        read: impl Fn(&mut row::Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.limit_to(page);
        self.read(c, page, read)
    }

    fn read<T: ListRow>(
        self,
        c: &Connection,
        page: Page,
        read: impl Fn(&mut row::Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = c.prepare_cached(&self.sql)?;
        all_within(&mut statement, params_from_iter(self.values.iter().map(AsRef::as_ref).map(Bound)), read, page.max_bytes)
    }
}

/// A borrowed parameter of any type.
struct Bound<'a>(&'a dyn ToSql);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

/// A range of messages: between two numbers, or the messages that wait.
#[derive(Clone, Copy)]
enum Range {
    Numbered { from: i64, to: i64 },
    Waiting,
}

/// Numbered messages by `seq`, then the waiting messages by id; reversed for newest first.
fn messages(c: &Connection, tenant: &Id, conversation: &Id, page: Page) -> Result<Vec<MessageRow>, StoreError> {
    let everything = Range::Numbered { from: 0, to: i64::MAX };
    let ranges: Vec<(Range, Option<Uuid>)> = match (page.after, page.order) {
        (None, Order::OldestFirst) => vec![(everything, None), (Range::Waiting, None)],
        (None, Order::NewestFirst) => vec![(Range::Waiting, None), (everything, None)],
        (Some(after), order) => {
            let mut statement = c.prepare_cached("SELECT seq FROM messages WHERE id = ?1 AND tenant_id = ?2 AND conversation_id = ?3")?;
            let position = first(&mut statement, params![Id::from(after), tenant, conversation], |columns| columns.int_or_null())?;
            match (position, order) {
                (None, _) => return Ok(Vec::new()),
                (Some(Some(seq)), Order::OldestFirst) => {
                    vec![(Range::Numbered { from: seq + 1, to: i64::MAX }, None), (Range::Waiting, None)]
                }
                (Some(Some(seq)), Order::NewestFirst) => vec![(Range::Numbered { from: 0, to: seq - 1 }, None)],
                (Some(None), Order::OldestFirst) => vec![(Range::Waiting, Some(after))],
                (Some(None), Order::NewestFirst) => vec![(Range::Waiting, Some(after)), (everything, None)],
            }
        }
    };
    let mut found = Vec::new();
    for (range, after) in ranges {
        let limit = page.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let max_bytes = page.max_bytes.saturating_sub(found.iter().map(ListRow::list_bytes).sum());
        found.extend(read_range(c, tenant, conversation, range, Page { after, limit, max_bytes, ..page })?);
    }
    Ok(found)
}

fn read_range(
    c: &Connection,
    tenant: &Id,
    conversation: &Id,
    range: Range,
    Page { after, limit, order, max_bytes }: Page,
) -> Result<Vec<MessageRow>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let (direction, side) = match order {
        Order::OldestFirst => ("ASC", ">"),
        Order::NewestFirst => ("DESC", "<"),
    };
    let select = format!("SELECT {} FROM messages WHERE tenant_id = ?1 AND conversation_id = ?2 AND", row::MESSAGE);
    match range {
        Range::Numbered { from, to } => {
            let mut statement = c.prepare_cached(&format!("{select} seq BETWEEN ?3 AND ?4 ORDER BY seq {direction} LIMIT ?5"))?;
            all_within(&mut statement, params![tenant, conversation, from, to, limit], row::message, max_bytes)
        }
        Range::Waiting => {
            let sql = format!("{select} seq IS NULL AND (?3 IS NULL OR id {side} ?3) ORDER BY id {direction} LIMIT ?4");
            let mut statement = c.prepare_cached(&sql)?;
            all_within(&mut statement, params![tenant, conversation, id_or_null(after), limit], row::message, max_bytes)
        }
    }
}

fn ids_like(c: &Connection, table: &str, tenant_id: Uuid, mut text: String, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    text.make_ascii_lowercase();
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok(Vec::new());
    }
    let mut statement = c.prepare_cached(&format!(
        "SELECT id FROM (SELECT id FROM {table} WHERE tenant_id = ?1 AND id >= ?2 AND id < ?3
           UNION SELECT id FROM (SELECT id FROM {table} WHERE tenant_id = ?1 ORDER BY id DESC LIMIT {NEWEST_BY_END}) WHERE substr(id, -length(?2)) = ?2)
         ORDER BY id DESC LIMIT ?4"
    ))?;
    // No id has a character after f.
    let end = format!("{text}g");
    all(&mut statement, params![Id::from(tenant_id), text, end, limit], |columns| columns.id())
}

/// The statements whose query plans a test checks.
#[cfg(test)]
pub(super) fn hot_statements() -> Vec<String> {
    let mut list = List::new(row::CALL, "tool_calls", Uuid::nil());
    list.only_few("turn_id = ?", Id::from(Uuid::nil()));
    vec![list.page_sql()]
}
