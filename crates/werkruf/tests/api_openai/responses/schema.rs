//! Every response object and every stream event has the fields that the Open Responses schema requires, with their types.

use serde_json::{Value, json};
use werkruf_bench::fake_model::{Reply, call};

use super::client::{answered, get, numbered, resumed, send, streamed};
use crate::support::{TestServer, body};

/// The type of a field.
enum Type {
    Text,
    Integer,
    Number,
    Flag,
    List,
    Object,
    Any,
    OrNull(&'static Self),
    OneOf(&'static [&'static str]),
}

use Type::{Any, Flag, Integer, List, Number, Object, OneOf, OrNull, Text};

impl Type {
    fn fits(&self, value: &Value) -> bool {
        match self {
            Text => value.is_string(),
            Integer => value.is_i64() || value.is_u64(),
            Number => value.is_number(),
            Flag => value.is_boolean(),
            List => value.is_array(),
            Object => value.is_object(),
            Any => true,
            OrNull(inner) => value.is_null() || inner.fits(value),
            OneOf(names) => value.as_str().is_some_and(|text| names.contains(&text)),
        }
    }
}

const RESPONSE: [(&str, Type); 31] = [
    ("id", Text),
    ("object", OneOf(&["response"])),
    ("created_at", Integer),
    ("completed_at", OrNull(&Integer)),
    ("status", OneOf(&["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"])),
    ("incomplete_details", OrNull(&Object)),
    ("model", Text),
    ("previous_response_id", OrNull(&Text)),
    ("instructions", OrNull(&Text)),
    ("output", List),
    ("error", OrNull(&Object)),
    ("tools", List),
    ("tool_choice", Any),
    ("truncation", OneOf(&["auto", "disabled"])),
    ("parallel_tool_calls", Flag),
    ("text", Object),
    ("top_p", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("top_logprobs", Integer),
    ("temperature", Number),
    ("reasoning", OrNull(&Object)),
    ("usage", OrNull(&Object)),
    ("max_output_tokens", OrNull(&Integer)),
    ("max_tool_calls", OrNull(&Integer)),
    ("store", Flag),
    ("background", Flag),
    ("service_tier", Text),
    ("metadata", Any),
    ("safety_identifier", OrNull(&Text)),
    ("prompt_cache_key", OrNull(&Text)),
];

const USAGE: [(&str, Type); 5] = [
    ("input_tokens", Integer),
    ("output_tokens", Integer),
    ("total_tokens", Integer),
    ("input_tokens_details", Object),
    ("output_tokens_details", Object),
];

const FUNCTION_TOOL: [(&str, Type); 5] = [
    ("type", OneOf(&["function"])),
    ("name", Text),
    ("description", OrNull(&Text)),
    ("parameters", OrNull(&Object)),
    ("strict", OrNull(&Flag)),
];

const STATUS: Type = OneOf(&["in_progress", "completed", "incomplete"]);

fn check(what: &str, value: &Value, fields: &[(&str, Type)]) {
    for (name, kind) in fields {
        let field = value.get(*name);
        assert!(field.is_some_and(|field| kind.fits(field)), "{what}: {name} is {field:?} in {value}");
    }
}

fn check_item(item: &Value) {
    match item["type"].as_str().unwrap() {
        "message" => {
            check("message", item, &[("id", Text), ("status", STATUS), ("role", OneOf(&["assistant", "user"])), ("content", List)]);
            item["content"].as_array().unwrap().iter().for_each(check_part);
        }
        "function_call" => check("call", item, &[("id", Text), ("call_id", Text), ("name", Text), ("arguments", Text), ("status", STATUS)]),
        "custom_tool_call" => {
            check("custom call", item, &[("id", Text), ("call_id", Text), ("name", Text), ("input", Text), ("status", STATUS)])
        }
        other => panic!("an item of the type {other}"),
    }
}

fn check_part(part: &Value) {
    match part["type"].as_str().unwrap() {
        "output_text" => {
            check("part", part, &[("text", Text), ("annotations", List), ("logprobs", List)]);
            part["annotations"].as_array().unwrap().iter().for_each(check_annotation);
        }
        "refusal" => check("part", part, &[("refusal", Text)]),
        other => panic!("a part of the type {other}"),
    }
}

/// Open Responses knows citations of pages only; those of files are as OpenAI writes them.
fn check_annotation(annotation: &Value) {
    match annotation["type"].as_str().unwrap() {
        "url_citation" => {
            check("annotation", annotation, &[("url", Text), ("title", Text), ("start_index", Integer), ("end_index", Integer)]);
        }
        "file_citation" => check("annotation", annotation, &[("file_id", Text), ("filename", Text), ("index", Integer)]),
        other => panic!("an annotation of the type {other}"),
    }
}

/// Checks a response object and what is in it.
pub fn check_response(object: &Value) {
    check("response", object, &RESPONSE);
    object["output"].as_array().unwrap().iter().for_each(check_item);
    for tool in object["tools"].as_array().unwrap().iter().filter(|tool| tool["type"] != "custom") {
        check("tool", tool, &FUNCTION_TOOL);
    }
    if !object["usage"].is_null() {
        check("usage", &object["usage"], &USAGE);
        assert!(
            object["usage"]["input_tokens_details"]["cached_tokens"].is_u64()
                && object["usage"]["output_tokens_details"]["reasoning_tokens"].is_u64()
        );
    }
    if !object["reasoning"].is_null() {
        check("reasoning", &object["reasoning"], &[("effort", OrNull(&Text)), ("summary", OrNull(&Text))]);
    }
    if !object["error"].is_null() {
        check("error", &object["error"], &[("code", Text), ("message", Text)]);
    }
    check("text", &object["text"]["format"], &[("type", OneOf(&["text", "json_object", "json_schema"]))]);
    let choice = &object["tool_choice"];
    assert!(OneOf(&["none", "auto", "required"]).fits(choice) || choice["type"].is_string(), "{choice}");
    assert_eq!(object["incomplete_details"].is_null(), object["status"] != "incomplete");
    assert_eq!(object["completed_at"].is_null(), object["status"] != "completed", "{object}");
    let mut items: Vec<&Value> = object["output"].as_array().unwrap().iter().collect();
    if matches!(object["status"].as_str(), Some("incomplete" | "failed" | "cancelled")) {
        assert!(items.pop().is_none_or(|item| item["status"] == "incomplete"), "{object}");
    }
    assert!(items.iter().all(|item| item["status"] == "completed"), "{object}");
}

/// Checks a stream event.
pub fn check_event(event: &Value) {
    check("event", event, &[("type", Text), ("sequence_number", Integer)]);
    let item = || check("event", event, &[("item_id", Text), ("output_index", Integer)]);
    let content = || check("event", event, &[("item_id", Text), ("output_index", Integer), ("content_index", Integer)]);
    match event["type"].as_str().unwrap().trim_start_matches("response.") {
        "created" | "queued" | "in_progress" | "completed" | "failed" | "incomplete" => check_response(&event["response"]),
        "output_item.added" | "output_item.done" => {
            check("event", event, &[("output_index", Integer), ("item", Object)]);
            check_item(&event["item"]);
        }
        "content_part.added" | "content_part.done" => {
            content();
            check_part(&event["part"]);
        }
        "output_text.delta" => {
            content();
            check("event", event, &[("delta", Text), ("logprobs", List)]);
        }
        "output_text.done" => {
            content();
            check("event", event, &[("text", Text), ("logprobs", List)]);
        }
        "output_text.annotation.added" => {
            content();
            check("event", event, &[("annotation_index", Integer)]);
            check_annotation(&event["annotation"]);
        }
        "refusal.delta" => {
            content();
            check("event", event, &[("delta", Text)]);
        }
        "refusal.done" => {
            content();
            check("event", event, &[("refusal", Text)]);
        }
        "function_call_arguments.delta" | "custom_tool_call_input.delta" => {
            item();
            check("event", event, &[("delta", Text)]);
        }
        "function_call_arguments.done" => {
            item();
            check("event", event, &[("arguments", Text)]);
        }
        "custom_tool_call_input.done" => {
            item();
            check("event", event, &[("input", Text)]);
        }
        "error" => check("error", &event["error"], &[("type", Text), ("code", OrNull(&Text)), ("message", Text), ("param", OrNull(&Text))]),
        other => panic!("an event of the type {other}"),
    }
}

fn weather() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"type": "function", "name": "weather", "parameters": parameters}, {"type": "custom", "name": "shell", "description": "Runs it."}])
}

