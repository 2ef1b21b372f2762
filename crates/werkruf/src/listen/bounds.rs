//! The limits of clients. `docs/operations.md` describes them for operators.

use std::time::Duration;

/// The limits of a listener. Production uses the defaults; tests use smaller values.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// From the first byte of a request to the end of its head; for the first request, from the connection to the end of the head.
    /// Ten seconds are enough for 16 KiB over a very slow mobile network; a client that needs longer only occupies a connection.
    pub head: Duration,
    /// Between two chunks of a request's body. The whole body may take this long plus one second per [`BODY_BYTES_PER_SECOND`]
    /// received.
    pub body: Duration,
    /// The whole body, from the first wait for the client. However fast it arrives then, it takes memory for no longer than this: the
    /// largest body, an import, needs 280 KB per second.
    pub body_total: Duration,
    /// Between two requests of one connection. Longer than the 60 s of common proxies, so that the proxy closes first, and the server
    /// never closes while a request is being sent.
    pub idle: Duration,
    /// The time without a byte read by the client while bytes wait to be sent. With the last sweep of the watchdog 30 s at most.
    pub stall: Duration,
    /// The time without an answer of the peer's kernel (TCP keepalive and user timeout): the machine or the network is down. The kernel
    /// also counts a closed window, so this limit backs up the watchdog. It is separate, so that tests can check each alone.
    pub peer: Duration,
    /// The most connections. A further one gets the place of the connection that has been idle for longest. At about 20 KiB each, the
    /// default takes 160 MiB.
    pub connections: u32,
    /// How long a request waits for a place while all connections are busy. Then it gets 503.
    pub place: Duration,
    /// The most connections per remote address (IPv6: per /64, the network of one internet subscriber). Further ones get 503. Does
    /// not apply to [`Proxies`].
    ///
    /// [`Proxies`]: super::Proxies
    pub per_address: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_total: Duration::from_secs(120),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(27),
            peer: Duration::from_secs(30),
            connections: 8_192,
            place: Duration::from_secs(1),
            per_address: 1_024,
        }
    }
}

/// Connections beyond the limit. Their heads are read, and only requests with the operator's credential are served at once, so that the
/// operator can reach a server whose connections are all busy. Further connections wait in the queue of the kernel.
pub(super) const SPARE_CONNECTIONS: u32 = 16;

/// So many spare connections of one address may wait for their heads. One more ends the oldest of them.
pub(super) const SPARE_PER_ADDRESS: usize = 2;

/// The time for the head of a request on a spare connection: these are few, and the operator must not wait for others for long.
pub(super) const SPARE_HEAD: Duration = Duration::from_secs(2);

/// The size of a request's head, its first line included. Cookies and a long bearer token fit; more is a mistake or an attack.
/// The most headers are 100, the default of hyper: setting that limit would cost an allocation per request.
pub(super) const HEAD_BYTES: usize = 16 * 1024;

/// The slowest rate of a body. A slower body gets an error response.
pub(super) const BODY_BYTES_PER_SECOND: u64 = 2 * 1024;

/// The bytes of one connection that wait in this process, so that 200 stalled clients take 6 MiB and not 80.
pub(super) const BUFFER_BYTES: usize = 32 * 1024;

/// The streams of one HTTP/2 connection that may be open at once.
pub(super) const STREAMS: u32 = 64;

/// The bytes of one stream that wait in this process, so that the streams of a connection take 1 MiB at most.
pub(super) const FRAME_BYTES: usize = 16 * 1024;

/// The bytes of a request that a client may send before they are read, per stream and per connection.
pub(super) const STREAM_WINDOW: u32 = 64 * 1024;
pub(super) const CONNECTION_WINDOW: u32 = 128 * 1024;

/// The streams that a client may cancel beyond those that it lets complete. A client that cancels more loses its connection.
pub(super) const CANCELLED_STREAMS: u32 = 100;

/// The bytes of one connection that wait unsent in the kernel. Small, so that the progress of a slow client is visible: a write
/// succeeds as soon as the client read this much, not only when a third of a send buffer of megabytes is free.
pub(super) const UNSENT_BYTES: u32 = 16 * 1024;
