//! Stops the turn of a stream that its client leaves.

use werkruf_runtime::ClientLeave;

/// Dropped before the answer is complete it stops the turn. Empty where the turn continues without its client.
#[derive(Debug, Default)]
pub(crate) struct StopOnLeave(Option<ClientLeave>);

impl StopOnLeave {
    pub(crate) const fn new(leave: ClientLeave) -> Self {
        Self(Some(leave))
    }

    /// The answer is complete, or the server ends the stream: from now on the client may leave.
    pub(crate) fn answered(&mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnLeave {
    fn drop(&mut self) {
        if let Some(leave) = self.0.take() {
            leave.stop_turn();
        }
    }
}
