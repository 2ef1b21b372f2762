//! [`Records`] on PostgreSQL: lookups and lists.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Param};
use super::param::p;
use super::row::{self, Columns, all, all_within, first};
use super::text::clean;
use crate::rows::NEWEST_BY_END;
use crate::{
    AttemptRow, CallFilter, CallRow, ConversationFilter, ConversationRow, IdOf, ListRow, MessageRow, Order, Page, Records, StoreError,
    StoreFuture, TurnRow,
};

impl Records for PostgresStore {
    fn conversation(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<ConversationRow>> {
        Box::pin(self.by_id(row::CONVERSATION, "conversations", tenant_id, id, row::conversation))
    }
    fn conversations(&self, tenant_id: Uuid, filter: ConversationFilter, page: Page) -> StoreFuture<'_, Vec<ConversationRow>> {
        Box::pin(async move {
            let mut list = List::new(row::CONVERSATION_WITHOUT_STATE, "conversations", tenant_id);
            if let Some(user_id) = &filter.user_id {
                list.only("user_id =", Value::text(user_id));
            }
            if !filter.last_used_first {
                return list.page(self, page, CONVERSATION_COLUMNS, row::conversation).await;
            }
            if let Some(after) = page.after {
                list.values.push(Value::Id(after));
                let last = format!("SELECT updated_at, id FROM conversations WHERE tenant_id = $1 AND id = ${}", list.values.len());
                list.sql.to_mut().push_str(&format!(" AND (updated_at, id) < ({last})"));
            }
            list.read(self, page, "updated_at DESC, id DESC", CONVERSATION_COLUMNS, row::conversation).await
        })
    }
    fn messages(&self, tenant_id: Uuid, conversation_id: Uuid, page: Page) -> StoreFuture<'_, Vec<MessageRow>> {
        Box::pin(self.messages_of(tenant_id, conversation_id, page))
    }
    fn turn(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<TurnRow>> {
        Box::pin(self.by_id(row::TURN, "turns", tenant_id, id, row::turn))
    }
    fn call(&self, tenant_id: Uuid, id: Uuid) -> StoreFuture<'_, Option<CallRow>> {
        Box::pin(self.by_id(row::CALL, "tool_calls", tenant_id, id, row::call))
    }
    fn calls(&self, tenant_id: Uuid, filter: CallFilter, page: Page) -> StoreFuture<'_, Vec<CallRow>> {
        Box::pin(async move {
            let mut list = List::new(row::CALL, "tool_calls", tenant_id);
            if let Some(id) = filter.conversation_id {
                list.only("conversation_id =", Value::Id(id));
            }
            if let Some(id) = filter.turn_id {
                list.only("turn_id =", Value::Id(id));
            }
            if let Some(user_id) = &filter.user_id {
                list.only(
                    "(SELECT turns.user_id FROM turns WHERE turns.tenant_id = tool_calls.tenant_id AND turns.id = tool_calls.turn_id) =",
                    Value::text(user_id),
                );
            }
            if let Some(tool) = &filter.tool {
                list.only("tool_name =", Value::text(tool));
            }
            if let Some(status) = filter.status {
                list.only("status =", Value::text(status.as_str()));
            }
            list.page(self, page, ListColumns { columns: row::CALL, bytes: CALL_BYTES }, row::call).await
        })
    }
    fn attempts(&self, tenant_id: Uuid, call_id: Uuid) -> StoreFuture<'_, Vec<AttemptRow>> {
        Box::pin(async move {
            let sql = "SELECT attempt, started_at, finished_at, status, error FROM call_attempts WHERE tenant_id = $1 AND call_id = $2
                       ORDER BY attempt";
            all(&self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&call_id)]).await?, row::attempt)
        })
    }
    fn ids_like(&self, tenant_id: Uuid, of: IdOf, text: String, limit: u32) -> StoreFuture<'_, Vec<Uuid>> {
        Box::pin(self.ids_of_table_like(of.table(), tenant_id, text, limit))
    }
    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let rows =
                self.query(DbRole::System, "SELECT pg_is_in_recovery() FROM (SELECT count(*) FROM settings) AS readable", &[]).await?;
            match first(&rows, |columns| columns.flag())? {
                Some(false) => Ok(()),
                _ => Err(StoreError::Unavailable("this PostgreSQL is a standby; nothing can be written here".to_owned())),
            }
        })
    }
}

