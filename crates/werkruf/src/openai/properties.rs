//! Properties of the parsers of OpenAI requests that must hold for any input; see [`crate::properties`].

use serde_json::{Map, Value};
use werkruf_contract::count_json_values;
use werkruf_llm::history_formats::HistoryFormat;

use super::chat_request;
use super::input::Input;
use super::responses::request::{self, Request};
use super::transcript::TranscriptDigest;
use crate::api::json_values::RawFields;
use crate::api::properties::raw;

fn fields(input: &[u8], names: &'static [&'static str]) -> Option<Map<String, Value>> {
    let fields = RawFields::read(input, names).ok()?;
    let _ = fields.may_have_results();
    assert!(fields.count() <= count_json_values(input));
    fields.build().ok()
}

/// A request of Chat Completions, up to its messages.
pub fn chat_request(input: &[u8]) -> bool {
    let Some(body) = fields(input, &chat_request::FIELDS) else { return false };
    let Ok((request, options)) = chat_request::read(raw(input), body) else { return false };
    assert!(options.model.is_none_or(|model| !model.is_empty()));
    assert!(request.max_output_tokens.is_none_or(|limit| limit > 0));
    messages(request.format, &request.values)
}

/// A request of Responses, up to its items.
pub fn responses_request(input: &[u8]) -> bool {
    let Some(body) = fields(input, &request::FIELDS) else { return false };
    let Ok(request) = Request::read(body) else { return false };
    let _ = (request.echo.instructions_text(), request.options(), request.number("temperature"));
    assert!(request.echo.results.len() <= request.items.len());
    messages(HistoryFormat::Responses, &request.items)
}

/// The same messages always give the same digests, and the history that is stored can be read again.
fn messages(format: HistoryFormat, values: &[Value]) -> bool {
    let read = |format, values: &[Value]| {
        let mut next = 0;
        Input::read(format, values, &mut || {
            next += 1;
            format!("call_{next}")
        })
    };
    let Ok(input) = read(format, values) else { return false };
    let again = read(format, values).ok();
    assert!(again.is_some_and(|again| again.digest(TranscriptDigest::default()) == input.digest(TranscriptDigest::default())));
    assert_eq!(input.digest_up_to_last_answer().is_some(), input.is_continued());
    let _ = (input.results(), input.new_user_message(), input.is_empty());
    let (history, _) = input.split_history();
    assert!(read(HistoryFormat::Openai, &history).is_ok(), "a stored history cannot be read");
    true
}
