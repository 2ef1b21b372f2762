//! What PostgreSQL says went wrong, and what that means for the operation.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use tokio_postgres::error::DbError;

use crate::StoreError;

/// How an attempt at a transaction failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing was sent.
    Unsent(String),
    /// The connection was lost after the transaction was sent: it may have been committed.
    Unknown(String),
    /// Undone by the database in favour of somebody else; the whole may be tried again. What to say when that did not help.
    Again(StoreError),
    /// Undone, for good.
    Refused(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        // Its own text says only that something went wrong.
        let cause = error.source().and_then(|cause| cause.source().map(ToString::to_string).or_else(|| Some(cause.to_string())));
        Self::Unsent(cause.unwrap_or_else(|| error.to_string()))
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(cause) = error.as_db_error() {
            return said(cause);
        }
        if error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()) {
            return Self::Unknown(error.source().map_or_else(|| error.to_string(), ToString::to_string));
        }
        let text = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
        Self::Refused(StoreError::Broken(format!("{error}{text}")))
    }
}

/// By SQLSTATE. `WK…` are the words of our own functions.
fn said(error: &DbError) -> Fault {
    let (code, text) = (error.code().code(), format!("{} ({})", error.message(), error.code().code()));
    match code {
        "WK001" => Fault::Refused(StoreError::Fenced),
        "WK002" => Fault::Refused(StoreError::Busy),
        "WK003" => Fault::Refused(moved(error.message())),
        "40001" | "40P01" | "55P03" => Fault::Again(StoreError::Unavailable(text)),
        // The conversation was deleted between two statements: the second look finds none.
        "23503" => Fault::Again(StoreError::Broken(text)),
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

/// A function says which row: the word for it, then its id.
fn moved(message: &str) -> StoreError {
    let (word, id) = message.split_once(' ').unwrap_or((message, ""));
    let what = ["turn", "call", "message"].into_iter().find(|known| *known == word).unwrap_or("row");
    StoreError::Moved { what, id: id.to_owned() }
}
