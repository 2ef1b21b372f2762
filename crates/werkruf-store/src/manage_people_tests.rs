//! Fields of a new row.

use super::*;

fn faults(kind: PeopleKind, fields: &str) -> Vec<(String, String)> {
    let edit = PeopleEdit::Create { fields: fields.to_owned() };
    let refusal = edit.id().and_then(|id| match edit.step(kind, id.unwrap_or(1), None).unwrap() {
        EditStep::Refuse(refusal) => Err(refusal),
        EditStep::Keep(_) | EditStep::Write { .. } | EditStep::Remove(_) => Ok(()),
    });
    let Err(EditRefusal::Faults(faults)) = refusal else { return Vec::new() };
    faults.into_iter().map(|fault| (fault.path, fault.message)).collect()
}

#[test]
fn a_new_row_is_checked_like_one_of_an_import_and_has_bounds() {
    let path = |kind, fields: &str| faults(kind, fields).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let user = |more: &str| format!(r#"{{"first_name": "A", "last_name": "B", "locale": "de-DE"{more}}}"#);
    assert_eq!(faults(PeopleKind::User, &user("")), []);
    let unknown = faults(PeopleKind::User, &user(r#", "rolle": 1, "email": "x"}"#).replace("}}", "}"));
    assert_eq!(unknown[0], ("/rolle".to_owned(), "is not a field here; correct or remove it".to_owned()));
    assert_eq!(unknown[1].0, "/email");
    assert_eq!(path(PeopleKind::User, &user(r#", "active": 1"#)), ["/active"]);
    assert_eq!(path(PeopleKind::User, &user(r#", "locale": "de""#)), ["/locale"], "given twice");
    assert_eq!(path(PeopleKind::User, &user(&format!(r#", "external_id": "{}""#, "x".repeat(256)))), ["/external_id"]);
    assert_eq!(path(PeopleKind::User, &user(r#", "external_id": "a\u0000""#)), ["/external_id"]);
    let roles = (1..=1001).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(path(PeopleKind::User, &user(&format!(r#", "role_ids": [{roles}]"#))), ["/role_ids"]);
    assert_eq!(path(PeopleKind::User, &user(r#", "id": 0"#)), ["/id"]);
    assert_eq!(path(PeopleKind::User, &user(r#", "id": "x""#)), ["/id"]);
    assert_eq!(path(PeopleKind::User, "[]"), [""]);
    assert_eq!(path(PeopleKind::Branch, r#"{"name": "", "time_zone": "Mars/Base"}"#), ["/name", "/time_zone"]);
    let role = r#"{"name": "lead", "permissions": [{"entity": "t", "entity_type": "table", "access": "x", "scope": "own"}]}"#;
    assert_eq!(path(PeopleKind::Role, role), ["/permissions/0/access"]);
}
