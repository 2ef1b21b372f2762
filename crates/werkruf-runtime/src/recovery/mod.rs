//! Continues turns that no process works on: `scan` finds them, `takeover` claims them, `resume` continues them, `close` and `closer` end what
//! must not continue.

mod close;
mod closer;
mod leftover;
mod resume;
mod scan;
mod takeover;

pub use closer::RecoveryCloser;
pub(crate) use scan::{expire_approvals, recover, recover_until_stopped};
pub(crate) use takeover::{trace_of, wake};
