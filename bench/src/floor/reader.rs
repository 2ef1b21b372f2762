//! Reads a conversation as messages for the model. Idle connections are in a stack; a reader opens a new one if the stack is empty.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Row};
use serde_json::{Value, json};
use uuid::Uuid;

use super::rows::HISTORY;

pub(super) struct Reader {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Reader {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::default() }
    }

    /// Every message so far, the new one last. Reads on the calling thread: a hop to another thread would cost more.
    pub(super) fn history(&self, conversation: Uuid) -> Option<Vec<Value>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = idle.or_else(|| self.open())?;
        let messages = read(&connection, conversation).ok();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        messages
    }

    #[expect(clippy::disallowed_methods, reason = "the floor does not use the store")]
    fn open(&self) -> Option<Connection> {
        Connection::open(&self.path).ok()
    }
}

fn read(connection: &Connection, conversation: Uuid) -> rusqlite::Result<Vec<Value>> {
    let mut statement = connection.prepare_cached(HISTORY)?;
    statement.query_map([conversation.to_string()], message)?.collect()
}

fn message(row: &Row<'_>) -> rusqlite::Result<Value> {
    let (role, content, calls): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let calls: Value = serde_json::from_str(&calls).unwrap_or_default();
    Ok(match role.as_str() {
        "tool" => json!({"role": role, "tool_call_id": calls, "content": content}),
        "assistant" if calls.is_object() => json!({"role": role, "content": null, "tool_calls": [calls]}),
        _ => json!({"role": role, "content": content}),
    })
}
