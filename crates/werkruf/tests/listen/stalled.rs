//! Clients that do not read, and one that reads slowly.

use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::listener::{Client, TIMEOUT, TestListener, bounds};
use werkruf::listen::Bounds;

const READERS: usize = 200;
const STALL: Duration = Duration::from_secs(2);
/// The memory that this many stalled readers may use in this process.
const MEMORY: usize = 64 * 1024 * 1024;

/// Resident memory of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A client with a small receive buffer, so that the server notices soon how much it reads.
fn narrow(listener: &TestListener) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    socket.connect(&listener.address.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    Client(tokio::net::TcpStream::from_std(socket.into()).unwrap())
}

#[tokio::test]
async fn stalled_readers_are_dropped_and_a_slow_one_is_not() {
    let listener = TestListener::open(Bounds { stall: STALL, ..bounds() }).await;
    let mut slow = narrow(&listener);
    slow.get("/flood").await;
    slow.until("\r\n\r\n").await;
    let before = resident();
    let began = Instant::now();
    let mut stalled = Vec::new();
    for _ in 0..READERS {
        let mut client = listener.connect().await;
        client.get("/flood").await;
        stalled.push(client);
    }
    let (mut most, mut top) = (0, 0);
    let mut piece = [0; 4096];
    let watching = async {
        // The slow client reads one piece per iteration; the routes count the bodies being sent.
        loop {
            let floods = listener.state.floods.load(Ordering::SeqCst);
            (most, top) = (floods.max(most), resident().max(top));
            if most > READERS && floods == 1 && began.elapsed() > 3 * STALL {
                break;
            }
            slow.0.read_exact(&mut piece).await.unwrap();
            let _ = timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
        }
    };
    timeout(TIMEOUT, watching).await.unwrap();
    let growth = top.saturating_sub(before);
    assert!(growth < MEMORY, "{growth} bytes for {READERS} stalled readers");
    // Every stalled client got the beginning of its response and then a reset.
    for mut client in stalled {
        let mut read = Vec::new();
        let ended = timeout(TIMEOUT, client.0.read_to_end(&mut read)).await.unwrap();
        assert!(ended.is_err(), "a reset, after {} bytes", read.len());
    }
    slow.0.read_exact(&mut piece).await.unwrap();
}
