//! `werkruf chat` of the real binary.

use std::io::{BufReader, Read};
use std::process::{Child, Command};

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, block_in_place};
use werkruf_bench::fake_model::{FakeModel, Gate, Reply, call};

use crate::support::{CommandOutput, Server, TestFolder};

/// A folder with a scripted model.
pub fn folder_with_model(model: &FakeModel) -> TestFolder {
    TestFolder::new().with("OPENAI_BASE_URL", &model.base_url()).with("OPENAI_MODEL", "fake-1").with("WERKRUF_TEST_TOOLS", "1")
}

fn run(folder: &TestFolder, arguments: &[&str]) -> CommandOutput {
    block_in_place(|| folder.run(arguments))
}

/// The events of `--json`.
fn events(done: &CommandOutput) -> Vec<Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Reads the output of a command until it contains this text.
fn until(child: &mut Child, expected: &str) -> BufReader<std::process::ChildStdout> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut output = Vec::new();
    while !String::from_utf8_lossy(&output).contains(expected) {
        let mut byte = [0];
        assert_ne!(stdout.read(&mut byte).unwrap(), 0, "it ended without {expected}: {}", String::from_utf8_lossy(&output));
        output.push(byte[0]);
    }
    stdout
}

fn rest(mut stdout: BufReader<std::process::ChildStdout>) -> String {
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    text
}

fn listed(folder: &TestFolder, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["conversations", "list", "--json"];
    all.extend(arguments);
    run(folder, &all).exits(0).json()["conversations"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_is_answered_with_and_without_a_server() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::text("Hello from here."), Reply::text("Hello from there.")]);
    let folder = folder_with_model(&model);
    let local = run(&folder, &["chat", "hi"]).exits(0);
    let (text, tail) = local.stdout.split_once('\n').unwrap();
    assert_eq!(text, "Hello from here.");
    assert!(tail.starts_with("  15 tokens · ") && !local.stdout.contains('\x1b'), "{local:?}");
    let _server = block_in_place(|| folder.serve(&[]));
    let remote = run(&folder, &["chat", "hi", "--conversation", "last"]).exits(0);
    assert!(remote.stdout.starts_with("Hello from there.\n"), "{remote:?}");
    assert_eq!(listed(&folder, &[]).len(), 1, "the second message continued the conversation");
    let short = tail.split("· ").nth(1).unwrap().trim();
    assert!(listed(&folder, &[])[0]["id"].as_str().unwrap().ends_with(short));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piped_dialogue_keeps_its_conversation() {
    let model = FakeModel::start().await;
    model.script(["One.", "Two.", "Three."].map(Reply::text).to_vec());
    let folder = folder_with_model(&model);
    let done = block_in_place(|| folder.run_with_input(&["chat"], "first\n\nsecond\n/new\n/nwe\nthird\n/quit\nnever\n")).exits(0);
    let answers: Vec<&str> = done.stdout.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(answers, ["One.", "Two.", "Three."], "{done:?}");
    assert!(done.stderr.contains("/nwe"), "a mistyped command is not sent: {done:?}");
    let histories: Vec<usize> = model.requests().iter().map(|request| request.body["messages"].as_array().unwrap().len()).collect();
    assert_eq!(histories, [2, 4, 2], "with the system message; /new starts without history");
    assert_eq!(listed(&folder, &[]).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_shown_with_their_outcome() {
    let model = FakeModel::start().await;
    let calls = vec![call("test_echo", json!({"value": "tea"})), call("test_panic", json!({}))];
    model.script(vec![Reply::calls(calls).with_text("I look."), Reply::text("Done.")]);
    let folder = folder_with_model(&model);
    let done = run(&folder, &["chat", "tea please"]).exits(0);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!((lines[0], lines[3]), ("I look.", "Done."), "{done:?}");
    let calls = [lines[1], lines[2]];
    let shown =
        |start: &str| calls.iter().find(|line| line.starts_with(start) && line.contains(" ms · ")).unwrap_or_else(|| panic!("{done:?}"));
    shown("  ✗ test_panic tool_panicked ");
    let id = shown("  ✓ test_echo ").rsplit(' ').next().unwrap();
    assert_eq!(id.len(), 8);
    assert_eq!(
        run(&folder, &["explain", id, "--json"]).exits(0).json()["arguments"],
        json!({"value": "tea"}),
        "the shown id names the call"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_one_event_per_line_up_to_final() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]), Reply::text("Here is tea.")]);
    let folder = folder_with_model(&model);
    let events = events(&run(&folder, &["chat", "tea please", "--json"]).exits(0));
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
    let folder = folder_with_model(&model);
    let failed = run(&folder, &["chat", "x"]).exits(1);
    assert!(failed.stderr.contains("error: model_refused: "), "{failed:?}");
    let json = run(&folder, &["chat", "x", "--json"]).exits(1);
    assert_eq!((events(&json).last().unwrap()["event"].as_str(), &json.error()["code"]), (Some("error"), &json!("model_refused")));
    let piped = block_in_place(|| folder.run_with_input(&["chat"], "one\ntwo\n")).exits(1);
    assert!(piped.stdout.starts_with("Better.\n"), "the dialogue continued: {piped:?}");
    assert_eq!(run(&folder, &["chat", "x", "--assistant", "nobody", "--json"]).exits(1).error()["code"], "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_followed_again_after_the_server_was_killed() {
    let model = FakeModel::start().await;
    let gate = Gate::after(2);
    model.script(vec![
        Reply::calls(vec![call("test_echo", json!({"value": "tea"}))]),
        Reply::text("Half an answer that never ends").gate(gate),
        Reply::text("The whole answer."),
    ]);
    let folder = folder_with_model(&model);
    let server = block_in_place(|| folder.serve(&[]));
    let address = server.address().trim_start_matches("http://").to_owned();
    let mut chat = folder.start(&["chat", "tea please"]);
    let stdout = block_in_place(|| until(&mut chat, "Half"));
    server.signal("-KILL");
    block_in_place(|| server.ended());
    let _again = block_in_place(|| folder.serve_at(&address, &[]));
    let text = block_in_place(|| rest(stdout));
    let done = block_in_place(|| CommandOutput::of(&chat.wait_with_output().unwrap())).exits(0);
    assert!(text.contains("\nThe whole answer.\n  "), "{text}");
    assert_eq!(text.matches("The whole answer.").count(), 1, "{text}");
    assert!(done.stderr.contains("the connection broke"), "{done:?}");
    let calls = run(&folder, &["calls", "list", "--json"]).json();
    assert_eq!(calls["tool_calls"].as_array().unwrap().len(), 1, "nothing was called twice: {calls}");
    assert_eq!(listed(&folder, &[]).len(), 1);
}

