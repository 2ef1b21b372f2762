//! How much a client may take, and for how long. `docs/operations.md` says the same to operators.

use std::time::Duration;

/// The bounds of a listener. The defaults are the product's; tests make them smaller.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// From the first byte of a request to the end of its head, and from connecting to the end of the first head.
    /// Ten seconds carry 16 KiB over the worst mobile line; a client that needs longer is holding a place.
    pub head: Duration,
    /// Between two pieces of a request's body, and in all beside a second per [`BODY_BYTES_PER_SECOND`] that came.
    pub body: Duration,
    /// Between two requests of one connection. Longer than the 60 s for which common proxies keep theirs, so that it is the
    /// proxy that closes, and never the server while a request is on its way.
    pub idle: Duration,
    /// Without a single byte taken by the client while bytes wait. With the last look of the watchdog that makes 30 s at most.
    pub stall: Duration,
    /// Without an answer of the peer's kernel (TCP keepalive and user timeout): the machine is gone, or the way to it. The kernel
    /// also counts a closed window, so it backs the watchdog up; a bound of its own, so that each can be tested alone.
    pub peer: Duration,
    /// Connections in all; beyond, new ones wait in the kernel's queue. At about 20 KiB each, 160 MiB.
    pub connections: u32,
    /// Connections per remote address (IPv6: per /64, which is what one subscriber has); beyond, 503. Not for [`Proxies`].
    ///
    /// [`Proxies`]: super::Proxies
    pub per_address: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(27),
            peer: Duration::from_secs(30),
            connections: 8_192,
            per_address: 1_024,
        }
    }
}

/// A request's head with its first line. Cookies and a long bearer token fit; more is a mistake or an attack.
/// The number of headers is 100, which is hyper's own default: setting it would cost an allocation per request.
pub(super) const HEAD_BYTES: usize = 16 * 1024;

/// The slowest line a body may come over: 1 MiB within nine minutes. Slower ones are told so.
pub(super) const BODY_BYTES_PER_SECOND: u64 = 2 * 1024;

/// Bytes of one connection that wait in this process, so that 200 stalled clients hold 6 MiB and not 80.
pub(super) const BUFFER_BYTES: usize = 32 * 1024;

/// Bytes of one connection that wait unsent in the kernel. Small, so that a slow reader is seen to move: a write goes through as
/// soon as the client took this much, and not only when a third of a send buffer of megabytes is free.
pub(super) const UNSENT_BYTES: u32 = 16 * 1024;
