use bytes::BytesMut;
use jiff::Timestamp;
use serde_json::{Value, json};
use werkruf_contract::{AssistantSnapshot, AssistantToken, ChatMessage, ClientCall, ErrorEvent, EventType, ToolErrorType, Usage, Uuid};

use super::super::echo::RequestEcho;
use super::super::object::ResponseBase;
use super::{Encoder, TurnAnswer, TurnEvent};

fn base() -> ResponseBase {
    let turn_id = Uuid::parse_str("018bcfe5-6800-7000-8000-000000000001").unwrap();
    ResponseBase { turn_id, conversation_id: Uuid::nil(), echo: RequestEcho { model: "m".into(), ..RequestEcho::default() } }
}

fn token(step: u32, content: &str) -> TurnEvent {
    TurnEvent::Token(AssistantToken { content: content.to_owned(), step })
}

fn snapshot(step: u32, content: &str) -> TurnEvent {
    TurnEvent::Snapshot(AssistantSnapshot::text(content.to_owned(), step, Uuid::nil()))
}

fn finish(content: &str, calls: &[(&str, &str)]) -> TurnEvent {
    let message = ChatMessage::assistant(content);
    let call = |(id, arguments): &(&str, &str)| ClientCall { id: (*id).into(), name: "f".into(), arguments: (*arguments).into() };
    let answer =
        TurnAnswer { message, client_calls: calls.iter().map(call).collect(), finish_reason: Default::default(), usage: Usage::default() };
    TurnEvent::Final(Box::new(answer), Some(Timestamp::from_second(1_700_000_005).unwrap()))
}

fn failure(code: &str) -> TurnEvent {
    let (code, message) = (code.to_owned(), "No.".to_owned());
    TurnEvent::Error(ErrorEvent { kind: ToolErrorType::Upstream, code, message, retry_after_ms: None, turn_id: Uuid::nil() }, None)
}

fn frames(out: &BytesMut) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    let frame = |frame: &str| {
        let (event, data) = frame.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], event.strip_prefix("event: ").unwrap());
        data
    };
    text.split_terminator("\n\n").map(frame).collect()
}

fn encode_after(after: Option<u64>, turn_events: Vec<TurnEvent>) -> Vec<Value> {
    let mut encoder = Encoder::new(base(), after);
    let mut out = BytesMut::new();
    encoder.start(&mut out);
    for event in turn_events {
        encoder.take(&mut out, event);
    }
    frames(&out)
}

fn encode(turn_events: Vec<TurnEvent>) -> Vec<Value> {
    encode_after(None, turn_events)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

#[test]
fn a_turn_with_two_texts_and_a_call_is_three_items() {
    let turn_events = vec![
        token(1, "Let me look. "),
        snapshot(1, "Let me look. "),
        token(2, "Hello there"),
        snapshot(2, "Hello there"),
        finish("Hello there", &[("call_1", "{\"a\":1}")]),
    ];
    let events = encode(turn_events);
    let text = ["output_item.added", "content_part.added"];
    let end = ["output_text.done", "content_part.done", "output_item.done"];
    let mut expected = vec!["created", "in_progress"];
    expected.extend(text.iter().chain(&["output_text.delta"; 3]).chain(&end));
    expected.extend(text.iter().chain(&["output_text.delta"; 2]).chain(&end));
    expected.extend([
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]);
    assert_eq!(kinds(&events), expected);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap().clone();
    assert_eq!(output.iter().map(|item| item["type"].as_str().unwrap()).collect::<Vec<_>>(), ["message", "message", "function_call"]);
    assert_eq!(output[0]["content"], json!([{"type": "output_text", "text": "Let me look. ", "annotations": [], "logprobs": []}]));
    assert_eq!(
        (&output[2]["call_id"], &output[2]["arguments"], &output[2]["status"]),
        (&json!("call_1"), &json!("{\"a\":1}"), &json!("completed"))
    );
    for event in &events[2..events.len() - 1] {
        assert!(event["output_index"].is_u64(), "{event}");
        let item = event["item_id"].as_str().or_else(|| event["item"]["id"].as_str()).unwrap();
        assert_eq!(item, output[event["output_index"].as_u64().unwrap() as usize]["id"]);
    }
    let started = events.iter().find(|event| event["item"]["type"] == "function_call").unwrap();
    assert_eq!((&started["item"]["arguments"], &started["item"]["status"]), (&json!(""), &json!("in_progress")));
}

/// A random number generator with a fixed seed, so that the tests are repeatable.
struct TextGenerator(u64);

impl TextGenerator {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 9] = ['a', 'b', 'ü', '😀', ' ', ' ', '\n', '.', '字'];
        let length = self.below(90);
        (0..length).map(|_| LETTERS[self.below(LETTERS.len())]).collect()
    }

    /// Random tokens of this text. Sometimes the model breaks off and restarts.
    fn tokens(&mut self, step: u32, text: &str) -> Vec<TurnEvent> {
        let letters: Vec<char> = text.chars().collect();
        let (mut turn_events, mut at) = (Vec::new(), 0);
        while at < letters.len() {
            if self.below(12) == 0 && at > 0 {
                turn_events.push(TurnEvent::Reset);
                at = 0;
            }
            let end = (at + 1 + self.below(9)).min(letters.len());
            turn_events.push(token(step, &letters[at..end].iter().collect::<String>()));
            at = end;
        }
        turn_events
    }
}

