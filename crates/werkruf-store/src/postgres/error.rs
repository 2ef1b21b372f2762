//! Errors of work that does not go through `flush`: migrations, imports, reading another program's tables.

use super::fault::Fault;
use crate::StoreError;

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unsent(why) | Fault::Unknown(why) => Self::Unavailable(why),
            Fault::Conflict(error) | Fault::Refused(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        Fault::from(error).into()
    }
}

pub(super) fn broken(why: impl Into<String>) -> StoreError {
    StoreError::Broken(why.into())
}