impl PostgresStore {
    async fn by_id<T>(
        &self,
        columns: &str,
        table: &str,
        tenant_id: Uuid,
        id: Uuid,
        read: impl FnOnce(&mut Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let sql = format!("SELECT {columns} FROM {table} WHERE tenant_id = $1 AND id = $2");
        first(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&id)]).await?, read)
    }

    /// Messages with a seq in the order of seq, then waiting ones in the order of id; the other way round when newest first.
    async fn messages_of(&self, tenant_id: Uuid, conversation_id: Uuid, page: Page) -> Result<Vec<MessageRow>, StoreError> {
        let scope = DbRole::Tenant(tenant_id);
        let after = match page.after {
            None => None,
            Some(after) => {
                let sql = "SELECT seq FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND id = $3";
                let rows = self.query(scope, sql, &[p(&tenant_id), p(&conversation_id), p(&after)]).await?;
                match first(&rows, |columns| columns.int_or_null())? {
                    Some(seq) => Some((after, seq)),
                    None => return Ok(Vec::new()),
                }
            }
        };
        let (sql, Range { from, to, beyond }) = match page.order {
            Order::OldestFirst => (messages_sql("ASC", "NULLS LAST", ">"), Range::forward(after)),
            Order::NewestFirst => (messages_sql("DESC", "NULLS FIRST", "<"), Range::backward(after)),
        };
        let (limit, direction) = (i64::from(page.limit), page.order);
        let order = match direction {
            Order::OldestFirst => "seq ASC NULLS LAST, id ASC",
            Order::NewestFirst => "seq DESC NULLS FIRST, id DESC",
        };
        let values = [p(&tenant_id), p(&conversation_id), p(&from), p(&to), p(&beyond), p(&limit)];
        let sql = ListColumns { columns: row::MESSAGE, bytes: MESSAGE_BYTES }.within(&sql, order, page);
        all_within(&self.query(scope, &sql, &values).await?, row::message, page.max_bytes)
    }

    async fn ids_of_table_like(&self, table: &str, tenant_id: Uuid, mut text: String, limit: u32) -> Result<Vec<Uuid>, StoreError> {
        text.make_ascii_lowercase();
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Ok(Vec::new());
        }
        let (from, to) = id_range(&text).unwrap_or((Uuid::max(), Uuid::nil()));
        let sql = format!(
            "SELECT id FROM (SELECT id FROM {table} WHERE tenant_id = $1 AND id BETWEEN $2 AND $3
               UNION SELECT id FROM (SELECT id FROM {table} WHERE tenant_id = $1 ORDER BY id DESC LIMIT {NEWEST_BY_END}) AS newest
               WHERE right(id::text, length($4)) = $4) AS found
             ORDER BY id DESC LIMIT $5"
        );
        let (text, limit) = (text.as_str(), i64::from(limit));
        let values = [p(&tenant_id), p(&from), p(&to), p(&text), p(&limit)];
        all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, |columns| columns.id())
    }
}

/// Both ranges in one statement: a message that gets its seq meanwhile is read once.
fn messages_sql(direction: &str, nulls: &str, side: &str) -> String {
    let all = "SELECT * FROM messages WHERE tenant_id = $1 AND conversation_id = $2 AND";
    format!(
        "SELECT {} FROM (({all} seq BETWEEN $3 AND $4 ORDER BY seq {direction} LIMIT $6)
           UNION ALL ({all} seq IS NULL AND id {side} $5 ORDER BY id {direction} LIMIT $6)) AS found
         ORDER BY seq {direction} {nulls}, id {direction} LIMIT $6",
        row::MESSAGE
    )
}

/// The range of seqs, and the id after which waiting messages are read.
struct Range {
    from: i64,
    to: i64,
    beyond: Uuid,
}

impl Range {
    fn forward(after: Option<(Uuid, Option<i64>)>) -> Self {
        match after {
            None => Self { from: 0, to: i64::MAX, beyond: Uuid::nil() },
            Some((_, Some(seq))) => Self { from: seq + 1, to: i64::MAX, beyond: Uuid::nil() },
            Some((id, None)) => Self { from: 1, to: 0, beyond: id },
        }
    }

    fn backward(after: Option<(Uuid, Option<i64>)>) -> Self {
        match after {
            None => Self { from: 0, to: i64::MAX, beyond: Uuid::max() },
            Some((_, Some(seq))) => Self { from: 0, to: seq - 1, beyond: Uuid::nil() },
            Some((id, None)) => Self { from: 0, to: i64::MAX, beyond: id },
        }
    }
}

/// The first and the last id with this prefix; `None` where no id can have it.
pub(super) fn id_range(prefix: &str) -> Option<(Uuid, Uuid)> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let fits = |(at, byte): (usize, u8)| if DASHES.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    if prefix.len() > 36 || !prefix.bytes().enumerate().all(fits) {
        return None;
    }
    let padded = |with: char| {
        let rest = (prefix.len()..36).map(|at| if DASHES.contains(&at) { '-' } else { with });
        Uuid::try_parse(&prefix.chars().chain(rest).collect::<String>()).ok()
    };
    Some((padded('0')?, padded('f')?))
}

