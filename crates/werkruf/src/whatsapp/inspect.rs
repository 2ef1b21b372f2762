//! `whatsapp inspect`: reads recorded payloads with the code that the webhook uses, and recorded lists of exchanges with the code that
//! checks signatures, answers Meta's handshake and reads answers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::{Value, json};
use werkruf_runtime::SendResult;

use super::answer::{self, Answer};
use super::handshake::challenge;
use super::payload;
use super::signature::Signature;

/// `{events}`; for a list of exchanges `{events: [], entries}` with one verdict each. The error says why the bytes are neither.
pub(crate) fn inspect(bytes: &[u8]) -> Result<Value, String> {
    if let Ok(Value::Array(entries)) = serde_json::from_slice(bytes) {
        return Ok(json!({"events": [], "entries": entries.iter().map(verdict).collect::<Vec<_>>()}));
    }
    payload::parse(bytes).map(|events| json!({"events": events})).map_err(|fault| fault.to_string())
}

fn verdict(entry: &Value) -> Value {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    if let Ok(body) = STANDARD.decode(text("raw_body_base64"))
        && !body.is_empty()
    {
        let secret = SecretString::from(text("app_secret"));
        let valid = Signature::read(text("x_hub_signature_256")).is_some_and(|signature| signature.is_of(&body, &secret));
        return json!({"name": entry["name"], "valid": valid});
    }
    if entry.get("query").is_some() {
        let found = challenge(text("query"), [&SecretString::from(text("configured_token"))]);
        return json!({"query": entry["query"], "status": if found.is_some() { 200 } else { 403 }, "body": found});
    }
    let status = entry["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or_default();
    let read = answer::read(status, None, entry["body"].to_string().as_bytes(), 1);
    let retryable = match &read {
        _ if status < 300 => Value::Null,
        Answer::Settled(SendResult::Retry { .. }) => true.into(),
        Answer::Settled(_) | Answer::WindowClosed { .. } => false.into(),
    };
    json!({"name": entry["name"], "status": status, "retryable": retryable})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_and_lists_of_exchanges_are_read() {
        let payload = json!({"entry": [{"changes": [{"value": {"metadata": {"phone_number_id": "1"}, "statuses": [{"id": "w", "status": "read"}]}}]}]});
        let event = json!({"event": "status", "id": "w", "status": "read", "recipient": null, "timestamp": null, "errors": null});
        assert_eq!(inspect(payload.to_string().as_bytes()), Ok(json!({"events": [event]})));
        assert!(inspect(b"{}").is_err());

        let list = json!([
            {"name": "forged", "app_secret": "s", "raw_body_base64": "e30=", "x_hub_signature_256": format!("sha256={}", "0".repeat(64))},
            {"query": "hub.mode=subscribe&hub.challenge=7&hub.verify_token=t", "configured_token": "t"},
            {"query": "hub.mode=subscribe&hub.challenge=7&hub.verify_token=x", "configured_token": "t"},
            {"name": "rate", "status": 400, "body": {"error": {"code": 131_056}}},
            {"name": "token", "status": 401, "body": {"error": {"code": 190}}},
            {"name": "ok", "status": 200, "body": {"messages": [{"id": "w"}]}},
        ]);
        let expected = json!([
            {"name": "forged", "valid": false},
            {"query": "hub.mode=subscribe&hub.challenge=7&hub.verify_token=t", "status": 200, "body": "7"},
            {"query": "hub.mode=subscribe&hub.challenge=7&hub.verify_token=x", "status": 403, "body": null},
            {"name": "rate", "status": 400, "retryable": true},
            {"name": "token", "status": 401, "retryable": false},
            {"name": "ok", "status": 200, "retryable": null},
        ]);
        assert_eq!(inspect(list.to_string().as_bytes()), Ok(json!({"events": [], "entries": expected})));
    }
}
