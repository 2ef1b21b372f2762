//! The structure of import files, and the paths and lines of their faults.

use werkruf_store::import::{ImportBatch, ImportFault, ImportRefusal, add_lines};

use crate::SCHEMA;

fn parse_batch(text: &str) -> Result<ImportBatch, Vec<ImportFault>> {
    werkruf_store::import::parse_batch(text, &[SCHEMA], |_| true).map_err(|refusal| match refusal {
        ImportRefusal::Faults(faults) => faults,
        ImportRefusal::ModuleOff { .. } => panic!("{refusal:?}"),
    })
}

const WHOLE: &str = r#"{
  "tenant": "acme",
  "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}],
  "roles": [{"id": 1, "name": "lead", "permissions": [
    {"entity": "table_requests", "entity_type": "table", "access": "both", "scope": "branch"}
  ]}],
  "users": [{"id": 1, "first_name": "Ida", "last_name": "Ott", "email": "ida@acme.example", "locale": "de-DE", "branch_id": 1, "role_ids": [1]}],
  "requests": [{"id": 1, "title": "Chair", "status": "open", "due_date": "2026-11-15", "requester_id": 1, "branch_id": 1, "description": null}],
  "tasks": [{"id": 1, "title": "Call", "status": "done", "user_id": 1, "branch_id": 1, "created_at": "2026-11-15T08:00:00+01:00"}],
  "worktimes": [{"id": 1, "user_id": 1, "branch_id": 1, "started_at": "2026-11-15T08:00:00Z"}],
  "cerebro_articles": [{"id": 1, "title": "WLAN", "content": "Passwort", "tags": ["wifi"]}]
}"#;

fn faults(text: &str) -> Vec<(String, Option<usize>, String)> {
    parse_batch(text).unwrap_err().into_iter().map(|fault| (fault.path, fault.line, fault.message)).collect()
}

fn places(text: &str) -> Vec<(String, Option<usize>)> {
    faults(text).into_iter().map(|(path, line, _)| (path, line)).collect()
}

#[test]
fn a_whole_file_is_read_and_a_missing_list_is_empty() {
    let batch = parse_batch(WHOLE).unwrap();
    assert_eq!((batch.tenant.as_str(), batch.users.len(), batch.roles[0].permissions.len()), ("acme", 1, 1));
    assert_eq!(batch.of_modules[0].counts(), [("requests", 1), ("tasks", 1), ("worktimes", 1), ("cerebro_articles", 1)]);
    let rows = format!("{:?}", batch.of_modules);
    for value in ["due_date: Some(2026-11-15)", "created_at: Some(2026-11-15T07:00:00Z)", "tags: [\"wifi\"]"] {
        assert!(rows.contains(value), "{value} in {rows}");
    }
    let little = parse_batch(r#"{"tenant": "acme", "tasks": null}"#).unwrap();
    assert!(little.users.is_empty() && little.of_modules[0].counts().iter().all(|(_, count)| *count == 0));
}

#[test]
fn broken_json_is_reported_with_its_line() {
    let found = faults("{\n  \"tenant\": \"acme\",\n  \"users\": [}\n}");
    assert_eq!((found.len(), found[0].0.as_str(), found[0].1), (1, "", Some(3)), "{found:?}");
    assert!(found[0].2.contains("not JSON"), "{found:?}");
    assert_eq!(places("[]"), [(String::new(), Some(1))]);
}

#[test]
fn every_structural_fault_is_reported_with_path_and_line() {
    let text = r#"{
  "tenant": 7,
  "requets": [],
  "requests": [
    {"id": 1, "title": "a", "status": "open", "requester_id": 1, "branch_id": 1},
    {
      "id": "2",
      "titel": "b",
      "status": "open",
      "due_date": "tomorrow",
      "requester_id": 1.5,
      "branch_id": null
    },
    "none"
  ],
  "roles": [{"id": 1, "name": "x", "permissions": [
    {"entity": "e", "entity_type": "t",
     "access": "reed",
     "scope": "everyone"}]}],
  "users": [{"id": 1, "id": 2, "first_name": "A", "last_name": "B", "locale": "de-DE", "role_ids": [1,
    "x"]}],
  "worktimes": {"id": 1},
  "a/b~c": 1
}"#;
    let expected = [
        ("/tenant", 2),
        ("/requets", 3),
        // A missing field has the line of its row.
        ("/requests/1/title", 6),
        ("/requests/1/id", 7),
        ("/requests/1/titel", 8),
        ("/requests/1/due_date", 10),
        ("/requests/1/requester_id", 11),
        ("/requests/1/branch_id", 12),
        ("/requests/2", 14),
        ("/roles/0/permissions/0/access", 18),
        ("/roles/0/permissions/0/scope", 19),
        ("/users/0/id", 20),
        ("/users/0/role_ids/1", 21),
        ("/worktimes", 22),
        ("/a~1b~0c", 23),
    ];
    let expected: Vec<(String, Option<usize>)> = expected.iter().map(|(path, line)| ((*path).to_owned(), Some(*line))).collect();
    assert_eq!(places(text), expected);
    let reported = faults(text);
    let of = |path: &str| reported.iter().find(|(known, ..)| known == path).unwrap().2.clone();
    assert_eq!(of("/requests/1/id"), "takes a whole number, not \"2\"");
    assert_eq!(of("/roles/0/permissions/0/access"), "takes \"read\", \"write\" or \"both\", not \"reed\"");
    assert!(of("/requests/1/title").starts_with("is missing"));
}

