//! `werkruf workspace import`.

use serde_json::json;

use crate::binary::TestFolder;

const OFFICE: &str = r#"{
  "tenant": "acme",
  "branches": [{"id": 1, "name": "Berlin", "time_zone": "Europe/Berlin"}],
  "users": [{"id": 1, "first_name": "Ida", "last_name": "Ott", "email": null, "locale": "de-DE", "branch_id": 1, "role_ids": []}],
  "tasks": [
    {"id": 1, "title": "Call", "status": "open", "user_id": 1, "branch_id": 1}
  ]
}"#;

#[test]
fn a_file_is_imported_with_and_without_a_server() {
    let folder = TestFolder::new();
    folder.file("office.json", OFFICE);
    let first = folder.run(&["workspace", "import", "office.json", "--json"]).exits(0).json();
    assert_eq!(first["written"], json!({"branches": 1, "users": 1, "tasks": 1}));
    let text = folder.run_with_input(&["workspace", "import", "-"], OFFICE).exits(0);
    assert!(text.stdout.contains("Imported into acme") && text.stdout.contains("tasks"), "{text:?}");
    let _server = folder.serve(&[]);
    let again = folder.run(&["workspace", "import", "office.json", "--json"]).exits(0).json();
    assert_eq!(again["tenant_id"], first["tenant_id"], "the same tenant, through the server");
}

#[test]
fn each_fault_is_a_line_with_the_files_own_line_number() {
    let folder = TestFolder::new();
    folder.file("status.json", &OFFICE.replace("\"open\"", "\"opened\""));
    folder.file("shape.json", &OFFICE.replace("\"tasks\"", "\"taks\""));
    let value = folder.run(&["workspace", "import", "status.json"]).exits(1);
    assert!(value.stderr.contains("/tasks/0/status (line 6): "), "{value:?}");
    let shape = folder.run(&["workspace", "import", "shape.json", "--json"]).exits(1).error();
    assert_eq!(shape["code"], "import_invalid");
    assert_eq!((&shape["details"][0]["path"], &shape["details"][0]["line"]), (&json!("/taks"), &json!(5)));
    folder.run(&["workspace", "import", "missing.json"]).exits(1);
    folder.run(&["workspace", "import", "status.json", "--tenant", "demo"]).exits(2);
    folder.run(&["workspace", "import"]).exits(2);
}
