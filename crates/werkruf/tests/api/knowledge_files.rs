//! Files over HTTP. A script takes the place of `werkruf-reader`; `tests/outside/check_files.py` uses the real program.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use reqwest::{Method, Response};
use serde_json::json;

use crate::support::{TestServer, body, refusal};

/// Answers `--check`, refuses damaged files, and reads the others as they are.
const READER: &str = r#"#!/bin/sh
input=$(/bin/cat)
case "$3 $input" in
    --check*) printf '"ready"' ;;
    *damaged*) printf '{"error":{"code":"unreadable","message":"it is damaged"}}' ;;
    *) printf '{"text":{"kind":"%s","title":"Titel","text":"Gelesen: %s"}}' "$3" "$input" ;;
esac
"#;
const WITHOUT_LANDLOCK: &str = "#!/bin/sh\nprintf '{\"error\":{\"code\":\"reader_sandbox\",\"message\":\"no Landlock\"}}'\n";

async fn server(reader: &str) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("reader");
    // Another process writes the script: a process that another test starts meanwhile would inherit a descriptor of this one, and a file
    // that is open for writing cannot be executed.
    let write = r#"/bin/cat > "$0" && /bin/chmod 700 "$0""#;
    let mut writer = Command::new("/bin/sh").args(["-c", write]).arg(&program).stdin(Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(reader.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    let path = program.to_str().unwrap().to_owned();
    TestServer::open_in_folder("", &[("WERKRUF_READER", &path)], folder).await
}

async fn send(server: &TestServer, fields: &[(&str, &str)], files: &[(&str, &[u8])]) -> Response {
    let mut sent = Vec::new();
    for (name, value) in fields {
        sent.extend(format!("--cut\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes());
    }
    for (name, content) in files {
        let mut head = String::new();
        write!(head, "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n").unwrap();
        sent.extend(head.bytes().chain(content.iter().copied()).chain(*b"\r\n"));
    }
    sent.extend(*b"--cut--\r\n");
    let request = server.operator(Method::POST, "/api/knowledge/files").header("content-type", "multipart/form-data; boundary=cut");
    request.body(sent).send().await.unwrap()
}

#[tokio::test]
async fn each_file_has_its_own_status() {
    let server = server(READER).await;
    let files: [(&str, &[u8]); 6] = [
        ("docs/regeln.md", "# Regeln\n\nMeilen verfallen nach drei Jahren.".as_bytes()),
        ("preise.pdf", b"Gold kostet 60 Euro"),
        ("kaputt.docx", b"damaged"),
        ("programm.exe", b"x"),
        ("preise.pdf", b"twice"),
        ("leer.txt", b" "),
    ];
    let answered = send(&server, &[("collection", "haus"), ("language", "de")], &files).await;
    assert_eq!(answered.status(), 200);
    let failed = |name: &str, reason: &str| json!({"name": name, "status": "failed", "reason": reason});
    let expected = json!({"files": [
        {"name": "docs/regeln.md", "status": "accepted", "document_id": "docs/regeln.md"},
        {"name": "preise.pdf", "status": "accepted", "document_id": "preise.pdf"},
        failed("kaputt.docx", "it is damaged"),
        failed("programm.exe", "only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read"),
        failed("preise.pdf", "another file of this request has the same name; rename it"),
        failed("leer.txt", "it contains no text"),
    ]});
    assert_eq!(body(answered).await, expected);
    let read = server.operator(Method::GET, "/api/knowledge/documents/preise.pdf?collection=haus").send().await.unwrap();
    let read = body(read).await;
    assert_eq!([&read["title"], &read["language"], &read["content"][0]["content"]], ["Titel", "de", "Gelesen: Gold kostet 60 Euro"]);
    let again: [(&str, &[u8]); 2] = [("preise.pdf", b"Gold kostet 60 Euro"), ("docs/regeln.md", b"Anders.")];
    let answered = body(send(&server, &[("collection", "haus"), ("language", "de")], &again).await).await;
    assert_eq!([&answered["files"][0]["status"], &answered["files"][1]["status"]], ["unchanged", "replaced"]);
}

#[tokio::test]
async fn a_request_without_files_or_with_too_many_is_refused() {
    let server = server(READER).await;
    let invalid = (400, "invalid_request".to_owned());
    assert_eq!(refusal(send(&server, &[("collection", "a")], &[]).await).await, invalid);
    assert_eq!(refusal(send(&server, &[("colour", "red")], &[("a.md", b"A")]).await).await, invalid);
    let many: Vec<(&str, &[u8])> = vec![("a.md", b"A"); 101];
    assert_eq!(refusal(send(&server, &[], &many).await).await, invalid);
    let plain = server.operator(Method::POST, "/api/knowledge/files").json(&json!({})).send().await.unwrap();
    assert_eq!(refusal(plain).await, invalid);
    let cut = server.operator(Method::POST, "/api/knowledge/files").header("content-type", "multipart/form-data; boundary=cut");
    assert_eq!(refusal(cut.body("--cut\r\nContent-Disposition: form-data; name=\"file\"").send().await.unwrap()).await, invalid);
    let large = vec![b'x'; (16 << 20) + 1];
    assert_eq!(refusal(send(&server, &[], &[("a.md", &large)]).await).await, (413, "body_too_large".to_owned()));
    let key = server.key(Some(1), &["chat", "tools", "read"]).await;
    let other = server.with_key(&key, Method::POST, "/api/knowledge/files").header("content-type", "multipart/form-data; boundary=cut");
    let file = "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.md\"\r\n\r\nA\r\n--cut--\r\n";
    assert_eq!(refusal(other.body(file).send().await.unwrap()).await, (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn without_the_program_or_a_sandbox_only_plain_text_is_added() {
    for (script, code) in [("", "reader_missing"), (WITHOUT_LANDLOCK, "reader_sandbox")] {
        let server = server(script).await;
        if script.is_empty() {
            std::fs::remove_file(server.folder.path().join("reader")).unwrap();
        }
        let refused = send(&server, &[], &[("a.md", b"A"), ("b.pdf", b"B")]).await;
        assert_eq!(refusal(refused).await, (501, code.to_owned()));
        let listed = body(server.operator(Method::GET, "/api/knowledge/documents").send().await.unwrap()).await;
        assert_eq!(listed["documents"], json!([]), "nothing was added");
        let added = body(send(&server, &[], &[("a.md", b"A")]).await).await;
        assert_eq!(added["files"][0]["status"], "accepted");
    }
}
