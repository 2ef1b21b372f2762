//! The committed API document is the generated one.

/// The committed document is that of a server with all modules.
#[cfg(feature = "flights")]
#[test]
fn the_committed_document_is_current() {
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = werkruf::api::openapi();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "docs/openapi.json is out of date; run `UPDATE_SNAPSHOTS=1 cargo test -p werkruf --test api_openapi` and commit it"
    );
}

#[test]
fn every_reference_has_a_target() {
    let document: serde_json::Value = serde_json::from_str(&werkruf::api::openapi()).unwrap();
    let mut open = vec![&document];
    let mut references = 0;
    while let Some(value) = open.pop() {
        if let Some(target) = value.get("$ref").and_then(|target| target.as_str()) {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target} is not there");
            references += 1;
        }
        match value {
            serde_json::Value::Object(fields) => open.extend(fields.values()),
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(references > 20);
}

#[test]
fn every_operation_has_a_unique_name() {
    let document: serde_json::Value = serde_json::from_str(&werkruf::api::openapi()).unwrap();
    let mut names: Vec<&str> = Vec::new();
    for methods in document["paths"].as_object().unwrap().values() {
        names.extend(methods.as_object().unwrap().values().map(|operation| operation["operationId"].as_str().unwrap()));
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
