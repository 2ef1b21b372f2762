//! How a running call says how far it is.

/// Receives what a call reports about itself while it runs.
pub trait Progress: std::fmt::Debug + Send + Sync {
    /// The call is at `done` of `total`, if the total is known. `done` grows with every report; a report that comes too soon after the one before
    /// may be dropped.
    fn report(&self, done: f64, total: Option<f64>, message: Option<&str>);
}

/// Nobody receives it.
#[derive(Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn report(&self, _done: f64, _total: Option<f64>, _message: Option<&str>) {}
}
