//! The fields of a request that its response repeats. Every field has the type that the schema of Open Responses requires: a value of
//! another type is replaced by its default.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The fields of a request that its response repeats. Stored with the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequestEcho {
    pub(crate) model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) metadata: Map<String, Value>,
    pub(crate) store: bool,
    pub(crate) background: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous_response_id: Option<String>,
    /// Function tools and custom tools. Others are not used, so the response does not list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Value>,
    /// All other fields that are repeated (`temperature`, `text`, `reasoning`, …).
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) options: Map<String, Value>,
    /// Tool results in the request. Their messages belong to the earlier turn with the calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) results: Vec<Value>,
}

/// The type of a repeated field.
#[derive(Clone, Copy)]
enum Kind {
    Number(f64),
    /// Not negative; 0 by default.
    Count,
    CountOrNull,
    Flag,
    TextOrNull,
    /// One of these; the first by default.
    OneOf(&'static [&'static str]),
    /// Any text; this one by default.
    Text(&'static str),
    ToolChoice,
    TextField,
    Reasoning,
}

/// The fields that are repeated, besides those with a field of their own in [`RequestEcho`].
const OPTIONS: [(&str, Kind); 16] = [
    ("temperature", Kind::Number(1.0)),
    ("top_p", Kind::Number(1.0)),
    ("presence_penalty", Kind::Number(0.0)),
    ("frequency_penalty", Kind::Number(0.0)),
    ("max_output_tokens", Kind::CountOrNull),
    ("max_tool_calls", Kind::CountOrNull),
    ("parallel_tool_calls", Kind::Flag),
    ("tool_choice", Kind::ToolChoice),
    ("truncation", Kind::OneOf(&["disabled", "auto"])),
    ("text", Kind::TextField),
    ("reasoning", Kind::Reasoning),
    ("service_tier", Kind::Text("default")),
    ("top_logprobs", Kind::Count),
    ("user", Kind::TextOrNull),
    ("safety_identifier", Kind::TextOrNull),
    ("prompt_cache_key", Kind::TextOrNull),
];

impl RequestEcho {
    #[cfg(test)]
    pub(crate) const OPTIONS: usize = OPTIONS.len();

    /// The repeated fields of a request, as the client sent them.
    pub(crate) fn options_of(body: &Map<String, Value>) -> Map<String, Value> {
        let field = |(name, _): &(&str, Kind)| Some(((*name).to_owned(), body.get(*name).filter(|value| !value.is_null())?.clone()));
        OPTIONS.iter().filter_map(field).collect()
    }

    /// The repeated fields as the response has them.
    pub(crate) fn repeated(&self) -> Map<String, Value> {
        OPTIONS.iter().map(|(name, kind)| ((*name).to_owned(), kind.value(self.options.get(*name)))).collect()
    }

    /// The client's instructions as one text.
    pub(crate) fn instructions_text(&self) -> Option<String> {
        match self.instructions.as_ref()? {
            Value::String(text) => Some(text.clone()),
            Value::Array(items) => {
                let texts: Vec<String> = items.iter().map(|item| plain(&item["content"])).filter(|text| !text.is_empty()).collect();
                (!texts.is_empty()).then(|| texts.join("\n\n"))
            }
            _ => None,
        }
    }

    /// Whether the client's tool with this name takes a free text.
    pub(crate) fn is_custom(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool["type"] == "custom" && tool["name"] == name)
    }
}

impl Kind {
    fn value(self, given: Option<&Value>) -> Value {
        let text = given.and_then(Value::as_str);
        match self {
            Self::Number(default) => given.filter(|value| value.is_number()).cloned().unwrap_or_else(|| default.into()),
            Self::Count => given.and_then(Value::as_u64).unwrap_or(0).into(),
            Self::CountOrNull => given.and_then(Value::as_u64).into(),
            Self::Flag => given.and_then(Value::as_bool).unwrap_or(true).into(),
            Self::TextOrNull => text.into(),
            Self::OneOf(names) => names.iter().find(|name| text == Some(name)).or(names.first()).copied().into(),
            Self::Text(default) => text.unwrap_or(default).into(),
            Self::ToolChoice => tool_choice(given),
            Self::TextField => text_field(given),
            Self::Reasoning => {
                let field = |name: &str| given.and_then(|value| value[name].as_str());
                json!({"effort": field("effort"), "summary": field("summary")})
            }
        }
    }
}

