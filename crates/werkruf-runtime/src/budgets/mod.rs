//! Budgets: which of them count a request, what it may use at most, and what is reserved for it.
//!
//! A tenant without budgets costs one look into a map in memory. The database decides whether a reservation fits.

mod book;
mod matching;
mod period;
mod refusal;
mod turn_tokens;

pub use book::BudgetBook;
pub(crate) use matching::{Applicable, Spender, WorstCase};
pub(crate) use period::moment;
pub use period::period_end;
pub use refusal::BudgetRefusal;
pub(crate) use turn_tokens::TurnTokens;
