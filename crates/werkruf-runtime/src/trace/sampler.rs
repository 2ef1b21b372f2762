//! Which traces are exported. All processes decide alike, because only the trace id and the caller's decision count.

use super::TraceId;

/// The end of an id of the server is random; before it is a counter.
const RANDOM_BITS: i32 = 32;

/// The samplers of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The part of the traces that is exported, from 0 to 1.
    pub ratio: f64,
    /// A caller that names its span has decided.
    pub follows_caller: bool,
}

impl Sampler {
    pub(super) fn takes(&self, trace_id: TraceId, caller: Option<bool>) -> bool {
        if let Some(sampled) = caller.filter(|_| self.follows_caller) {
            return sampled;
        }
        let [.., a, b, c, d] = trace_id;
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.ratio * f64::from(2_u32).powi(RANDOM_BITS)
    }
}