async fn whole_stream(server: &TestServer, request: Value) -> Vec<Value> {
    let events = numbered(streamed(server, request).await.rest().await, 0);
    events.iter().for_each(check_event);
    events
}

#[tokio::test]
async fn answers_have_every_required_field() {
    let server = TestServer::open().await;
    server.model.script_fn(|request| {
        let is_json = request.body.get("response_format").is_some();
        Reply::text(if is_json { "{}" } else { "Ahoy there." }).usage(9, 3)
    });
    let plain = answered(&server, json!({"model": "m", "input": "Say hello."})).await;
    check_response(&plain);
    let created = plain["created_at"].as_i64().unwrap();
    assert!((created..created + 60).contains(&plain["completed_at"].as_i64().unwrap()), "{plain}");
    check_response(&body(get(&server, 3, plain["id"].as_str().unwrap()).await).await);
    let odd = json!({"model": "m", "input": "x", "instructions": [{"role": "developer", "content": "Be brief."}], "reasoning": {"effort": "low"},
        "truncation": "auto", "temperature": 0, "presence_penalty": 0.5, "tools": weather(), "tool_choice": "auto", "service_tier": "auto",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}, "metadata": {"a": "b"}});
    let full = answered(&server, odd).await;
    check_response(&full);
    assert_eq!((&full["instructions"], &full["presence_penalty"]), (&json!("Be brief."), &json!(0.5)));
    assert_eq!(server.model.requests().pop().unwrap().body["presence_penalty"], json!(0.5));
    let events = whole_stream(&server, json!({"model": "m", "input": "Count."})).await;
    let id = events.last().unwrap()["response"]["id"].as_str().unwrap().to_owned();
    for event in numbered(resumed(&server, &id, 0).await.rest().await, 1) {
        check_event(&event);
    }
}

