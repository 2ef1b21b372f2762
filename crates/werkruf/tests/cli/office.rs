//! `init --office`: the example works as written, and its documentation shows the same files.

use serde_json::json;

use crate::support::TestFolder;

const PAGE: &str = include_str!("../../../../docs/writing-a-tool.md");
const IMPORT_PAGE: &str = include_str!("../../../../docs/import-export.md");

fn office() -> TestFolder {
    let folder = TestFolder::new().with("ROOMS_SECRET", "a secret of the example");
    assert_eq!(
        folder.run(&["init", "--office", "--json"]).exits(0).json(),
        json!({"written": ["werkruf.toml", "office.json", "rooms.py"]})
    );
    folder
}

fn read(folder: &TestFolder, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap()
}

/// The content of the only block with this language.
fn block<'p>(page: &'p str, language: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```\n").unwrap().0
}

#[test]
fn the_example_is_valid_and_its_people_have_their_rows() {
    let folder = office();
    folder.run(&["config", "check"]).exits(0);
    let written = folder.run(&["workspace", "import", "office.json", "--json"]).exits(0).json();
    let counts = json!({"branches": 2, "roles": 3, "users": 3, "requests": 2, "tasks": 3, "worktimes": 1, "cerebro_articles": 2});
    assert_eq!(written["written"], counts);
    let called = |tool: &str, user: &str, code| {
        folder.run(&["tools", "call", tool, "--input", "{}", "--tenant", "office", "--user", user, "--json"]).exits(code).stdout
    };
    assert!(called("get_todos", "2", 0).contains("Call the projector supplier"));
    assert!(called("get_requests", "3", 1).contains("permission_denied"), "a trainee has no right to requests");
}

#[test]
fn an_existing_file_stops_the_example_before_anything_is_written() {
    let folder = TestFolder::new();
    folder.file("rooms.py", "mine");
    let refused = folder.run(&["init", "--office", "--json"]).exits(1);
    assert_eq!(refused.error()["code"], "file_exists");
    assert!(refused.stderr.contains("rooms.py"), "{refused:?}");
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["rooms.py"]);
    assert_eq!(read(&folder, "rooms.py"), "mine");
    folder.run(&["init", "--office", "--force"]).exits(0);
    assert_ne!(read(&folder, "rooms.py"), "mine");
}

#[test]
fn the_pages_show_the_files_of_the_example() {
    let folder = office();
    assert_eq!(read(&folder, "rooms.py").trim_end(), block(PAGE, "python"));
    assert!(read(&folder, "werkruf.toml").contains(block(PAGE, "toml")));
    assert_eq!(read(&folder, "office.json").trim_end(), block(IMPORT_PAGE, "json"));
}
