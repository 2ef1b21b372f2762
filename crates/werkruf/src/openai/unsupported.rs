//! Request fields that the server does not implement and must not ignore, because the answer would mean something else. docs/openai.md
//! has the list of those that are ignored.

use serde_json::{Map, Value};

use crate::api::error::ApiError;

/// Refuses what Chat Completions cannot do here.
pub(crate) fn check_chat(body: &Map<String, Value>) -> Result<(), ApiError> {
    if body.get("n").and_then(Value::as_f64).is_some_and(|n| n > 1.0) {
        return Err(refused("n", "A request has one answer here; leave n out or send 1."));
    }
    if body.get("logprobs").and_then(Value::as_bool) == Some(true) || counts(body.get("top_logprobs")) {
        return Err(refused("logprobs", "Log probabilities are not returned; leave logprobs and top_logprobs out."));
    }
    let wants_audio = body.get("modalities").and_then(Value::as_array).is_some_and(|kinds| kinds.iter().any(|kind| kind == "audio"));
    if wants_audio || body.get("audio").is_some_and(Value::is_object) {
        return Err(refused("modalities", "Answers are text; leave audio out of modalities."));
    }
    Ok(())
}

/// Refuses what Responses cannot do here.
pub(crate) fn check_responses(body: &Map<String, Value>) -> Result<(), ApiError> {
    if body.get("prompt").is_some_and(|prompt| !prompt.is_null()) {
        return Err(refused("prompt", "Prompt templates of OpenAI are not known here; send the text as instructions."));
    }
    let included = body.get("include").and_then(Value::as_array);
    if counts(body.get("top_logprobs")) || included.is_some_and(|list| list.iter().any(|name| name == "message.output_text.logprobs")) {
        return Err(refused("top_logprobs", "Log probabilities are not returned; leave top_logprobs out."));
    }
    Ok(())
}

fn counts(value: Option<&Value>) -> bool {
    value.and_then(Value::as_f64).is_some_and(|count| count > 0.0)
}

/// 400: the field is known, and not implemented.
pub(crate) fn refused(param: &'static str, message: &'static str) -> ApiError {
    ApiError::new(http::StatusCode::BAD_REQUEST, "unsupported_parameter", message).param(param)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check_chat, check_responses};
    use crate::api::error::ApiError;

    fn param(result: Result<(), ApiError>) -> Option<String> {
        result.err().map(|error| {
            assert_eq!((error.status().as_u16(), error.code()), (400, "unsupported_parameter"));
            crate::openai::error_body::body(&error)["error"]["param"].as_str().unwrap().to_owned()
        })
    }

    #[test]
    fn only_what_changes_the_meaning_is_refused() {
        let chat = |body: Value| param(check_chat(body.as_object().unwrap()));
        let responses = |body: Value| param(check_responses(body.as_object().unwrap()));
        assert_eq!(chat(json!({"n": 2})).as_deref(), Some("n"));
        assert_eq!(chat(json!({"n": 2.0})).as_deref(), Some("n"));
        assert_eq!(chat(json!({"n": 1.0, "top_logprobs": 0.0})), None);
        assert_eq!(chat(json!({"top_logprobs": 2.0})).as_deref(), Some("logprobs"));
        assert_eq!(chat(json!({"logprobs": true})).as_deref(), Some("logprobs"));
        assert_eq!(chat(json!({"modalities": ["text", "audio"]})).as_deref(), Some("modalities"));
        let harmless = json!({"n": 1, "logprobs": false, "top_logprobs": 0, "modalities": ["text"], "audio": null, "prediction": {}});
        assert_eq!(chat(harmless), None);
        assert_eq!(responses(json!({"prompt": {"id": "pmpt_1"}})).as_deref(), Some("prompt"));
        assert_eq!(responses(json!({"include": ["message.output_text.logprobs"]})).as_deref(), Some("top_logprobs"));
        assert_eq!(
            responses(json!({"max_tool_calls": 3, "prompt": null, "top_logprobs": 0, "include": ["reasoning.encrypted_content"], "n": 2})),
            None
        );
    }
}
