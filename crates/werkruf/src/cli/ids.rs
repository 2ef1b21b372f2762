//! Ids may be given as unique prefixes.

use serde_json::Value;
use werkruf_contract::Uuid;

use super::backend::Backend;
use super::error::CliError;

/// The API path of a call, by id or unique prefix.
pub(super) fn call_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/tool-calls/{}", normalized(typed)?))
}

/// The API path of a conversation, by id or unique prefix.
pub(super) fn conversation_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/conversations/{}", normalized(typed)?))
}

/// The API path of an approval, by id or unique prefix.
pub(super) fn approval_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/approvals/{}", normalized(typed)?))
}

/// The full id of a conversation.
pub(super) async fn conversation(backend: &Backend, typed: &str) -> Result<String, CliError> {
    let row = backend.get(&conversation_path(typed)?).await?;
    Ok(text(&row, "id")?.to_owned())
}

/// The only id in these rows that begins with the given prefix.
pub(super) fn among(rows: &[Value], typed: &str) -> Result<String, CliError> {
    let prefix = normalized(typed)?;
    let mut matching = rows.iter().filter_map(|row| row["id"].as_str()).filter(|id| id.starts_with(&prefix));
    match (matching.next(), matching.next()) {
        (Some(only), None) => Ok(only.to_owned()),
        (None, _) => Err(CliError::refused("not_found", format!("no id begins with {typed}"))),
        (Some(_), Some(_)) => Err(CliError::refused("ambiguous_id", format!("more than one id begins with {typed}; type more of it"))),
    }
}

/// An id or prefix in lower case, if it has the form of an id.
fn normalized(typed: &str) -> Result<String, CliError> {
    let id = typed.to_ascii_lowercase();
    let fits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if fits || Uuid::parse_str(&id).is_ok() {
        Ok(id)
    } else {
        Err(CliError::Usage(format!("`{typed}` is neither an id nor the beginning of one")))
    }
}

/// A required text field of a response.
pub(super) fn text<'a>(response: &'a Value, field: &str) -> Result<&'a str, CliError> {
    response[field].as_str().ok_or_else(|| CliError::refused("bad_answer", format!("the server's response has no {field}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prefix_must_name_one_row() {
        let rows = [json!({"id": "0197f2c4-77aa"}), json!({"id": "0197f2c5-0000"})];
        assert_eq!(among(&rows, "0197F2C4").unwrap(), "0197f2c4-77aa");
        assert!(matches!(among(&rows, "0197"), Err(CliError::Refused { code, .. }) if code == "ambiguous_id"));
        assert!(matches!(among(&rows, "0198"), Err(CliError::Refused { code, .. }) if code == "not_found"));
        assert!(matches!(among(&rows, "../x"), Err(CliError::Usage(_))));
    }
}
