//! Which traces are exported. All processes decide alike, because only the trace id and the caller's decision count.

use super::TraceId;

/// The random part of a trace id, in bits.
const RANDOM_BITS: u32 = 56;

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
        let random = u128::from_be_bytes(trace_id) & ((1 << RANDOM_BITS) - 1);
        // Exact: 56 bits of a number below 1 are rounded to 53, which changes no decision that matters.
        (random as f64) < self.ratio * (1_u64 << RANDOM_BITS) as f64
    }
}
