//! What has moved lately in a tenant, for pages that show it. Nothing is written for it: rows are read by their ids, which grow with time.

use werkruf_contract::Uuid;

use crate::StoreFuture;

/// At most so many rows of one kind that are new, and so many that are open.
pub const MAX_HINTS: u32 = 1000;

/// Reads what has moved.
pub trait Hints: Send + Sync {
    /// The rows of a tenant (or of the server, under the nil id) that have ids from `since` on, that are open, or that are named. At most
    /// [`MAX_HINTS`] new ones and as many open ones of each kind.
    fn hints(&self, tenant_id: Uuid, since: Uuid, named: Vec<Uuid>) -> StoreFuture<'_, Vec<HintRow>>;
}

/// What a hint is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HintKind {
    Call,
    Turn,
    Approval,
    Outbox,
    Alert,
}

impl HintKind {
    pub const ALL: [Self; 5] = [Self::Call, Self::Turn, Self::Approval, Self::Outbox, Self::Alert];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Turn => "turn",
            Self::Approval => "approval",
            Self::Outbox => "outbox",
            Self::Alert => "alert",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The state of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintRow {
    pub kind: HintKind,
    pub id: Uuid,
    pub status: String,
    /// The user whose turn it is.
    pub user_id: Option<String>,
    /// The roles that may decide an approval.
    pub approver_roles: Vec<String>,
    /// The row will move again.
    pub open: bool,
}

/// One kind of rows: the columns, the table, and which rows are open.
struct Source {
    columns: &'static str,
    table: &'static str,
    id: &'static str,
    /// The table, joined from its open rows on.
    open_table: &'static str,
    /// `~` marks a column that must not choose the index: the index of open rows is small.
    open: &'static str,
}

const SOURCES: [Source; 5] = [
    Source {
        columns: "'turn', t.id, t.status, t.user_id, NULL, t.finished_at IS NULL",
        table: "turns AS t",
        id: "t.id",
        open_table: "",
        open: "~t.tenant_id = #1 AND t.finished_at IS NULL",
    },
    Source {
        columns: "'call', c.id, c.status, t.user_id, NULL, c.status IN ('queued', 'running')",
        table: "tool_calls AS c JOIN turns AS t ON t.tenant_id = c.tenant_id AND t.id = c.turn_id",
        id: "c.id",
        open_table: "turns AS t JOIN tool_calls AS c ON c.tenant_id = ~t.tenant_id AND c.turn_id = ~t.id",
        open: "~t.tenant_id = #1 AND t.finished_at IS NULL AND c.status IN ('queued', 'running')",
    },
    Source {
        columns: "'approval', t.id, t.status, t.asked_by, t.approver_roles, t.status = 'pending'",
        table: "approvals AS t",
        id: "t.id",
        open_table: "",
        open: "~t.tenant_id = #1 AND t.status = 'pending'",
    },
    Source {
        columns: "'outbox', t.id, t.status, t.user_id, NULL, t.status IN ('pending', 'sending') OR (t.status = 'sent' AND t.channel <> 'webhook')",
        table: "outbox AS t",
        id: "t.id",
        open_table: "",
        open: "t.tenant_id = #1 AND t.status IN ('pending', 'sending')",
    },
    Source {
        columns: "'alert', t.id, CASE WHEN t.once THEN 'told' WHEN t.resolved_at IS NULL THEN 'open' ELSE 'resolved' END, NULL, NULL, t.resolved_at IS NULL AND NOT t.once",
        table: "alerts AS t",
        id: "t.id",
        open_table: "",
        open: "~t.tenant_id = #1 AND t.resolved_at IS NULL AND NOT t.once",
    },
];

/// What differs between the databases.
pub(crate) struct HintDialect {
    pub(crate) parameter: char,
    /// Compares an id with those of parameter 3.
    pub(crate) named: &'static str,
    /// Turns JSON into text.
    pub(crate) text: &'static str,
    /// Keeps the planner off an index.
    pub(crate) off_index: &'static str,
}

/// The statement: tenant, first id and named ids are the parameters 1 to 3.
pub(crate) fn hints_sql(dialect: &HintDialect) -> String {
    let HintDialect { parameter, named, text, off_index } = dialect;
    let mut parts = Vec::new();
    for Source { columns, table, id, open_table, open } in &SOURCES {
        let columns = columns.replace("t.approver_roles", &format!("t.approver_roles{text}"));
        let in_dialect = |text: &str| text.replace('~', off_index).replace('#', &parameter.to_string());
        let (open, open_table) = (in_dialect(open), in_dialect(if open_table.is_empty() { table } else { open_table }));
        let tenant = format!("{}.tenant_id = {parameter}1", id.trim_end_matches(".id"));
        let since = format!("{tenant} AND {id} >= {parameter}2 ORDER BY {id} DESC LIMIT {MAX_HINTS}");
        parts.push(format!("SELECT * FROM (SELECT {columns} FROM {table} WHERE {since}) AS new_rows"));
        let open = format!("{open} ORDER BY {off_index}{id} DESC LIMIT {MAX_HINTS}");
        parts.push(format!("SELECT * FROM (SELECT {columns} FROM {open_table} WHERE {open}) AS open_rows"));
        parts.push(format!("SELECT {columns} FROM {table} WHERE {tenant} AND {id} {named}"));
    }
    // UNION: a row may be new, open and named.
    parts.join(" UNION ")
}