const CONVERSATION_COLUMNS: ListColumns = ListColumns { columns: row::CONVERSATION, bytes: "octet_length(title)" };
const MESSAGE_BYTES: &str =
    "octet_length(content) + coalesce(octet_length(tool_calls::text), 0) + coalesce(octet_length(metadata::text), 0)";
const CALL_BYTES: &str =
    "coalesce(octet_length(request::text), 0) + coalesce(octet_length(raw_arguments), 0) + coalesce(octet_length(response::text), 0)
    + coalesce(octet_length(error_detail::text), 0) + coalesce(octet_length(meta::text), 0)";

/// The columns of a list, and the size of a row in SQL.
pub(super) struct ListColumns {
    pub(super) columns: &'static str,
    pub(super) bytes: &'static str,
}

impl ListColumns {
    /// A list whose rows the database leaves out when those before them fill the page, so that they are not sent. It may send some rows
    /// more than [`all_within`] keeps: the sizes of JSON differ by spaces.
    pub(super) fn within(&self, list: &str, order: &str, page: Page) -> String {
        if page.max_bytes == usize::MAX {
            return list.to_owned();
        }
        let (columns, bytes, most) = (self.columns, self.bytes, page.max_bytes.saturating_mul(2));
        format!(
            "SELECT {columns} FROM (SELECT *, sum({bytes}) OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
               FROM ({list}) AS found) AS sized WHERE coalesce(bytes_before, 0) < {most} ORDER BY {order}"
        )
    }
}

/// A value of a condition.
pub(super) enum Value {
    Id(Uuid),
    Text(String),
    Number(i64),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(clean(text).into_owned())
    }

    fn param(&self) -> Param<'_> {
        let (value, kind): (&(dyn ToSql + Sync), Type) = match self {
            Self::Id(id) => (id, Type::UUID),
            Self::Text(text) => (text, Type::TEXT),
            Self::Number(number) => (number, Type::INT8),
        };
        (value, kind)
    }
}

/// A list in the order of id, with conditions that are known only at run time.
pub(super) struct List {
    tenant_id: Uuid,
    sql: Cow<'static, str>,
    values: Vec<Value>,
    /// The conditions leave few rows: sorting these is cheap, while a scan in the order of ids would read all rows of the tenant. Without
    /// statistics of a table PostgreSQL expects many rows, and would scan.
    few: bool,
}

impl List {
    pub(super) fn new(columns: &str, table: &str, tenant_id: Uuid) -> Self {
        let sql = format!("SELECT {columns} FROM {table} WHERE tenant_id = $1").into();
        Self { tenant_id, sql, values: vec![Value::Id(tenant_id)], few: false }
    }

    /// A condition that few rows meet.
    pub(super) fn only_few(&mut self, condition: &str, value: Value) {
        self.only(condition, value);
        self.few = true;
    }

    /// `condition` ends before the value.
    pub(super) fn only(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        let number = self.values.len();
        self.sql.to_mut().push_str(&format!(" AND {condition} ${number}"));
    }

    pub(super) async fn page<T: ListRow>(
        mut self,
        store: &PostgresStore,
        page: Page,
        sized: ListColumns,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let (after, order) = match page.order {
            Order::OldestFirst => ("id >", ""),
            Order::NewestFirst => ("id <", " DESC"),
        };
        // The texts of ids sort as ids do, and no index has them.
        let order = format!("{}{order}", if self.few { "id::text COLLATE \"C\"" } else { "id" });
        if let Some(id) = page.after {
            self.only(after, Value::Id(id));
        }
        self.read(store, page, &order, sized, read).await
    }

    async fn read<T: ListRow>(
        mut self,
        store: &PostgresStore,
        page: Page,
        order: &str,
        sized: ListColumns,
        read: impl Fn(&mut Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.values.push(Value::Number(i64::from(page.limit)));
        let sql = format!("{} ORDER BY {order} LIMIT ${}", self.sql, self.values.len());
        let sql = sized.within(&sql, order, page);
        let values: Vec<Param<'_>> = self.values.iter().map(Value::param).collect();
        all_within(&store.query(DbRole::Tenant(self.tenant_id), &sql, &values).await?, read, page.max_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::id_range;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let range = |prefix: &str| id_range(prefix).map(|(from, to)| format!("{from} {to}"));
        assert_eq!(range("0197F2C4-7").as_deref(), Some("0197f2c4-7000-0000-0000-000000000000 0197f2c4-7fff-ffff-ffff-ffffffffffff"));
        assert_eq!(range("").as_deref(), Some("00000000-0000-0000-0000-000000000000 ffffffff-ffff-ffff-ffff-ffffffffffff"));
        for none in ["g", "0197f2c47", "0197-", "0197f2c4-77aa-7000-8000-0000000000000", "ä"] {
            assert_eq!(range(none), None, "{none}");
        }
    }
}
