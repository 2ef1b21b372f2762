//! A wire between a store and its database that a test can cut.

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
    /// The database has committed, and nobody hears of it.
    After,
}

#[derive(Default)]
struct State {
    down: AtomicBool,
    cut: Mutex<Option<Cut>>,
    cuts: AtomicU32,
    fallen: Notify,
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

    /// Cuts the next transaction that is committed.
    pub(super) fn cut_next(&self, cut: Cut) {
        *self.state.cut.lock().unwrap() = Some(cut);
    }

    pub(super) fn cuts(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }

    /// As a database that is being restarted: what is open breaks, what comes is turned away.
    pub(super) fn set_down(&self, down: bool) {
        self.state.down.store(down, Ordering::SeqCst);
        if down {
            self.state.fallen.notify_waiters();
        }
    }
}

async fn accept(listener: TcpListener, server: String, state: Arc<State>) {
    let mut wires = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if !state.down.load(Ordering::SeqCst) {
            let (server, state) = (server.clone(), Arc::clone(&state));
            wires.spawn(async move {
                let Ok(server) = TcpStream::connect(server).await else { return };
                tokio::select! {
                    () = state.fallen.notified() => {}
                    () = carry(client, server, &state) => {}
                }
            });
        }
    }
}

/// Both ways, until one side ends or a commit is to be cut.
async fn carry(mut client: TcpStream, mut server: TcpStream, state: &State) {
    let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut there) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                let cut = if holds(&there[..count], b"COMMIT\0") { state.cut.lock().unwrap().take() } else { None };
                state.cuts.fetch_add(u32::from(cut.is_some()), Ordering::SeqCst);
                if cut == Some(Cut::Before) || server.write_all(&there[..count]).await.is_err() {
                    return;
                }
                if cut == Some(Cut::After) {
                    // Until the database says that it has committed; the client hears nothing of it.
                    let mut said = Vec::new();
                    while !holds(&said, b"COMMIT\0") && server.read_buf(&mut said).await.is_ok_and(|count| count > 0) {}
                    return;
                }
            }
            read = server.read(&mut back) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                if client.write_all(&back[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