#[test]
fn values_are_checked_together_with_structural_faults() {
    let text =
        WHOLE.replace("\"status\": \"done\"", "\"status\": \"dun\"").replace("\"id\": 1, \"title\": \"Chair\"", "\"title\": \"Chair\"");
    assert_eq!(places(&text), [("/requests/0/id".to_owned(), Some(8)), ("/tasks/0/status".to_owned(), Some(9))]);
    assert!(
        parse_batch(&WHOLE.replace("\"status\": \"done\"", "\"status\": \"dun\"")).is_ok(),
        "faulty values alone are left to the import"
    );
}

#[test]
fn at_most_a_hundred_faults_are_reported() {
    let rows = vec!["{}"; 300].join(",");
    assert_eq!(faults(&format!("{{\"tenant\": \"a\", \"tasks\": [{rows}]}}")).len(), 100);
}

#[test]
fn lines_can_be_added_later() {
    let fault = |path: &str| ImportFault { path: path.to_owned(), line: None, message: String::new() };
    let mut found =
        vec![fault("/cerebro_articles/0/branch_id"), fault("/roles/0/permissions/0/entity"), fault("/nowhere"), fault("/requests/9/id")];
    add_lines(WHOLE, &mut found);
    let found: Vec<_> = found.iter().map(|fault| (fault.path.as_str(), fault.line)).collect();
    let expected = [
        ("/nowhere", None),
        ("/roles/0/permissions/0/entity", Some(5)),
        ("/requests/9/id", Some(8)),
        ("/cerebro_articles/0/branch_id", Some(11)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_list_of_a_module_that_is_off_refuses_the_file() {
    let off = |text: &str| werkruf_store::import::parse_batch(text, &[SCHEMA], |_| false).map(|_| ());
    assert_eq!(off(WHOLE), Err(ImportRefusal::ModuleOff { module: "workspace", list: "requests" }));
    assert_eq!(off(r#"{"tenant": "a", "worktimes": []}"#), Err(ImportRefusal::ModuleOff { module: "workspace", list: "worktimes" }));
    assert_eq!(off(r#"{"tenant": "acme", "tasks": null, "users": []}"#), Ok(()));
    let unknown = werkruf_store::import::parse_batch(WHOLE, &[], |_| true).map(|_| ());
    assert!(
        matches!(unknown, Err(ImportRefusal::Faults(faults)) if faults.len() == 4),
        "a server without the module does not know the lists"
    );
}