#[tokio::test]
async fn calls_failures_and_truncated_answers_have_every_required_field() {
    let server = TestServer::open().await;
    let calls = vec![call("weather", json!({"city": "Rome"})), call("shell", json!({"input": "ls -l"}))];
    server.model.script(vec![Reply::calls(calls.clone()).with_text("I ask."), Reply::calls(calls).with_text("I ask.")]);
    let object = answered(&server, json!({"model": "m", "input": "Weather?", "tools": weather()})).await;
    check_response(&object);
    let kinds: Vec<&Value> = object["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "function_call", "custom_tool_call"]);
    assert_eq!(object["output"][2]["input"], "ls -l");
    let events = whole_stream(&server, json!({"model": "m", "input": "Weather?", "tools": weather()})).await;
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("response.function_call_arguments.delta"), of("response.custom_tool_call_input.done")), (1, 1));
    server.model.script(vec![Reply::text("Too lo").finish("length"), Reply::text("Too lo").finish("length")]);
    let cut = answered(&server, json!({"model": "m", "input": "x"})).await;
    check_response(&cut);
    assert_eq!((&cut["status"], &cut["output"][0]["status"]), (&json!("incomplete"), &json!("incomplete")));
    let events = whole_stream(&server, json!({"model": "m", "input": "x"})).await;
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!((&events.last().unwrap()["type"], &done["item"]["status"]), (&json!("response.incomplete"), &json!("incomplete")));
    server.model.script(vec![Reply::refusal("I cannot do that."), Reply::refusal("I cannot do that.")]);
    check_response(&answered(&server, json!({"model": "m", "input": "x"})).await);
    let refused = whole_stream(&server, json!({"model": "m", "input": "x"})).await;
    assert!(refused.iter().any(|event| event["type"] == "response.refusal.done"));
    // A stream that has started when the turn fails.
    server
        .model
        .script(vec![Reply::calls(vec![call("test_echo", json!({"value": 1}))]).with_text("I look."), Reply::status(400).message("no")]);
    let failed = whole_stream(&server, json!({"model": "m", "input": "x"})).await;
    let failed = &failed.last().unwrap()["response"];
    assert_eq!(failed["status"], "failed");
    check_response(&body(get(&server, 3, failed["id"].as_str().unwrap()).await).await);
}

#[tokio::test]
async fn a_response_in_the_background_has_every_required_field() {
    let server = TestServer::open().await;
    let gate = werkruf_bench::fake_model::Gate::before_head();
    server.model.script(vec![Reply::text("Late.").gate(gate.clone())]);
    let queued = body(send(&server, 3, json!({"model": "m", "input": "x", "background": true})).await).await;
    check_response(&queued);
    let path = queued["id"].as_str().unwrap();
    check_response(&body(get(&server, 3, path).await).await);
    let cancel = server.as_user(3, reqwest::Method::POST, &format!("/v1/responses/{path}/cancel")).send().await.unwrap();
    let canceled = body(cancel).await;
    check_response(&canceled);
    assert_eq!(canceled["status"], "cancelled");
}
