//! The offline planner: its calls and texts, and that it says it is not a language model.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;

use futures_util::StreamExt;
use jiff::civil::date;
use serde_json::{Value, json};
use werkruf_contract::TextSet;
use werkruf_llm::{Answer, Delta, HistoryCall, Message, ModelRequest, OfflineProvider, Provider, TokenUsage, ToolChoice, ToolDefinition};

/// Proposes a call for each tool whose name occurs in the text.
fn provider() -> OfflineProvider {
    OfflineProvider::new(Arc::new(|message| {
        let named = message.tools.iter().filter(|tool| message.text.contains(&tool.name));
        named.map(|tool| (tool.name.clone(), json!({"locale": message.locale, "today": message.today.to_string()}))).collect()
    }))
}

/// The texts of a module with one of the tools.
static MODULE: TextSet =
    TextSet::new("get_requests-ability = Anfragen", "get_requests-ability = requests", "get_requests-ability = solicitudes");

fn tool(name: &str) -> ToolDefinition {
    let parameters = json!({"type": "object"});
    ToolDefinition { name: name.into(), description: String::new(), parameters, strict: false, texts: Some(&MODULE) }
}

fn request(locale: &str, messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: None,
        system: "".into(),
        messages: Arc::new(messages),
        tools: Arc::new(vec![tool("get_requests"), tool("get_todos"), tool("operators_own")]),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        locale: locale.to_owned(),
        today: date(2026, 11, 15),
        temperature: None,
        max_output_tokens: None,
        options: Default::default(),
        approvals: Arc::default(),
        client_max_tokens: None,
    }
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn calls(ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| HistoryCall { id: (*id).into(), name: format!("tool_{id}"), arguments: "{}".into() }).collect();
    Message::Assistant { content: String::new(), calls, carry: None }
}

fn result(id: &str, content: &Value) -> Message {
    Message::result(id, format!("tool_{id}"), content.to_string())
}

/// The text deltas and the answer.
async fn answer_to(request: ModelRequest) -> (Vec<String>, Answer) {
    let mut texts = Vec::new();
    let mut stream = provider().stream(request).await.unwrap();
    while let Some(delta) = stream.next().await {
        match delta.unwrap() {
            Delta::Text(text) => texts.push(text),
            Delta::ItemStarted(item) | Delta::ItemFinished(item) => panic!("the planner runs nothing: {item:?}"),
            Delta::Done(answer) => {
                assert!(stream.next().await.is_none(), "nothing follows the end");
                assert_eq!(texts.concat(), answer.text);
                assert_eq!(answer.usage, Some(TokenUsage::default()), "nothing is estimated");
                assert!(answer.executable);
                return (texts, *answer);
            }
        }
    }
    panic!("the stream ended without an answer")
}

#[tokio::test]
async fn all_proposed_calls_of_offered_tools_are_requested() {
    let (texts, answer) = answer_to(request("de-DE", vec![user("get_todos get_requests secret_tool")])).await;
    assert!(texts.is_empty());
    let calls: Vec<(&str, &str)> = answer.calls.iter().map(|call| (call.name.as_str(), call.call_id.as_deref().unwrap())).collect();
    assert_eq!(calls, [("get_requests", "call_1"), ("get_todos", "call_2")]);
    assert_eq!(answer.calls.iter().map(|call| call.output_index).collect::<Vec<_>>(), [0, 1]);
    let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).unwrap();
    assert_eq!(arguments, json!({"locale": "de-DE", "today": "2026-11-15"}));
}

#[tokio::test]
async fn call_ids_are_numbered_through_the_conversation() {
    let history = vec![user("a"), calls(&["x", "y"]), result("x", &json!({})), result("y", &json!({})), user("get_todos")];
    let (_, answer) = answer_to(request("en", history)).await;
    assert_eq!(answer.calls[0].call_id.as_deref(), Some("call_3"));
}

