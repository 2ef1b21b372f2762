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

/// What is wrong with the example of a request or response body.
fn fault(document: &serde_json::Value, media: &serde_json::Value) -> Option<String> {
    let Some(example) = media.get("example") else { return Some("it has no example".to_owned()) };
    let schema = media.get("schema")?;
    let whole = serde_json::json!({"allOf": [schema], "components": document["components"]});
    let validator = match jsonschema::validator_for(&whole) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("its schema is no schema: {error}")),
    };
    validator.iter_errors(example).next().map(|error| format!("{error} at {} in {example:#}", error.instance_path()))
}

#[test]
fn every_operation_has_examples_that_its_schemas_allow() {
    let document: serde_json::Value = serde_json::from_str(&werkruf::api::openapi()).unwrap();
    let mut faults = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let bodies = operation["requestBody"]["content"].as_object().into_iter().flatten();
            let responses = operation["responses"].as_object().unwrap();
            let success = responses.iter().filter(|(status, _)| status.starts_with('2'));
            let answers = success.flat_map(|(_, response)| response["content"].as_object().into_iter().flatten());
            for (_, media) in bodies.chain(answers) {
                faults.extend(fault(&document, media).map(|fault| format!("{method} {path}: {fault}")));
            }
            let is_empty = |(status, response): (&String, &serde_json::Value)| status.starts_with('2') && response.get("content").is_none();
            let empty = responses.iter().find(|pair| is_empty(*pair)).map(|(status, _)| status.as_str());
            // The protocols behind these two paths have answers without a body.
            if empty.is_some_and(|status| status != "204") && !["/webhooks/whatsapp", "/mcp"].contains(&path.as_str()) {
                faults.push(format!("{method} {path}: a success response has no body and is no 204"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