fn tool_choice(given: Option<&Value>) -> Value {
    match given {
        Some(Value::String(mode)) if matches!(mode.as_str(), "none" | "auto" | "required") => mode.as_str().into(),
        Some(choice) if choice["type"] == "allowed_tools" => {
            // Chat Completions nests the fields.
            let fields = choice.get("allowed_tools").filter(|inner| inner.is_object()).unwrap_or(choice);
            let mode = fields["mode"].as_str().filter(|mode| matches!(*mode, "none" | "auto" | "required")).unwrap_or("auto");
            json!({"type": "allowed_tools", "mode": mode, "tools": fields["tools"].as_array().cloned().unwrap_or_default()})
        }
        Some(choice) if matches!(choice["type"].as_str(), Some("function" | "custom")) => {
            let inner = choice.get("function").or_else(|| choice.get("custom")).unwrap_or(choice);
            inner["name"].as_str().map_or("auto".into(), |name| json!({"type": choice["type"], "name": name}))
        }
        _ => "auto".into(),
    }
}

fn text_field(given: Option<&Value>) -> Value {
    let format = given.map_or(&Value::Null, |value| &value["format"]);
    let format = match format["type"].as_str() {
        Some("json_object") => json!({"type": "json_object"}),
        Some("json_schema") => {
            let mut whole = json!({"type": "json_schema", "name": "", "description": null, "schema": null, "strict": false});
            for (name, value) in format.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                whole[name] = value.clone();
            }
            whole
        }
        _ => json!({"type": "text"}),
    };
    let mut field = json!({"format": format});
    if let Some(verbosity) = given.and_then(|value| value["verbosity"].as_str()).filter(|text| matches!(*text, "low" | "medium" | "high")) {
        field["verbosity"] = verbosity.into();
    }
    field
}

/// The text of a message content.
fn plain(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::RequestEcho;

    fn repeated(body: &Value) -> Value {
        let options = RequestEcho::options_of(body.as_object().unwrap());
        Value::Object(RequestEcho { options, ..RequestEcho::default() }.repeated())
    }

    #[test]
    fn every_field_has_its_default() {
        let expected = json!({"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "max_output_tokens": null,
            "max_tool_calls": null, "parallel_tool_calls": true, "tool_choice": "auto", "truncation": "disabled",
            "text": {"format": {"type": "text"}}, "reasoning": {"effort": null, "summary": null}, "service_tier": "default",
            "top_logprobs": 0, "user": null, "safety_identifier": null, "prompt_cache_key": null});
        assert_eq!(repeated(&json!({})), expected);
        let odd = json!({"temperature": "hot", "top_p": [], "max_output_tokens": -1, "parallel_tool_calls": 1, "tool_choice": 7,
            "truncation": "all", "text": "x", "reasoning": 3, "service_tier": {}, "top_logprobs": "2", "user": 5});
        assert_eq!(repeated(&odd), expected, "a value of another type is not repeated");
    }

    #[test]
    fn given_fields_are_completed() {
        let given = json!({"reasoning": {"effort": "low"}, "truncation": "auto", "top_p": 0.5, "presence_penalty": 1,
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}});
        let object = repeated(&given);
        assert_eq!(object["reasoning"], json!({"effort": "low", "summary": null}));
        assert_eq!((&object["truncation"], &object["top_p"], &object["presence_penalty"]), (&json!("auto"), &json!(0.5), &json!(1)));
        assert_eq!(object["tool_choice"], json!({"type": "function", "name": "f"}));
        let format = json!({"type": "json_schema", "name": "n", "description": null, "schema": {"type": "object"}, "strict": false});
        assert_eq!(object["text"], json!({"format": format, "verbosity": "low"}));
        let allowed = json!({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}});
        assert_eq!(repeated(&allowed)["tool_choice"], allowed["tool_choice"]);
    }

    #[test]
    fn instructions_are_one_text() {
        let text = |instructions: Value| RequestEcho { instructions: Some(instructions), ..RequestEcho::default() }.instructions_text();
        assert_eq!(text(json!("Be brief.")), Some("Be brief.".to_owned()));
        let items = json!([{"role": "developer", "content": "A"}, {"role": "developer", "content": [{"type": "input_text", "text": "B"}]}]);
        assert_eq!(text(items), Some("A\n\nB".to_owned()));
        assert_eq!(text(json!(7)), None);
    }
}