/// Forwards connections to the server. The first one breaks when the message has arrived, before the response.
async fn unreliable_proxy(listener: TcpListener, server: String, model: &FakeModel) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut upstream = TcpStream::connect(&server).await.unwrap();
    let (mut from, _to) = client.split();
    tokio::select! {
        copied = copy(&mut from, &mut upstream) => panic!("the client left: {copied:?}"),
        () = model.received(1) => {}
    }
    let _ = client.shutdown().await;
    let mut forwarded = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let server = server.clone();
        forwarded.spawn(async move {
            let mut upstream = TcpStream::connect(server).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut upstream).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_twice_is_one_turn() {
    let model = FakeModel::start().await;
    let gate = Gate::before_head();
    model.script(vec![Reply::text("Once.").gate(gate.clone())]);
    let folder = folder_with_model(&model);
    let server: Server = block_in_place(|| folder.serve(&[]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TestFolder::new().with("WERKRUF_SERVER", &listener.local_addr().unwrap().to_string()).with("WERKRUF_KEY", &server.key());
    let upstream = server.address().trim_start_matches("http://").to_owned();
    let chat = client.start(&["chat", "hi", "--json"]);
    let finished = async {
        // The command reports the broken connection on stderr; only then may the answer arrive.
        let (chat, notice) = tokio::task::spawn_blocking(move || {
            let mut chat = chat;
            let mut stderr = BufReader::new(chat.stderr.take().unwrap());
            let mut line = String::new();
            std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
            (chat, line)
        })
        .await
        .unwrap();
        assert!(notice.contains("the connection broke"), "{notice}");
        gate.open();
        tokio::task::spawn_blocking(move || CommandOutput::of(&chat.wait_with_output().unwrap())).await.unwrap()
    };
    let done = tokio::select! {
        done = finished => done.exits(0),
        () = unreliable_proxy(listener, upstream, &model) => panic!("the proxy ended"),
    };
    let events = events(&done);
    assert_eq!((&events[0]["event"], &events.last().unwrap()["data"]["message"]["content"]), (&json!("init"), &json!("Once.")));
    assert_eq!((model.requests().len(), listed(&folder, &[]).len()), (1, 1), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_the_turn() {
    let model = FakeModel::start().await;
    model.script(vec![Reply::text("Half an answer").gate(Gate::after(1))]);
    let folder = folder_with_model(&model);
    let _server = block_in_place(|| folder.serve(&[]));
    let mut chat = folder.start(&["chat", "hi"]);
    let stdout = block_in_place(|| until(&mut chat, "Half"));
    assert!(Command::new("kill").args(["-INT", &chat.id().to_string()]).status().unwrap().success());
    assert!(block_in_place(|| rest(stdout)).ends_with("\n  stopped\n"));
    block_in_place(|| CommandOutput::of(&chat.wait_with_output().unwrap())).exits(130);
    let id = listed(&folder, &[])[0]["id"].as_str().unwrap().to_owned();
    let whole = run(&folder, &["conversations", "export", &id]).exits(0).json();
    assert_eq!((&whole["turns"][0]["status"], whole["turns"].as_array().unwrap().len()), (&json!("canceled"), 1), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_acts_for_the_named_user_or_the_owner_of_the_key() {
    let model = FakeModel::start().await;
    let folder = folder_with_model(&model);
    let server = block_in_place(|| folder.serve(&[]));
    run(&folder, &["chat", "as Clara", "--user", "3"]).exits(0);
    run(&folder, &["chat", "as Ana"]).exits(0);
    let clara = listed(&folder, &["--user", "3"]);
    assert_eq!((clara.len(), &clara[0]["user_id"], &clara[0]["title"]), (1, &json!("3"), &json!("as Clara")));
    run(&folder, &["chat", "again", "--conversation", "last", "--user", "3"]).exits(0);
    assert_eq!((listed(&folder, &["--user", "3"]).len(), listed(&folder, &[]).len()), (1, 2), "last is the user's own");
    run(&folder, &["chat", "a second one", "--user", "3"]).exits(0);
    run(&folder, &["chat", "the first again", "--conversation", clara[0]["id"].as_str().unwrap(), "--user", "3"]).exits(0);
    run(&folder, &["chat", "and again", "--conversation", "last", "--user", "3"]).exits(0);
    let used = listed(&folder, &["--user", "3"]);
    assert_eq!((used.len(), &used[0]["id"]), (2, &clara[0]["id"]), "last is the conversation that was used last: {used:?}");
    let messages = run(&folder, &["conversations", "show", clara[0]["id"].as_str().unwrap(), "--json"]).exits(0).json();
    assert_eq!(messages["messages"][6]["content"], "and again", "{messages}");
    let none = run(&folder, &["chat", "x", "--conversation", "last", "--user", "4", "--json"]).exits(1);
    assert_eq!(none.error()["code"], "not_found");

    // The printed key is Ana's.
    let ana = TestFolder::new().with("WERKRUF_SERVER", &server.address()).with("WERKRUF_KEY", &server.key());
    run(&ana, &["chat", "by key", "--conversation", "last"]).exits(0);
    assert_eq!(listed(&ana, &[]).len(), 1);
    let foreign = clara[0]["id"].as_str().unwrap();
    for arguments in [&["chat", "x", "--conversation", foreign, "--json"][..], &["conversations", "show", foreign, "--json"]] {
        assert_eq!(run(&ana, arguments).exits(1).error()["code"], "not_found");
    }
    let wrong = TestFolder::new().with("WERKRUF_SERVER", "127.0.0.1:1").with("WERKRUF_KEY", "wk_x");
    assert_eq!(run(&wrong, &["chat", "x", "--json"]).exits(1).error()["code"], "server_unavailable");
}
