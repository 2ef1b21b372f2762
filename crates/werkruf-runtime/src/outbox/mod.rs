//! Sends rows of the outbox: `sender` is the loop that claims them, `sends` knows what is being sent, `delivery` sends one row and writes what became of it.
//!
//! Invariants: a row is claimed before it is sent and settled after it. A lane never waits for another one, and an account not for another account. A row whose sending may have
//! succeeded is not tried again before its channel had time to report it.

mod delivery;
mod sender;
mod sends;

pub(crate) use delivery::dead_letter_rows;
pub(crate) use sender::run;
