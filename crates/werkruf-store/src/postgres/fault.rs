//! Errors of PostgreSQL, and what each means for the operation.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use tokio_postgres::error::DbError;

use crate::StoreError;

/// How an attempt at a transaction failed.
#[derive(Debug)]
pub enum Fault {
    /// Nothing was sent.
    Unsent(String),
    /// The connection was lost after the transaction was sent: it may have been committed.
    Unknown(String),
    /// Rolled back by the database in favour of another transaction; the whole may be tried again. Holds the error for the case that
    /// retries do not help.
    Conflict(StoreError),
    /// Rolled back; a retry would fail too.
    Refused(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        // The pool's own text does not name the cause.
        let cause = error.source().and_then(|cause| cause.source().map(ToString::to_string).or_else(|| Some(cause.to_string())));
        Self::Unsent(cause.unwrap_or_else(|| error.to_string()))
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(cause) = error.as_db_error() {
            return by_sqlstate(cause);
        }
        if error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()) {
            return Self::Unknown(error.source().map_or_else(|| error.to_string(), ToString::to_string));
        }
        let text = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
        Self::Refused(StoreError::Broken(format!("{error}{text}")))
    }
}

/// `WK…` are the codes of our own functions.
fn by_sqlstate(error: &DbError) -> Fault {
    let (code, text) = (error.code().code(), format!("{} ({})", error.message(), error.code().code()));
    match code {
        "WK001" => Fault::Refused(StoreError::Fenced),
        "WK002" => Fault::Refused(StoreError::Busy),
        "WK004" => Fault::Refused(StoreError::StateTooLarge),
        "WK003" => Fault::Refused(moved(error.message())),
        "40001" | "40P01" | "55P03" => Fault::Conflict(StoreError::Unavailable(text)),
        // The conversation was deleted between two statements: the next attempt finds none.
        "23503" => Fault::Conflict(StoreError::Broken(text)),
        // A guest with the external id came between two statements: the next attempt finds them.
        "23505" if error.constraint() == Some("users_by_external_id") => Fault::Conflict(StoreError::Broken(text)),
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => Fault::Unknown(text),
        "53100" => Fault::Refused(StoreError::Full(text)),
        "57014" | "25006" => Fault::Refused(StoreError::Unavailable(text)),
        _ if code.starts_with("08") => Fault::Unknown(text),
        _ if code.starts_with("53") || code.starts_with("58") => Fault::Refused(StoreError::Unavailable(text)),
        _ => {
            Fault::Refused(StoreError::Broken(format!("{text}{}", error.where_().map_or_else(String::new, |place| format!(" at {place}")))))
        }
    }
}

/// The message of a function names the row: its kind, then its id. A row of a module is named as a whole.
fn moved(message: &str) -> StoreError {
    let named = ["turn", "call", "message"].into_iter().find_map(|kind| Some((kind, message.strip_prefix(kind)?.strip_prefix(' ')?)));
    let (what, id) = named.unwrap_or(("row", message));
    StoreError::Moved { what, id: id.to_owned() }
}
