//! The calls that a turn left to its client, and whether a request repeats them. Some model servers use ids such as `call_0` in every
//! conversation, so an id alone does not say which call a result belongs to.

use serde_json::Value;
use werkruf_contract::{ClientCall, Uuid};
use werkruf_llm::HistoryCall;
use werkruf_store::{Order, Page, ResumePoint};

use super::input::Input;
use super::responses::client_calls_of_turn;
use crate::api::error::ApiError;
use crate::app::App;

/// The rows in which the last message of the user is looked for. A turn has few steps.
const RECENT_ROWS: u32 = 200;

/// Whether a request with the whole transcript of this turn also repeats its calls. Libraries that check arguments against a schema add defaults and
/// leave out what they do not know, so only an argument with another value makes another call.
pub(super) async fn repeats_calls(app: &App, tenant_id: Uuid, turn: ResumePoint, input: &Input) -> Result<bool, ApiError> {
    all_match(app, tenant_id, turn, input, |sent, stored| no_argument_differs(&sent, &stored)).await
}

/// Whether a request whose transcript is not known belongs to the turn that waits for its results. A request without the calls does: it names
/// nothing else. One with the calls must repeat them exactly, after the same message of the user.
pub(super) async fn belongs_to(app: &App, tenant_id: Uuid, turn: ResumePoint, input: &Input) -> Result<bool, ApiError> {
    if input.last_calls().next().is_none() {
        return Ok(true);
    }
    let is_same = all_match(app, tenant_id, turn, input, |sent, stored| same_value(&sent, &stored)).await?;
    Ok(is_same && follows_same_message(app, tenant_id, turn, input).await?)
}

async fn all_match(
    app: &App,
    tenant_id: Uuid,
    turn: ResumePoint,
    input: &Input,
    fits: impl Fn(Value, Value) -> bool,
) -> Result<bool, ApiError> {
    if input.last_calls().next().is_none() {
        return Ok(true);
    }
    let stored = client_calls_of_turn(app, tenant_id, turn).await?;
    let matches = |sent: &HistoryCall| {
        let of_turn = stored.iter().find(|call| call.id == sent.id && call.name == sent.name);
        of_turn.is_some_and(|ClientCall { arguments, .. }| fits(value_of(&sent.arguments), value_of(arguments)))
    };
    Ok(input.last_calls().all(matches))
}

/// Whether the last message of the user in the request is the last one of the conversation.
async fn follows_same_message(app: &App, tenant_id: Uuid, turn: ResumePoint, input: &Input) -> Result<bool, ApiError> {
    let Some(sent) = input.last_user_text() else { return Ok(true) };
    let page = Page::of(RECENT_ROWS, Order::NewestFirst);
    let rows = app.records().messages(tenant_id, turn.conversation_id, page).await?;
    // A row that only marks the end of the client's own history has no text.
    let stored = rows.iter().find(|row| row.role == "user" && !(row.content.is_empty() && row.metadata.contains("\"silent\"")));
    // Several messages in a row are stored as one.
    Ok(stored.is_some_and(|row| row.content.trim().ends_with(sent.trim())))
}

/// Arguments as JSON; a text where they are none. Without arguments they are an empty object.
fn value_of(arguments: &str) -> Value {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(arguments))
}

/// Compares numbers by value: a program that reads `1.0` may write `1`.
fn same_value(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Number(one), Value::Number(two)) => one == two || one.as_f64() == two.as_f64(),
        (Value::Array(one), Value::Array(two)) => one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same_value(one, two)),
        (Value::Object(one), Value::Object(two)) => {
            one.len() == two.len() && one.iter().all(|(name, value)| two.get(name).is_some_and(|other| same_value(value, other)))
        }
        _ => one == two,
    }
}

fn no_argument_differs(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Object(one), Value::Object(two)) => {
            one.iter().all(|(name, value)| two.get(name).is_none_or(|other| no_argument_differs(value, other)))
        }
        _ => same_value(one, two),
    }
}

#[cfg(test)]
mod tests {
    use super::{no_argument_differs, same_value, value_of};

    #[test]
    fn arguments_are_compared_by_value() {
        let same = |one: &str, two: &str| same_value(&value_of(one), &value_of(two));
        assert!(same(r#"{"a": 1.0, "b": [{}]}"#, r#"{"b":[{}],"a":1}"#) && same("", "{}") && same("free text", "free text"));
        assert!(!same(r#"{"a": 1}"#, "{}") && !same(r#"{"a": 1}"#, r#"{"a": 2}"#) && !same("[1]", "[1, 2]") && !same("a text", "{}"));
        let fits = |one: &str, two: &str| no_argument_differs(&value_of(one), &value_of(two));
        assert!(fits(r#"{"city": "Bonn", "unit": "C"}"#, r#"{"city": "Bonn", "x": null}"#) && fits("{}", r#"{"a": 1}"#));
        assert!(!fits(r#"{"city": "Bonn"}"#, r#"{"city": "Köln"}"#) && !fits(r#"{"at": {"x": 1}}"#, r#"{"at": {"x": 2}}"#));
    }
}
