//! `chat`, through the real binary.

use std::io::{BufReader, Read};
use std::process::{Child, Command};

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, block_in_place};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call};

use crate::support::{Done, Place, Server};

/// A place whose model follows a script.
pub fn place_with(model: &FakeModel) -> Place {
    Place::new().with("OPENAI_BASE_URL", &model.base_url()).with("OPENAI_MODEL", "fake-1").with("WERKRUF_TEST_TOOLS", "1")
}

fn run(place: &Place, arguments: &[&str]) -> Done {
    block_in_place(|| place.run(arguments))
}

/// The events of `--json`.
fn events(done: &Done) -> Vec<Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Reads what a command says until it has said this.
fn until(child: &mut Child, wanted: &str) -> BufReader<std::process::ChildStdout> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(wanted) {
        let mut byte = [0];
        assert_ne!(stdout.read(&mut byte).unwrap(), 0, "it ended without {wanted}: {}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    stdout
}

fn rest(mut stdout: BufReader<std::process::ChildStdout>) -> String {
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    text
}

fn listed(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["conversations", "list", "--json"];
    all.extend(arguments);
    run(place, &all).exits(0).json()["conversations"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_is_answered_with_and_without_a_server() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::text("Hello from here."), Reply::text("Hello from there.")]);
    let place = place_with(&model);
    let alone = run(&place, &["chat", "hi"]).exits(0);
    let (text, tail) = alone.stdout.split_once('\n').unwrap();
    assert_eq!(text, "Hello from here.");
    assert!(tail.starts_with("  15 tokens · ") && !alone.stdout.contains('\x1b'), "{alone:?}");
    let _server = block_in_place(|| place.serve(&[]));
    let beside = run(&place, &["chat", "hi", "--conversation", "last"]).exits(0);
    assert!(beside.stdout.starts_with("Hello from there.\n"), "{beside:?}");
    assert_eq!(listed(&place, &[]).len(), 1, "the second message went on with the first");
    let short = tail.split("· ").nth(1).unwrap().trim();
    assert!(listed(&place, &[])[0]["id"].as_str().unwrap().starts_with(short));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piped_dialogue_keeps_its_conversation() {
    let model = FakeModel::start().await;
    model.script(["One.", "Two.", "Three."].map(Reply::text).to_vec());
    let place = place_with(&model);
    let done = block_in_place(|| place.run_with_input(&["chat"], "first\n\nsecond\n/new\n/nwe\nthird\n/quit\nnever\n")).exits(0);
    let said: Vec<&str> = done.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(said, ["One.", "Two.", "Three."], "{done:?}");
    assert!(done.stderr.contains("/nwe"), "a slipped command is not said: {done:?}");
    let histories: Vec<usize> = model.requests().iter().map(|request| request.body["messages"].as_array().unwrap().len()).collect();
    assert_eq!(histories, [2, 4, 2], "with the system message; /new forgets");
    assert_eq!(listed(&place, &[]).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_shown_with_their_outcome() {
    let model = FakeModel::start().await;
    let calls = vec![call("test_echo", json!({"value": "tea"})), call("test_panic", json!({}))];
    model.script(vec![Reply::calls(calls).with_text("I look."), Reply::text("Done.")]);
    let place = place_with(&model);
    let done = run(&place, &["chat", "tea please"]).exits(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!((lines[0], lines[3]), ("I look.", "Done."), "{done:?}");
    let calls = [lines[1], lines[2]];
    assert!(calls.iter().any(|line| line.starts_with("  ✓ test_echo ") && line.ends_with(" ms")), "{done:?}");
    assert!(calls.iter().any(|line| line.starts_with("  ✗ test_panic tool_panicked ") && line.ends_with(" ms")), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_one_event_per_line_up_to_final() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]), Reply::text("Here is tea.")]);
    let place = place_with(&model);
    let events = events(&run(&place, &["chat", "tea please", "--json"]).exits(0));
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).filter(|name| *name != "assistant_token").collect();
    assert_eq!(names, ["init", "tool_started", "tool_finished", "final"]);
    let numbers: Vec<i64> = events.iter().filter_map(|event| event["id"].as_i64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(events.last().unwrap()["data"]["message"]["content"], "Here is tea.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_exits_1() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::status(400), Reply::status(400), Reply::status(400), Reply::text("Better.")]);
    let place = place_with(&model);
    let failed = run(&place, &["chat", "x"]).exits(1);
    assert!(failed.stderr.contains("error: model_unavailable: "), "{failed:?}");
    let told = run(&place, &["chat", "x", "--json"]).exits(1);
    assert_eq!((events(&told).last().unwrap()["event"].as_str(), &told.error()["code"]), (Some("error"), &json!("model_unavailable")));
    let piped = block_in_place(|| place.run_with_input(&["chat"], "one\ntwo\n")).exits(1);
    assert!(piped.stdout.starts_with("Better.\n"), "the dialogue went on: {piped:?}");
    assert_eq!(run(&place, &["chat", "x", "--assistant", "nobody", "--json"]).exits(1).error()["code"], "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_gone_on_with_after_the_server_was_killed() {
    let model = FakeModel::start().await;
    let gate = Gate::after(2);
    model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]),
        Reply::text("Half an answer that never ends").gate(gate),
        Reply::text("The whole answer."),
    ]);
    let place = place_with(&model);
    let server = block_in_place(|| place.serve(&[]));
    let address = server.address().trim_start_matches("http://").to_owned();
    let mut chat = place.start(&["chat", "tea please"]);
    let stdout = block_in_place(|| until(&mut chat, "Half"));
    server.signal("-KILL");
    block_in_place(|| server.ended());
    let _again = block_in_place(|| place.serve_at(&address, &[]));
    let text = block_in_place(|| rest(stdout));
    let done = block_in_place(|| Done::of(&chat.wait_with_output().unwrap())).exits(0);
    assert!(text.contains("\nThe whole answer.\n  "), "{text}");
    assert_eq!(text.matches("The whole answer.").count(), 1, "{text}");
    assert!(done.stderr.contains("the connection broke"), "{done:?}");
    let calls = run(&place, &["calls", "list", "--json"]).json();
    assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 1, "nothing was called twice: {calls}");
    assert_eq!(listed(&place, &[]).len(), 1);
}

