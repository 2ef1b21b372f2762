//! A TCP proxy between a store and its database that a test can cut.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Where a transaction is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The commit never reaches the database.
    Before,
    /// The database has committed, and its answer is lost.
    After,
}

#[derive(Default)]
struct State {
    down: AtomicBool,
    cut: Mutex<Option<Cut>>,
    cuts: AtomicU32,
    went_down: Notify,
}

pub(super) struct Proxy {
    state: Arc<State>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn before(url: &str) -> (Self, String) {
        let server = url.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (state, address, mut task) = (Arc::new(State::default()), listener.local_addr().unwrap(), JoinSet::new());
        let through = url.replace(&server, &address.to_string());
        task.spawn(accept(listener, server, Arc::clone(&state)));
        (Self { state, _task: task }, through)
    }

    /// Cuts the connection at the next commit.
    pub(super) fn cut_next(&self, cut: Cut) {
        *self.state.cut.lock().unwrap() = Some(cut);
    }

    pub(super) fn cuts(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }

    /// As a database that is being restarted: open connections break, new ones are refused.
    pub(super) fn set_down(&self, down: bool) {
        self.state.down.store(down, Ordering::SeqCst);
        if down {
            self.state.went_down.notify_waiters();
        }
    }
}

async fn accept(listener: TcpListener, server: String, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if !state.down.load(Ordering::SeqCst) {
            let (server, state) = (server.clone(), Arc::clone(&state));
            connections.spawn(async move {
                let Ok(server) = TcpStream::connect(server).await else { return };
                tokio::select! {
                    () = state.went_down.notified() => {}
                    () = carry(client, server, &state) => {}
                }
            });
        }
    }
}

/// Copies both ways, until one side ends or a commit is to be cut.
async fn carry(mut client: TcpStream, mut server: TcpStream, state: &State) {
    let (mut sent, mut received) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut sent) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                let cut = if contains(&sent[..count], b"COMMIT\0") { state.cut.lock().unwrap().take() } else { None };
                state.cuts.fetch_add(u32::from(cut.is_some()), Ordering::SeqCst);
                if cut == Some(Cut::Before) || server.write_all(&sent[..count]).await.is_err() {
                    return;
                }
                if cut == Some(Cut::After) {
                    // Waits until the database has confirmed the commit; the client receives nothing of it.
                    let mut answer = Vec::new();
                    while !contains(&answer, b"COMMIT\0") && server.read_buf(&mut answer).await.is_ok_and(|count| count > 0) {}
                    return;
                }
            }
            read = server.read(&mut received) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                if client.write_all(&received[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
