//! What people do wrong first. Every mistake is answered with what is wrong and what to do, in at most three lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::task::block_in_place;
use werkruf_bench::fake_model::{FakeModel, Gate, Reply};

use crate::chat::folder_with_model;
use crate::support::{CommandOutput, Server, TestFolder};

/// The user `nobody`.
const NOBODY: &str = "65534";
/// Nothing listens on this port, which is reserved for discarding.
const CLOSED: &str = "127.0.0.1:9";
const UNKNOWN_KEYS: &str = "lisen = '127.0.0.1:0'\n";

/// One mistake: its number in the list of adopters, how it was answered, the exit code and the line that says what to do.
struct Mistake {
    number: u32,
    output: CommandOutput,
    code: i32,
    line: String,
}

/// Answers every request with this head and body, for as long as the test runs.
#[expect(clippy::disallowed_methods, reason = "the other end of a connection needs a thread of its own")]
fn canned(head: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()));
        }
    });
    address
}

/// Reads one request and writes the response. A client that went away is not of interest.
fn answer(mut stream: TcpStream, response: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut chunked) = (0_u64, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        let line = line.to_ascii_lowercase();
        length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
        chunked |= line.starts_with("transfer-encoding:");
    }
    let mut body = Vec::new();
    while chunked && !body.ends_with(b"0\r\n\r\n") {
        if reader.read_until(b'\n', &mut body).unwrap_or(0) == 0 {
            break;
        }
    }
    let _ = reader.take(length).read_to_end(&mut body);
    let _ = stream.write_all(response.as_bytes());
}

