//! A turn whose model waits at a gate.

use serde_json::json;
use werkruf_bench::fake_model::{Gate, Reply};

use crate::support::{Event, Stream, TestServer};

pub(crate) struct HeldTurn {
    pub(crate) gate: Gate,
    pub(crate) stream: Stream,
    /// The first event.
    pub(crate) init: Event,
}

impl HeldTurn {
    /// Starts a turn of user 3; once the gate is open, the model answers with the text.
    pub(crate) async fn start(server: &TestServer, text: &str) -> Self {
        let gate = Gate::before_head();
        server.model.script(vec![Reply::text(text).gate(gate.clone())]);
        let mut stream = server.stream(3, json!({"message": "x"})).await;
        let init = stream.next().await.unwrap();
        gate.reached().await;
        Self { gate, stream, init }
    }
}
