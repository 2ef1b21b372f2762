//! Limits on the number of connections.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::listener::{TIMEOUT, TestListener, bounds};
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
async fn fifty_idle_clients_do_not_lock_others_out() {
    let listener = TestListener::open(Bounds { connections: 50, place: TIMEOUT, ..bounds() }).await;
    let mut kept = Vec::new();
    for _ in 0..50 {
        let mut client = listener.connect().await;
        client.get("/").await;
        client.until("here").await;
        kept.push(client);
    }
    for _ in 0..3 {
        let mut late = listener.connect().await;
        late.get("/").await;
        late.until("here").await;
        // A connection that got a place keeps it.
        late.get("/").await;
        late.until("here").await;
        kept.push(late);
    }
    // Those that were idle for longest had to go, and only those.
    for client in &mut kept[..3] {
        assert_eq!(client.rest().await, "");
    }
    for client in &mut kept[3..] {
        client.get("/").await;
        client.until("here").await;
    }
}

#[tokio::test]
async fn while_all_connections_are_busy_only_the_operator_is_served() {
    let listener = TestListener::open(Bounds { connections: 1, ..bounds() }).await;
    let mut busy = listener.connect().await;
    busy.get("/held").await;
    listener.state.requested.notified().await;
    let mut refused = listener.connect().await;
    refused.get("/").await;
    let answer = refused.rest().await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("server_busy") && answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("x-request-id: "), "{answer}");
    // More often than there are spare connections: each is free again afterwards.
    for _ in 0..20 {
        let mut operator = listener.connect().await;
        operator.send("GET / HTTP/1.1\r\nhost: test\r\nauthorization: operator\r\n\r\n").await;
        let answer = operator.rest().await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }
    listener.state.gate.notify_one();
    busy.until("at last").await;
    let mut late = listener.connect().await;
    late.get("/").await;
    late.until("here").await;
}

#[tokio::test]
async fn silent_connections_on_all_spare_places_do_not_keep_the_operator_out() {
    let listener = TestListener::open(Bounds { connections: 1, head: TIMEOUT, ..bounds() }).await;
    let mut busy = listener.connect().await;
    busy.get("/held").await;
    listener.state.requested.notified().await;
    let mut silent = Vec::new();
    for number in 0..16 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.1.{}:0", 1 + number / 2).parse().unwrap()).unwrap();
        silent.push(crate::listener::Client(socket.connect(listener.address).await.unwrap()));
    }
    let mut operator = listener.connect().await;
    operator.send("GET / HTTP/1.1\r\nhost: test\r\nauthorization: operator\r\n\r\n").await;
    let answer = operator.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    assert_eq!(silent[0].rest().await, "", "the first of them was closed");
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
