//! A web search by a model: one request to `/responses` with the provider's web search tool, one response.
//!
//! Only a finished `web_search_call` in the response proves that a search took place.

use serde_json::{Map, Value, json};
use werkruf_contract::{Citation, Deadline};

use crate::encoding::is_reasoning_model;
use crate::server::Server;
use crate::sse::SseDecoder;
use crate::usage::usage_of;
use crate::{ConfigError, ModelError, RequestSize, ServerConfig, TokenUsage};

/// OpenAI limits the context of a web search to this many tokens.
const SEARCH_TOKENS: u64 = 128_000;

/// A model with a web search tool.
#[derive(Debug)]
pub struct WebSearch {
    server: Server,
}

/// A web search request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WebSearchRequest {
    pub system: String,
    /// The user's messages, in order.
    pub messages: Vec<String>,
    /// Not sent to models that reject a temperature.
    pub temperature: Option<f64>,
    /// Two-letter country code that narrows the search.
    pub country: Option<String>,
    /// The most calls of the search tool; `None` leaves it to the provider.
    pub max_searches: Option<u32>,
    /// A lower limit of the answer than the operator's.
    pub max_output_tokens: Option<u32>,
}

/// The answer to a web search request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WebSearchResult {
    pub text: String,
    pub model: Option<String>,
    /// The number of searches that took place.
    pub searches: u32,
    /// The number of searches that the provider charges for.
    pub charged_searches: u32,
    pub citations: Vec<Citation>,
    pub usage: Option<TokenUsage>,
    /// The id that the provider gave the request, or else the response.
    pub request_id: Option<String>,
}

impl WebSearch {
    /// Checks the configuration; does not connect.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Ok(Self { server: Server::new(config, "responses", &["responses"])? })
    }

    /// The value for `api_usage.provider`.
    pub fn name(&self) -> &str {
        &self.server.config.name
    }

    /// The model that runs the search.
    pub fn model(&self) -> &str {
        &self.server.config.model
    }

    /// What the request uses at most. The provider adds what it found to the prompt, at most [`SEARCH_TOKENS`].
    pub fn size(&self, request: &WebSearchRequest) -> RequestSize {
        let text = self.body(request).to_string();
        let max_output_tokens = u64::from(self.server.config.max_output_tokens);
        RequestSize { text, attached_tokens: SEARCH_TOKENS, max_output_tokens }
    }

    /// Sends one request, without retries.
    pub async fn search(&self, request: &WebSearchRequest, deadline: Deadline) -> Result<WebSearchResult, ModelError> {
        let body = self.body(request).to_string().into_bytes();
        let (result, id) = self.server.post(body, deadline, read).await?;
        Ok(WebSearchResult { request_id: id.or(result.request_id), ..result })
    }

    fn body(&self, request: &WebSearchRequest) -> Value {
        let input: Vec<Value> = request.messages.iter().map(|text| json!({"role": "user", "content": text})).collect();
        let mut tool = Map::from_iter([("type".to_owned(), json!("web_search"))]);
        if let Some(country) = &request.country {
            tool.insert("user_location".to_owned(), json!({"type": "approximate", "country": country}));
        }
        let mut body = json!({
            "model": self.model(),
            "stream": false,
            "store": false,
            "max_output_tokens": request.max_output_tokens.unwrap_or(self.server.config.max_output_tokens),
            "instructions": request.system,
            "input": input,
            "tools": [tool],
            "include": ["web_search_call.action.sources"],
        });
        if let Some(most) = request.max_searches {
            body["max_tool_calls"] = json!(most);
        }
        if let Some(temperature) = request.temperature.filter(|_| !is_reasoning_model(self.model())) {
            body["temperature"] = json!(temperature);
        }
        body
    }
}

fn read(answer: &[u8]) -> Result<WebSearchResult, String> {
    let response: Value = match serde_json::from_slice(answer) {
        Ok(response) => response,
        // Some servers stream regardless of the request.
        Err(error) => last_response(answer).ok_or_else(|| format!("the answer: {error}"))?,
    };
    if let Some(message) = response["error"]["message"].as_str().filter(|_| response["status"] != "completed") {
        return Err(format!("the answer failed: {message}"));
    }
    let mut result = WebSearchResult {
        model: response["model"].as_str().map(str::to_owned),
        usage: usage_of(&response["usage"]),
        request_id: response["id"].as_str().map(str::to_owned),
        ..WebSearchResult::default()
    };
    for item in response["output"].as_array().into_iter().flatten() {
        match item["type"].as_str() {
            // Other actions only open pages that a search found.
            Some("web_search_call") => {
                let is_search = item["action"]["type"].as_str().is_none_or(|action| action == "search");
                result.charged_searches += u32::from(is_search);
                result.searches += u32::from(is_search && !matches!(item["status"].as_str(), Some("failed" | "incomplete")));
            }
            Some("message") => {
                for part in item["content"].as_array().into_iter().flatten() {
                    add_part(part, &mut result);
                }
            }
            _ => {}
        }
    }
    Ok(result)
}

