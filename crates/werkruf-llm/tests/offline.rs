//! The planner that is no language model: what it calls, what it says, and that it never pretends.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::sync::Arc;

use futures_util::StreamExt;
use jiff::civil::date;
use serde_json::{Value, json};
use werkruf_llm::{Answer, Delta, HistoryCall, Message, ModelRequest, OfflineProvider, Provider, TokenUsage, ToolChoice, ToolDefinition};

/// Proposes a call for each tool whose name stands in the text.
fn provider() -> OfflineProvider {
    OfflineProvider::new(Arc::new(|text, locale, today| {
        let named = ["get_requests", "get_todos", "secret_tool"].into_iter().filter(|name| text.contains(name));
        named.map(|name| (name.to_owned(), json!({"locale": locale, "today": today.to_string()}))).collect()
    }))
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition { name: name.into(), description: String::new(), parameters: json!({"type": "object"}), strict: false }
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
        client_max_tokens: None,
    }
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn asked(ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| HistoryCall { id: (*id).into(), name: format!("tool_{id}"), arguments: "{}".into() }).collect();
    Message::Assistant { content: String::new(), calls, carry: None }
}

fn result(id: &str, content: &Value) -> Message {
    Message::Tool { call_id: id.into(), name: format!("tool_{id}"), content: content.to_string() }
}

/// The texts as they came, and the answer.
async fn ask(request: ModelRequest) -> (Vec<String>, Answer) {
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
async fn all_proposals_are_called_at_once_but_only_offered_tools() {
    let (texts, answer) = ask(request("de-DE", vec![user("get_todos get_requests secret_tool")])).await;
    assert!(texts.is_empty());
    let calls: Vec<(&str, &str)> = answer.calls.iter().map(|call| (call.name.as_str(), call.call_id.as_deref().unwrap())).collect();
    assert_eq!(calls, [("get_requests", "call_1"), ("get_todos", "call_2")]);
    assert_eq!(answer.calls.iter().map(|call| call.output_index).collect::<Vec<_>>(), [0, 1]);
    let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).unwrap();
    assert_eq!(arguments, json!({"locale": "de-DE", "today": "2026-11-15"}));
}

#[tokio::test]
async fn ids_count_on_through_a_conversation() {
    let history = vec![user("a"), asked(&["x", "y"]), result("x", &json!({})), result("y", &json!({})), user("get_todos")];
    let (_, answer) = ask(request("en", history)).await;
    assert_eq!(answer.calls[0].call_id.as_deref(), Some("call_3"));
}

#[tokio::test]
async fn results_are_told_in_the_order_of_their_calls() {
    let history = vec![
        user("a"),
        asked(&["one", "two", "three"]),
        result("two", &json!({"message": "Second."})),
        result("three", &json!({"error": {"type": "FATAL", "code": "permission_denied", "message": "no"}})),
        result("one", &json!({"message": "First.\n• row"})),
    ];
    let (texts, answer) = ask(request("en-US", history)).await;
    let notice = "(This is the offline planner answering, not a language model.)";
    assert_eq!(answer.text, format!("First.\n• row\n\nSecond.\n\nYou are not permitted to see this.\n\n{notice}"));
    assert!(texts.len() > 1, "shown as it comes");
    assert!(answer.calls.is_empty());
}

#[tokio::test]
async fn who_speaks_is_said_once_in_a_conversation() {
    let mut history = vec![user("a"), asked(&["one"]), result("one", &json!({"message": "Erstens."}))];
    let first = ask(request("de", history.clone())).await.1.text;
    assert!(first.starts_with("Erstens.\n\n(") && first.contains("kein Sprachmodell"), "{first}");
    history.extend([Message::Assistant { content: first, calls: Vec::new(), carry: None }, user("b"), asked(&["two"])]);
    history.push(result("two", &json!({"message": "Zweitens."})));
    assert_eq!(ask(request("de", history)).await.1.text, "Zweitens.");
}

#[tokio::test]
async fn every_failure_has_polite_words_and_an_unknown_one_its_code() {
    for (code, words) in [("tool_timeout", "tardó demasiado"), ("outcome_unknown", "No se sabe"), ("quota_used_up", "quota_used_up")] {
        let failed = json!({"error": {"type": "TIMEOUT", "code": code, "message": "raw words"}});
        let text = ask(request("es-ES", vec![user("a"), asked(&["one"]), result("one", &failed)])).await.1.text;
        assert!(text.contains(words) && !text.contains("raw words"), "{code}: {text}");
    }
    let invalid = json!({"error": {"type": "VALIDATION", "code": "invalid_arguments", "message": "dueDate must be a date."}});
    let text = ask(request("en", vec![user("a"), asked(&["one"]), result("one", &invalid)])).await.1.text;
    assert!(text.contains("dueDate must be a date."), "what can be mended is said: {text}");
}

#[tokio::test]
async fn a_result_without_a_text_is_not_shown_raw() {
    for content in ["{\"rows\": [1]}", "not json", "[1, 2]", "{\"message\": \"\"}"] {
        let result = Message::Tool { call_id: "one".into(), name: "convert_units".into(), content: content.into() };
        let text = ask(request("en", vec![user("a"), asked(&["one"]), result])).await.1.text;
        assert!(text.starts_with("Done. The tool convert_units"), "{text}");
    }
}

#[tokio::test]
async fn what_it_does_not_understand_it_says_so_in_the_persons_language() {
    for (locale, says, can) in [
        ("de-AT", "kein Sprachmodell", "Anfragen"),
        ("en-GB", "not a language model", "requests"),
        ("es-MX", "No soy un modelo de lenguaje", "solicitudes"),
        ("fr-FR", "not a language model", "requests"),
    ] {
        let (texts, answer) = ask(request(locale, vec![user("blub")])).await;
        for part in [says, can, "OPENAI_API_KEY", "OPENAI_BASE_URL"] {
            assert!(answer.text.contains(part), "{locale}: {}", answer.text);
        }
        assert!(texts.len() > 1 && answer.calls.is_empty());
        assert!(!answer.text.contains("offline-") && !answer.text.contains("operators_own"), "{}", answer.text);
    }
}

#[tokio::test]
async fn the_last_word_is_text_whatever_is_proposed() {
    let mut last = request("en", vec![user("get_todos")]);
    last.tool_choice = ToolChoice::None;
    let (_, answer) = ask(last).await;
    assert!(answer.calls.is_empty() && !answer.text.is_empty());
    let mut bare = request("en", Vec::new());
    bare.tools = Arc::default();
    assert!(ask(bare).await.1.text.contains("no tool"));
}
