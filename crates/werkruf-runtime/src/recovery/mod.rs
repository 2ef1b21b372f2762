//! Continues turns that no process works on: `scan` finds them, `takeover` claims them, `resume` continues them, `close` ends what must not continue.

mod close;
mod leftover;
mod resume;
mod scan;
mod takeover;

pub(crate) use scan::{expire_approvals, recover, recover_until_stopped};
pub(crate) use takeover::wake;
