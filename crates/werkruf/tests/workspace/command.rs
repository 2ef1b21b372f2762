//! `werkruf workspace import`.

use serde_json::json;

use crate::binary::Place;

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
    let place = Place::new();
    place.file("office.json", OFFICE);
    let first = place.run(&["workspace", "import", "office.json", "--json"]).exits(0).json();
    assert_eq!(first["written"], json!({"branches": 1, "users": 1, "tasks": 1}));
    let told = place.run_with_input(&["workspace", "import", "-"], OFFICE).exits(0);
    assert!(told.stdout.contains("Imported into acme") && told.stdout.contains("tasks"), "{told:?}");
    let _server = place.serve(&[]);
    let again = place.run(&["workspace", "import", "office.json", "--json"]).exits(0).json();
    assert_eq!(again["tenant_id"], first["tenant_id"], "the same tenant, through the server");
}

#[test]
fn each_fault_is_a_line_with_the_files_own_line_number() {
    let place = Place::new();
    place.file("status.json", &OFFICE.replace("\"open\"", "\"opened\""));
    place.file("shape.json", &OFFICE.replace("\"tasks\"", "\"taks\""));
    let value = place.run(&["workspace", "import", "status.json"]).exits(1);
    assert!(value.stderr.contains("/tasks/0/status (line 6): "), "{value:?}");
    let shape = place.run(&["workspace", "import", "shape.json", "--json"]).exits(1).error();
    assert_eq!(shape["code"], "import_invalid");
    assert_eq!((&shape["details"][0]["path"], &shape["details"][0]["line"]), (&json!("/taks"), &json!(5)));
    place.run(&["workspace", "import", "missing.json"]).exits(1);
    place.run(&["workspace", "import", "status.json", "--tenant", "demo"]).exits(2);
    place.run(&["workspace", "import"]).exits(2);
}