/// Hands connections on to the server; the first one breaks once the message has arrived, before its answer.
async fn forgetful(listener: TcpListener, server: String, model: &FakeModel) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut inside = TcpStream::connect(&server).await.unwrap();
    let (mut from, _to) = client.split();
    tokio::select! {
        copied = copy(&mut from, &mut inside) => panic!("the client left: {copied:?}"),
        () = model.received(1) => {}
    }
    let _ = client.shutdown().await;
    let mut handed = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let server = server.clone();
        handed.spawn(async move {
            let mut inside = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut inside).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_twice_is_one_turn() {
    let model = FakeModel::start().await;
    let gate = Gate::before_head();
    model.script(vec![Reply::text("Once.").gate(gate.clone())]);
    let place = place_with(&model);
    let server: Server = block_in_place(|| place.serve(&[]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = Place::new().with("WERKRUF_SERVER", &listener.local_addr().unwrap().to_string()).with("WERKRUF_KEY", &server.key());
    let inside = server.address().trim_start_matches("http://").to_owned();
    let chat = elsewhere.start(&["chat", "hi", "--json"]);
    let finished = async {
        // It says so on stderr when the connection broke; only then may the answer come.
        let (chat, said) = tokio::task::spawn_blocking(move || {
            let mut chat = chat;
            let mut stderr = BufReader::new(chat.stderr.take().unwrap());
            let mut line = String::new();
            std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
            (chat, line)
        })
        .await
        .unwrap();
        assert!(said.contains("the connection broke"), "{said}");
        gate.open();
        tokio::task::spawn_blocking(move || Done::of(&chat.wait_with_output().unwrap())).await.unwrap()
    };
    let done = tokio::select! {
        done = finished => done.exits(0),
        () = forgetful(listener, inside, &model) => panic!("the proxy ended"),
    };
    let events = events(&done);
    assert_eq!((&events[0]["event"], &events.last().unwrap()["data"]["message"]["content"]), (&json!("init"), &json!("Once.")));
    assert_eq!((model.requests().len(), listed(&place, &[]).len()), (1, 1), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_the_turn() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::text("Half an answer").gate(Gate::after(1))]);
    let place = place_with(&model);
    let _server = block_in_place(|| place.serve(&[]));
    let mut chat = place.start(&["chat", "hi"]);
    let stdout = block_in_place(|| until(&mut chat, "Half"));
    assert!(Command::new("kill").args(["-INT", &chat.id().to_string()]).status().unwrap().success());
    assert!(block_in_place(|| rest(stdout)).ends_with("\n  stopped\n"));
    block_in_place(|| Done::of(&chat.wait_with_output().unwrap())).exits(130);
    let id = listed(&place, &[])[0]["id"].as_str().unwrap().to_owned();
    let whole = run(&place, &["conversations", "export", &id]).exits(0).json();
    assert_eq!((&whole["turns"][0]["status"], whole["turns"].as_array().unwrap().len()), (&json!("canceled"), 1), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_for_the_person_named_or_the_owner_of_the_key() {
    let model = FakeModel::start().await;
    let place = place_with(&model);
    let server = block_in_place(|| place.serve(&[]));
    run(&place, &["chat", "as Clara", "--user", "3"]).exits(0);
    run(&place, &["chat", "as Ana"]).exits(0);
    let clara = listed(&place, &["--user", "3"]);
    assert_eq!((clara.len(), &clara[0]["user_id"], &clara[0]["title"]), (1, &json!("3"), &json!("as Clara")));
    run(&place, &["chat", "again", "--conversation", "last", "--user", "3"]).exits(0);
    assert_eq!((listed(&place, &["--user", "3"]).len(), listed(&place, &[]).len()), (1, 2), "last is the person's own");
    let none = run(&place, &["chat", "x", "--conversation", "last", "--user", "4", "--json"]).exits(1);
    assert_eq!(none.error()["code"], "not_found");

    // The printed key is Ana's.
    let ana = Place::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", &server.key());
    run(&ana, &["chat", "by key", "--conversation", "last"]).exits(0);
    assert_eq!(listed(&ana, &[]).len(), 1);
    let foreign = clara[0]["id"].as_str().unwrap();
    for arguments in [&["chat", "x", "--conversation", foreign, "--json"][..], &["conversations", "show", foreign, "--json"]] {
        assert_eq!(run(&ana, arguments).exits(1).error()["code"], "not_found");
    }
    let wrong = Place::new().with("WERKRUF_SERVER", "127.0.0.1:1").with("WERKRUF_KEY", "wk_x");
    assert_eq!(run(&wrong, &["chat", "x", "--json"]).exits(1).error()["code"], "server_unavailable");
}