fn add_part(part: &Value, result: &mut WebSearchResult) {
    let text = part["text"].as_str().unwrap_or_default();
    let before = result.text.chars().count();
    let letters: Vec<char> = text.chars().collect();
    for note in part["annotations"].as_array().into_iter().flatten().filter(|note| note["type"] == "url_citation") {
        let index = |name: &str| note[name].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0).min(letters.len());
        let (start, end) = (index("start_index"), index("end_index").max(index("start_index")));
        let text = |name: &str| note[name].as_str().unwrap_or_default().to_owned();
        result.citations.push(Citation {
            url: text("url"),
            title: text("title"),
            start_index: before + start,
            end_index: before + end,
            cited_text: letters[start..end].iter().collect(),
        });
    }
    result.text.push_str(text);
}

/// The final response of a stream.
fn last_response(answer: &[u8]) -> Option<Value> {
    let mut decoder = SseDecoder::default();
    let mut events = decoder.push(answer).ok()?;
    events.extend(decoder.finish());
    let ends = ["response.completed", "response.incomplete", "response.failed"];
    events.iter().rev().find_map(|event| {
        let mut value: Value = serde_json::from_str(&event.data).ok()?;
        ends.contains(&value["type"].as_str()?).then(|| value["response"].take())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, start: u64, end: u64, status: &str) -> String {
        json!({
            "status": "completed", "model": "m-1", "usage": {"input_tokens": 10, "output_tokens": 5},
            "output": [
                {"type": "web_search_call", "status": status, "action": {"type": "search", "query": "q"}},
                {"type": "web_search_call", "status": "completed", "action": {"type": "open_page"}},
                {"type": "message", "content": [{"type": "output_text", "text": text, "annotations": [
                    {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": start, "end_index": end}]}]}
            ]
        })
        .to_string()
    }

    #[test]
    fn only_finished_searches_count_and_citations_are_read() {
        let result = read(answer("Grüße aus Köln.", 0, 5, "completed").as_bytes()).unwrap();
        assert_eq!((result.text.as_str(), result.searches, result.charged_searches), ("Grüße aus Köln.", 1, 1));
        assert_eq!(result.citations[0].cited_text, "Grüße");
        assert_eq!(result.usage.unwrap().total_tokens, 15);
        let failed = read(answer("x", 0, 1, "failed").as_bytes()).unwrap();
        assert_eq!((failed.searches, failed.charged_searches), (0, 1), "the provider counts what it was asked");
    }

    #[test]
    fn indexes_outside_the_text_are_clamped() {
        let result = read(answer("short", 3, 900, "completed").as_bytes()).unwrap();
        assert_eq!((result.citations[0].start_index, result.citations[0].end_index), (3, 5));
        let result = read(answer("short", 900, 3, "completed").as_bytes()).unwrap();
        assert_eq!((result.citations[0].start_index, result.citations[0].end_index, result.citations[0].cited_text.as_str()), (5, 5, ""));
    }

    #[test]
    fn searches_are_limited_only_on_request() {
        let config = ServerConfig {
            name: "openai".to_owned(),
            base_url: "http://127.0.0.1:1/v1".to_owned(),
            api_key: None,
            model: "gpt-5".to_owned(),
            headers: Vec::new(),
            max_output_tokens: 64,
            first_byte: std::time::Duration::from_secs(1),
            idle: std::time::Duration::from_secs(1),
            record: None,
            client: crate::http_client(&crate::HttpLimits::default()).unwrap(),
        };
        let search = WebSearch::new(config).unwrap();
        let body = |max_searches| search.body(&WebSearchRequest { max_searches, ..WebSearchRequest::default() });
        assert_eq!((body(None).get("max_tool_calls"), &body(Some(10))["max_tool_calls"]), (None, &json!(10)));
    }

    #[test]
    fn a_streamed_response_is_read_too() {
        let event =
            json!({"type": "response.completed", "response": serde_json::from_str::<Value>(&answer("hi", 0, 2, "completed")).unwrap()});
        let stream =
            format!("event: response.created\ndata: {{\"type\": \"response.created\"}}\n\nevent: response.completed\ndata: {event}\n\n");
        assert_eq!(read(stream.as_bytes()).unwrap().text, "hi");
        assert!(read(b"<html>").is_err());
        assert!(read(br#"{"status": "failed", "error": {"message": "no"}}"#).is_err());
    }
}