/// Runs a command as a user who is not root, because root may read and write everything.
fn unprivileged(folder: &TestFolder, work: &Path, arguments: &[&str]) -> CommandOutput {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let binary = folder.path().join("werkruf");
    if std::fs::hard_link(env!("CARGO_BIN_EXE_werkruf"), &binary).is_err() {
        std::fs::copy(env!("CARGO_BIN_EXE_werkruf"), &binary).unwrap();
    }
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&binary);
        command
    } else {
        Command::new(&binary)
    };
    let output = command.args(arguments).current_dir(work).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).output().unwrap();
    std::fs::remove_file(&binary).unwrap();
    CommandOutput::of(&output)
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Fails where an answer is longer than three lines or does not have the decisive one. Prints all of them, so that one run shows everything.
fn check(mistakes: &[Mistake]) {
    let mut wrong = Vec::new();
    for Mistake { number, output, code, line } in mistakes {
        let text = format!("{}{}", output.stdout, output.stderr);
        let lines: Vec<&str> = text.lines().collect();
        if output.code != *code || lines.len() > 3 || !lines.iter().any(|found| found.trim_start() == line) {
            wrong.push(format!("{number}: expected {code} and\n  {line}\nfound {} and\n{text}", output.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// About servers, keys and what they are asked: 1 to 8, 19 to 23.
#[test]
fn the_server_and_what_it_is_asked() {
    let folder = TestFolder::new();
    let server: Server = folder.serve(&[]);
    let address = server.address();
    let port = address.strip_prefix("http://").unwrap();
    let other = TestFolder::new();
    let stranger = canned("501 Unsupported method", "<html>no</html>");
    let stranger = format!("http://{stranger}");
    let big = "x".repeat(20_000_000);
    let database = folder.path().join("data/werkruf.db").display().to_string();
    let list = |server: &str, key: &[&str]| other.run(&[&["calls", "list", "--server", server], key].concat());
    let mistake = |number, output, code, line: &str| Mistake { number, output, code, line: line.to_owned() };
    check(&[
        mistake(
            1,
            other.run(&["serve", "--listen", port]),
            1,
            &format!(
                "error: io: cannot listen on {port}: Address already in use (os error 98); stop the program that uses it, or choose another address with --listen"
            ),
        ),
        mistake(
            2,
            folder.run(&["serve", "--listen", "127.0.0.1:0", "--database", &database]),
            1,
            &format!("error: database_in_use: another werkruf holds {database}; stop it, or name another file with --database"),
        ),
        mistake(
            3,
            list(CLOSED, &["--key", "wk_x"]),
            1,
            "error: server_unavailable: http://127.0.0.1:9 does not answer: Connection refused (os error 111); start the server there, or correct --server (WERKRUF_SERVER)",
        ),
        mistake(4, list(&address, &[]), 2, &format!("error: usage: {address} asks for a key; set WERKRUF_KEY or give --key")),
        mistake(
            5,
            list(&address, &["--key", "wk_wrong"]),
            1,
            "error: unauthorized: This key is unknown, deleted, expired or not for this address. Check --key (WERKRUF_KEY).",
        ),
        mistake(
            6,
            list(&stranger, &["--key", "wk_x"]),
            1,
            &format!(
                "error: bad_answer: {stranger} answered 501, but not as Werkruf answers; another program or a proxy is there: correct --server (WERKRUF_SERVER)"
            ),
        ),
        mistake(
            7,
            other.run(&["serve", "--listen", "21202"]),
            1,
            "--listen: `21202` is not an address to listen on; write one such as 127.0.0.1:8080",
        ),
        mistake(
            8,
            other.run(&["serve", "--listen", "0.0.0.0:0"]),
            1,
            "error: key_required: 0.0.0.0:0 is not a loopback address, and there is no key to protect it (the demo key and expired keys do not count); set WERKRUF_ADMIN_KEY or make a key with `werkruf keys create`",
        ),
        mistake(
            19,
            folder.run(&["chat", " "]),
            2,
            "error: usage: the message is empty; write it in quotes, or leave it out to write line by line",
        ),
        mistake(
            20,
            folder.run_with_input(&["chat"], big.as_bytes()),
            1,
            "error: invalid_request: the message has 20000000 bytes, and a server takes 1048576; `werkruf knowledge add FILE` makes long texts searchable",
        ),
        mistake(
            21,
            folder.run_with_input(&["chat"], b"caf\xe9\n"),
            1,
            "error: unreadable: stdin is not UTF-8 text, so nothing was sent; convert it, such as with `iconv -f latin1 -t utf-8`",
        ),
        mistake(
            22,
            folder.run(&["chat", "hi", "--tenant", "nope"]),
            1,
            "error: unknown_tenant: There is no such tenant; --tenant takes a slug or an id.",
        ),
        mistake(23, folder.run(&["chat", "hi", "--user", "Ana"]), 1, "error: invalid_request: --user takes a number or ext:<external id>."),
    ]);
    assert_eq!(folder.run(&["calls", "list"]).exits(0).stdout, "No calls.\n", "nothing was sent");
}

/// About the configuration and the database: 9 to 18.
#[test]
fn the_configuration_and_the_database() {
    let folder = TestFolder::new();
    mode(folder.path(), 0o755);
    folder.file("typo.toml", UNKNOWN_KEYS).file("bad.toml", "listen = '127.0.0.1:0'\n[limits\n").file("text.db", "hello\n");
    std::fs::create_dir(folder.path().join("folder.db")).unwrap();
    folder.file("secret.db", "");
    mode(&folder.path().join("secret.db"), 0o000);
    let read_only = folder.path().join("read-only");
    std::fs::create_dir(&read_only).unwrap();
    mode(&read_only, 0o555);
    let serve = |arguments: &[&str]| folder.run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
    let mistake = |number, output, line: &str| Mistake { number, output, code: 1, line: line.to_owned() };
    check(&[
        mistake(9, serve(&["--config", "typo.toml"]), "/lisen (line 1): unknown key `lisen`; did you mean `listen`?"),
        mistake(10, serve(&["--config", "bad.toml"]), "bad.toml (line 2): is not TOML: unclosed table, expected `]`"),
        mistake(
            11,
            serve(&["--config", "none.toml"]),
            "--config: cannot read none.toml: No such file or directory (os error 2); `werkruf init` writes a template",
        ),
        mistake(
            12,
            serve(&["--database", "text.db"]),
            "error: database_unusable: text.db is not a SQLite database; name another file with --database",
        ),
        mistake(
            13,
            serve(&["--database", "folder.db"]),
            "error: database_unusable: folder.db is a folder; name a file in it, such as --database sqlite:folder.db/werkruf.db",
        ),
        mistake(
            14,
            unprivileged(&folder, folder.path(), &["calls", "list", "--database", "secret.db"]),
            "error: database_unusable: this user may not read and write secret.db; run werkruf as the owner of the file, or name another with --database",
        ),
        mistake(
            15,
            unprivileged(&folder, &read_only, &["serve", "--listen", "127.0.0.1:0"]),
            "error: database_unusable: this user may not make the folder data; run werkruf where it may write, or name a file with --database",
        ),
        mistake(
            16,
            serve(&["--database", "sqlite:no/such/werkruf.db"]),
            "error: database_unusable: the folder no/such does not exist; make it with `mkdir -p no/such`, or correct --database",
        ),
        mistake(
            17,
            serve(&["--database", "mysql://db/werkruf"]),
            "--database: names no database; write sqlite:FILE such as sqlite:data/werkruf.db, or postgres://USER@HOST/DATABASE",
        ),
        mistake(
            18,
            serve(&["--database", "postgres://ana:secret@127.0.0.1:9/werkruf"]),
            "error: database_unavailable: postgres://127.0.0.1:9/werkruf cannot be opened: the database does not answer: Connection refused (os error 111); check the address in --database (WERKRUF_DATABASE), and that the database runs there",
        ),
    ]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "folder.db.lock-held" || name == "no" || name == "data"), "{left:?}");
}

/// About the model and documents: 24 to 28.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_and_the_documents() {
    let mistake = |number, output, code, line: &str| Mistake { number, output, code, line: line.to_owned() };
    let refusing = canned("401 Unauthorized\r\nContent-Type: application/json", "{\"error\": {\"message\": \"Incorrect API key\"}}");
    let page = canned("200 OK\r\nContent-Type: text/html", "<!doctype html><html>Welcome</html>");
    let with_model = |address: &str| TestFolder::new().with("OPENAI_BASE_URL", &format!("http://{address}/v1")).with("OPENAI_MODEL", "m");
    let slow = FakeModel::start().await;
    let gate = Gate::before_head();
    slow.script(vec![Reply::text("Never.").gate(gate.clone())]);
    let folder = folder_with_model(&slow);
    let child = folder.start(&["chat", "hi"]);
    gate.reached().await;
    let interrupted = block_in_place(|| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        CommandOutput::of(&child.wait_with_output().unwrap())
    });
    let documents = TestFolder::new().with("WERKRUF_READER", "/nowhere/werkruf-reader");
    std::fs::create_dir(documents.path().join("handbook")).unwrap();
    documents.file("handbook/rules.docx", "PK");
    block_in_place(|| {
        check(&[
            mistake(
                24,
                with_model(&refusing).run(&["chat", "hello"]),
                1,
                "error: model_credentials: The language model does not accept this server's key. (127.0.0.1 answered 401 (check the API key): Incorrect API key)",
            ),
            mistake(
                25,
                with_model(&page).run(&["chat", "hello"]),
                1,
                "error: model_unavailable: The server of the language model did not answer like a language model. (127.0.0.1 did not answer like a model (check the base URL, which usually ends in /v1): an HTML page)",
            ),
            mistake(
                25,
                with_model(CLOSED).run(&["chat", "hello"]),
                1,
                "error: model_unavailable: The language model cannot be reached. (127.0.0.1 cannot be reached: Connection refused (os error 111))",
            ),
            mistake(
                26,
                with_model(&refusing).run(&["config", "check", "--live"]),
                1,
                &format!("live: http://{refusing}/v1 answered 401 (check the API key): Incorrect API key"),
            ),
            mistake(27, interrupted, 130, "stopped"),
            mistake(
                28,
                documents.run(&["knowledge", "add", "handbook"]),
                1,
                "error: reader_missing: /nowhere/werkruf-reader cannot be started (No such file or directory (os error 2)); install it beside werkruf, or name it in WERKRUF_READER",
            ),
        ]);
    });
}