#[test]
fn the_events_do_not_depend_on_how_the_text_arrives() {
    for seed in 0..60 {
        let mut generator = TextGenerator(seed);
        let steps: Vec<String> = (0..1 + generator.below(3)).map(|_| generator.text()).collect();
        let calls = [("call_1", "{}"), ("call_2", "{\"x\": [1]}")];
        let calls = &calls[..generator.below(3)];
        let rows = |steps: &[String]| {
            let last = steps.len() - 1;
            let settled = if calls.is_empty() { last } else { steps.len() };
            let mut rows: Vec<TurnEvent> =
                (0..settled).filter(|at| !steps[*at].is_empty()).map(|at| snapshot(at as u32 + 1, &steps[at])).collect();
            rows.push(finish(&steps[last], calls));
            rows
        };
        let stored = encode(rows(&steps));
        for _ in 0..4 {
            let mut live = Vec::new();
            let mut ends = rows(&steps).into_iter();
            for (at, text) in steps.iter().enumerate() {
                live.extend(generator.tokens(at as u32 + 1, text));
                if (at + 1 < steps.len() || !calls.is_empty()) && !text.is_empty() {
                    live.extend(ends.next());
                }
            }
            live.extend(ends);
            assert_eq!(encode(live), stored, "seed {seed}");
        }
        for after in 0..stored.len() {
            assert_eq!(encode_after(Some(after as u64), rows(&steps)), stored[after + 1..], "seed {seed} after {after}");
        }
    }
}

#[test]
fn a_client_that_subscribes_during_a_step_misses_nothing() {
    let text = "One two three four five six.";
    let whole = encode(vec![snapshot(1, "First."), finish(text, &[])]);
    for joined in 0..=text.len() {
        for after in 0..whole.len() {
            let mut encoder = Encoder::new(base(), Some(after as u64));
            let mut out = BytesMut::new();
            encoder.start(&mut out);
            encoder.take(&mut out, snapshot(1, "First."));
            encoder.take_partial(&mut out, 2, &text[..joined]);
            // A late live token of a stored step.
            encoder.take(&mut out, token(1, "st."));
            encoder.take(&mut out, token(2, &text[joined..]));
            encoder.take(&mut out, finish(text, &[]));
            assert_eq!(frames(&out), whole[after + 1..]);
            assert!(encoder.is_ended());
        }
    }
}

#[test]
fn a_restart_with_another_text_ends_the_stream() {
    let events = encode(vec![
        token(1, "The answer is 4 and"),
        TurnEvent::Reset,
        token(1, "The answer is 5 and"),
        finish("The answer is 5 and", &[]),
    ]);
    assert_eq!(kinds(&events[events.len() - 2..]), ["error", "failed"]);
    let failed = events.last().unwrap();
    assert_eq!((&failed["response"]["status"], &failed["response"]["error"]["code"]), (&json!("failed"), &json!("model_interrupted")));
    // Text that was not sent yet may change.
    let events = encode(vec![token(1, "The answer is 4"), TurnEvent::Reset, token(1, "The answer is 5"), finish("The answer is 5", &[])]);
    assert_eq!(events.last().unwrap()["type"], "response.completed");
}

#[test]
fn every_client_receives_the_end_of_a_failed_turn() {
    let live = encode(vec![token(1, "one two three "), failure("model_unavailable")]);
    let names =
        ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "error", "failed"];
    assert_eq!(kinds(&live), names);
    // The text is not stored; clients that received some of it still receive the end.
    for after in 0..8 {
        let rest = encode_after(Some(after), vec![failure("model_unavailable")]);
        assert_eq!(rest.last().unwrap()["type"], "response.failed", "after {after}");
        assert!(rest.iter().all(|event| event["sequence_number"].as_u64().unwrap() > after));
    }
    let canceled = encode(vec![failure("canceled")]);
    assert_eq!(canceled.last().unwrap()["response"]["status"], "cancelled");
}

#[test]
fn an_approval_request_keeps_its_position() {
    let approval = || TurnEvent::Approval(Uuid::nil());
    let events = encode(vec![snapshot(1, "Wait."), approval(), finish("Done.", &[])]);
    let waits = events.iter().rposition(|event| event["type"] == "response.in_progress").unwrap();
    assert_eq!(events[waits]["response"]["metadata"]["approval_id"], json!(Uuid::nil()));
    assert_eq!(encode_after(Some(waits as u64), vec![snapshot(1, "Wait."), approval(), finish("Done.", &[])]), events[waits + 1..]);
}

#[test]
fn only_exposed_event_types_are_read() {
    let read = |kind, data: Value| TurnEvent::read(kind, &data.to_string(), None).unwrap();
    assert!(read(EventType::ToolStarted, json!({})).is_none());
    let row = json!({"conversation_id": Uuid::nil(), "turn_id": Uuid::nil(), "created": true, "status": "completed",
        "message": {"role": "assistant", "content": "x"}, "usage": Usage::default()});
    assert!(
        matches!(read(EventType::Final, row), Some(TurnEvent::Final(ended, None)) if ended.message.content == "x" && ended.client_calls.is_empty())
    );
}
