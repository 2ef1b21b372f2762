//! `knowledge add` without `werkruf-reader`. `tests/outside/check_pdf.py` and `check_files.py` use the real program.

use serde_json::json;

use crate::support::TestFolder;

#[test]
fn plain_text_is_added_without_the_reader_and_a_skipped_file_decides_the_exit_code() {
    let folder = TestFolder::new().with("WERKRUF_READER", "/no/such/program").with("WERKRUF_MODEL", "offline");
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    folder.file("docs/a.md", "# Titel\n\nText.");
    let added = folder.run(&["knowledge", "add", "docs", "--json"]).exits(0);
    assert_eq!(added.json(), json!({"accepted": 1, "replaced": 0, "unchanged": 0, "chunks": 1, "skipped": []}));
    folder.file("docs/empty.txt", " ").file("docs/photo.png", "x").file("b.bin", "x");
    let photo = "docs/photo.png: only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read";
    let added = folder.run(&["knowledge", "add", "docs", "--json"]).exits(1);
    let skipped = json!([photo, "docs/empty.txt: it contains no text"]);
    assert_eq!(added.json(), json!({"accepted": 0, "replaced": 0, "unchanged": 1, "chunks": 0, "skipped": skipped}));
    assert!(added.stderr.contains(&format!("skipped {photo}")), "{added:?}");
    let skipped = json!(["docs/empty.txt: it contains no text"]);
    assert!(added.stderr.contains("skipped docs/empty.txt: it contains no text"), "{added:?}");
    let named = folder.run(&["knowledge", "add", "docs/a.md", "docs/empty.txt", "--json"]).exits(1);
    assert_eq!(named.json(), json!({"accepted": 0, "replaced": 0, "unchanged": 1, "chunks": 0, "skipped": skipped}));
    let unknown = folder.run(&["knowledge", "add", "docs/a.md", "b.bin", "--json"]).exits(1).json();
    assert_eq!(unknown["skipped"], json!(["b.bin: only text, Markdown, HTML, PDF, DOCX, XLSX and CSV are read"]));
    folder.file("docs/c.pdf", "%PDF-1.4");
    let refused = folder.run(&["knowledge", "add", "docs", "--json"]).exits(1).error();
    assert_eq!(refused["code"], "reader_missing");
    assert!(refused["message"].as_str().unwrap().starts_with("/no/such/program cannot be started"), "{refused}");
}

#[test]
fn the_sandbox_is_on_or_off() {
    let folder = TestFolder::new();
    folder.file("werkruf.toml", "[knowledge]\nreader_sandbox = 'perhaps'\n");
    let report = folder.run(&["config", "check", "--json"]).exits(1).json();
    let violation = json!([{"path": "/knowledge/reader_sandbox", "line": 2, "message": "`perhaps` is unknown; write \"on\" or \"off\""}]);
    assert_eq!(report["violations"], violation);
    folder.file("werkruf.toml", "[knowledge]\nreader_sandbox = 'off'\n").run(&["config", "check"]).exits(0);
}
