//! Ids may be given by a unique beginning or end. Short ids that commands print are ends.

use serde_json::{Value, json};
use werkruf_contract::Uuid;

use super::backend::Backend;
use super::error::CliError;

/// Fewer characters of an id name nothing: they fit by chance.
const MIN_PART: usize = 4;

/// The API path of a call, by id, or by a unique beginning or end of it.
pub(super) fn call_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/tool-calls/{}", normalized(typed)?))
}

/// The API path of a conversation, by id, or by a unique beginning or end of it.
pub(super) fn conversation_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/conversations/{}", normalized(typed)?))
}

/// The API path of an approval, by id, or by a unique beginning or end of it.
pub(super) fn approval_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/approvals/{}", normalized(typed)?))
}

/// The API path of a row of the outbox, by id, or by a unique beginning or end of it.
pub(super) fn outbox_path(typed: &str) -> Result<String, CliError> {
    Ok(format!("/api/outbox/{}", normalized(typed)?))
}

/// The full id of a conversation.
pub(super) async fn conversation(backend: &Backend, typed: &str) -> Result<String, CliError> {
    let row = backend.get(&conversation_path(typed)?).await?;
    Ok(text(&row, "id")?.to_owned())
}

/// The only id in these rows that begins or ends with the given text.
pub(super) fn among(rows: &[Value], typed: &str) -> Result<String, CliError> {
    let part = normalized(typed)?;
    let matches = |row: &&Value| row["id"].as_str().is_some_and(|id| id.starts_with(&part) || id.ends_with(&part));
    let matching: Vec<&Value> = rows.iter().filter(matches).collect();
    match matching.as_slice() {
        [] => Err(CliError::refused("not_found", format!("no id begins or ends with {typed}"))),
        [only] => Ok(text(only, "id")?.to_owned()),
        several => {
            let candidate = |row: &&Value| json!({"id": row["id"], "name": row["name"], "created_at": row["created_at"]});
            let candidates = several.iter().map(candidate).collect();
            let error = CliError::refused("ambiguous_id", format!("more than one id begins or ends with {typed}; type more of it"));
            Err(error.with_details(candidates))
        }
    }
}

/// An id, or a part of one, in lower case, if it has the form of an id.
fn normalized(typed: &str) -> Result<String, CliError> {
    let id = typed.to_ascii_lowercase();
    let fits = id.len() >= MIN_PART && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if fits || Uuid::parse_str(&id).is_ok() {
        Ok(id)
    } else {
        Err(CliError::Usage(format!(
            "`{typed}` is neither an id nor the beginning or end of one: at least {MIN_PART} of 0-9, a-f and dashes"
        )))
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
    fn a_part_must_name_one_row() {
        let rows = [json!({"id": "0197f2c4-77aa"}), json!({"id": "0197f2c5-0000"})];
        for typed in ["0197F2C4", "77aa", "0197f2c4-77aa"] {
            assert_eq!(among(&rows, typed).unwrap(), "0197f2c4-77aa");
        }
        let Err(CliError::Refused { code, details, .. }) = among(&rows, "0197") else { panic!("two ids fit") };
        assert_eq!((code.as_str(), details.unwrap()[1]["id"].as_str()), ("ambiguous_id", Some("0197f2c5-0000")));
        assert!(matches!(among(&rows, "0198"), Err(CliError::Refused { code, .. }) if code == "not_found"));
        for wrong in ["../x", "7aa"] {
            assert!(matches!(among(&rows, wrong), Err(CliError::Usage(_))));
        }
    }
}
