//! Limits on the number of connections.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::listener::{TestListener, bounds};
use werkruf::listen::Bounds;

#[tokio::test]
async fn an_address_with_too_many_connections_is_refused_until_one_closes() {
    let listener = TestListener::open(Bounds { per_address: 2, head: Duration::from_secs(30), ..bounds() }).await;
    let mut kept = listener.connect().await;
    kept.get("/").await;
    kept.until("here").await;
    let second = listener.connect().await;
    let mut third = listener.connect().await;
    let refused = third.rest().await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("server_busy"), "{refused}");
    kept.get("/").await;
    kept.until("here").await;
    drop(second);
    // The connection is counted until the listener has noticed its end.
    loop {
        let mut again = listener.connect().await;
        again.get("/").await;
        if again.until("\r\n\r\n").await.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[tokio::test]
async fn beyond_the_total_limit_a_client_waits_until_a_connection_closes() {
    let listener = TestListener::open(Bounds { connections: 1, ..bounds() }).await;
    let mut first = listener.connect().await;
    first.get("/").await;
    first.until("here").await;
    let mut second = listener.connect().await;
    second.get("/").await;
    assert!(second.receives_nothing_for(Duration::from_millis(300)).await);
    drop(first);
    second.until("here").await;
}

/// The real server with a small limit on open files.
struct LimitedServer(Child);

impl Drop for LimitedServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of a process, in ticks of 10 ms.
fn ticks(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn at_the_limit_of_open_files_the_server_neither_dies_nor_spins() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" serve --listen 127.0.0.1:0 --json", env!("CARGO_BIN_EXE_werkruf")]);
    let child = command.current_dir(&folder).env_clear().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = LimitedServer(child);
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(server.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let printed: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = printed["address"].as_str().unwrap().trim_start_matches("http://").to_owned();

    let connections: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut late = crate::listener::Client(tokio::net::TcpStream::connect(&address).await.unwrap());
    late.get("/healthz").await;
    let before = ticks(server.0.id());
    assert!(late.receives_nothing_for(Duration::from_secs(1)).await, "the other connections use all open files");
    let spent = ticks(server.0.id()) - before;
    assert!(spent < 30, "{spent} ticks of 10 ms within a second");
    drop(connections);
    assert!(late.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
}