#[tokio::test]
async fn results_are_in_the_order_of_their_calls() {
    let history = vec![
        user("a"),
        calls(&["one", "two", "three"]),
        result("two", &json!({"message": "Second."})),
        result("three", &json!({"error": {"type": "FATAL", "code": "permission_denied", "message": "no"}})),
        result("one", &json!({"message": "First.\n• row"})),
    ];
    let (texts, answer) = answer_to(request("en-US", history)).await;
    let notice = "(This is the offline planner answering, not a language model.)";
    assert_eq!(answer.text, format!("First.\n• row\n\nSecond.\n\nYou are not permitted to see this.\n\n{notice}"));
    assert!(texts.len() > 1, "sent in several deltas");
    assert!(answer.calls.is_empty());
}

#[tokio::test]
async fn the_notice_appears_once_per_conversation() {
    let mut history = vec![user("a"), calls(&["one"]), result("one", &json!({"message": "Erstens."}))];
    let first = answer_to(request("de", history.clone())).await.1.text;
    assert!(first.starts_with("Erstens.\n\n(") && first.contains("kein Sprachmodell"), "{first}");
    history.extend([Message::Assistant { content: first, calls: Vec::new(), carry: None }, user("b"), calls(&["two"])]);
    history.push(result("two", &json!({"message": "Zweitens."})));
    assert_eq!(answer_to(request("de", history)).await.1.text, "Zweitens.");
}

#[tokio::test]
async fn known_errors_have_texts_and_unknown_ones_show_their_code() {
    for (code, expected) in [("tool_timeout", "tardó demasiado"), ("outcome_unknown", "No se sabe"), ("quota_used_up", "quota_used_up")] {
        let failed = json!({"error": {"type": "TIMEOUT", "code": code, "message": "raw message"}});
        let text = answer_to(request("es-ES", vec![user("a"), calls(&["one"]), result("one", &failed)])).await.1.text;
        assert!(text.contains(expected) && !text.contains("raw message"), "{code}: {text}");
    }
    let invalid = json!({"error": {"type": "VALIDATION", "code": "invalid_arguments", "message": "dueDate must be a date."}});
    let text = answer_to(request("en", vec![user("a"), calls(&["one"]), result("one", &invalid)])).await.1.text;
    assert!(text.contains("dueDate must be a date."), "the reason is shown: {text}");
}

#[tokio::test]
async fn a_result_without_a_text_is_not_shown_raw() {
    for content in ["{\"rows\": [1]}", "not json", "[1, 2]", "{\"message\": \"\"}"] {
        let result = Message::result("one", "convert_units", content);
        let text = answer_to(request("en", vec![user("a"), calls(&["one"]), result])).await.1.text;
        assert!(text.starts_with("Done. The tool convert_units"), "{text}");
    }
}

#[tokio::test]
async fn the_help_text_is_in_the_users_language() {
    for (locale, notice, example) in [
        ("de-AT", "kein Sprachmodell", "Anfragen"),
        ("en-GB", "not a language model", "requests"),
        ("es-MX", "No soy un modelo de lenguaje", "solicitudes"),
        ("fr-FR", "not a language model", "requests"),
    ] {
        let (texts, answer) = answer_to(request(locale, vec![user("blub")])).await;
        for part in [notice, example, "OPENAI_API_KEY", "OPENAI_BASE_URL"] {
            assert!(answer.text.contains(part), "{locale}: {}", answer.text);
        }
        assert!(texts.len() > 1 && answer.calls.is_empty());
        assert!(!answer.text.contains("-ability") && !answer.text.contains("operators_own"), "{}", answer.text);
    }
}

#[tokio::test]
async fn tool_choice_none_gives_text_only() {
    let mut last = request("en", vec![user("get_todos")]);
    last.tool_choice = ToolChoice::None;
    let (_, answer) = answer_to(last).await;
    assert!(answer.calls.is_empty() && !answer.text.is_empty());
    let mut bare = request("en", Vec::new());
    bare.tools = Arc::default();
    assert!(answer_to(bare).await.1.text.contains("no tool"));
}
