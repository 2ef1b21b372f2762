//! One output item, as `output_item.added`, `output_item.done` and the response at the end have it.
//!
//! Kinds differ in where they keep what they were asked and what came of it; here it is brought to the same places.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::CallKind;

use crate::ProviderItem;
use crate::raw::{Raw, list, object};

/// What an item says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Item {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    /// Exactly as sent, also when empty.
    pub(crate) call_id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
    pub(crate) output: Option<Value>,
    pub(crate) status: Option<String>,
    pub(crate) error: Option<Value>,
    /// The contents of a message, in order.
    pub(crate) parts: Vec<Part>,
    /// `commentary` or `final_answer`, where the server tells messages apart.
    pub(crate) phase: Option<String>,
    /// All of it, for kinds that are given back as they came.
    pub(crate) whole: Option<Value>,
    /// A string that could not be read; its text is lost.
    pub(crate) damaged: bool,
}

/// A piece of a message: said, or refused to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) refusal: bool,
}

#[derive(Deserialize)]
struct WireItem<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    call_id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
    #[serde(borrow, default)]
    input: Raw<'a>,
    #[serde(borrow, default)]
    code: Raw<'a>,
    #[serde(borrow, default)]
    queries: Raw<'a>,
    #[serde(borrow, default)]
    action: Raw<'a>,
    #[serde(borrow, default)]
    operation: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    outputs: Raw<'a>,
    #[serde(borrow, default)]
    results: Raw<'a>,
    #[serde(borrow, default)]
    tools: Raw<'a>,
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    phase: Raw<'a>,
}

#[derive(Deserialize)]
struct WirePart<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
}

impl Item {
    /// Reads an item; `None` when it is no object.
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        let wire: WireItem<'_> = object(raw)?;
        let mut item = Self { kind: exact(wire.kind).unwrap_or_default(), ..Self::default() };
        item.id = exact(wire.id);
        item.call_id = exact(wire.call_id);
        item.name = exact(wire.name);
        item.status = exact(wire.status);
        item.phase = exact(wire.phase);
        item.error = wire.error.and_then(value);
        match item.kind.as_str() {
            "message" => item.read_parts(wire.content),
            "custom_tool_call" => item.arguments = item.text_of(wire.input),
            "code_interpreter_call" => (item.arguments, item.output) = (item.text_of(wire.code), wire.outputs.and_then(value)),
            "file_search_call" => (item.arguments, item.output) = (item.text_of(wire.queries), wire.results.and_then(value)),
            "mcp_list_tools" | "tool_search_output" => item.output = wire.tools.and_then(value),
            _ => {
                item.arguments = item.text_of(wire.arguments.or(wire.action).or(wire.operation));
                item.output = wire.output.and_then(value);
            }
        }
        if item.is_given_back() {
            item.whole = value(raw);
        }
        Some(item)
    }

    fn read_parts(&mut self, content: Raw<'_>) {
        if content.is_some_and(|content| content.get().starts_with('"')) {
            let text = self.text_of(content).unwrap_or_default();
            self.parts.push(Part { text, refusal: false });
            return;
        }
        for part in content.into_iter().flat_map(list::<WirePart<'_>>) {
            // A part of an unknown kind keeps its place: deltas count places.
            let refusal = part.text.is_none() && part.refusal.is_some();
            let text = self.text_of(part.text.or(part.refusal)).unwrap_or_default();
            self.parts.push(Part { text, refusal });
        }
    }

    /// A string as it is, anything else as its own JSON.
    fn text_of(&mut self, raw: Raw<'_>) -> Option<String> {
        let raw = raw?.get();
        if !raw.starts_with('"') {
            return Some(raw.to_owned());
        }
        let text = serde_json::from_str(raw).ok();
        self.damaged |= text.is_none();
        text
    }

    /// A call for us to run.
    pub(crate) fn asked_kind(&self) -> Option<CallKind> {
        match self.kind.as_str() {
            "function_call" => Some(CallKind::Function),
            "custom_tool_call" => Some(CallKind::Custom),
            _ => None,
        }
    }

    /// Something the provider says or thinks, as opposed to what it does.
    pub(crate) fn is_speech(&self) -> bool {
        matches!(self.kind.as_str(), "message" | "reasoning" | "compaction" | "")
    }

    /// Whether it goes back to the provider as it came. A thought without its seal or its words would be refused.
    fn is_given_back(&self) -> bool {
        self.asked_kind().is_none() && self.kind != "message" && !self.kind.is_empty()
    }

    /// As the answer shows what the provider does itself.
    pub(crate) fn shown(&self, output_index: u32, response_id: Option<&str>) -> ProviderItem {
        ProviderItem {
            kind: self.kind.clone(),
            response_id: response_id.map(str::to_owned),
            item_id: self.id.clone(),
            call_id: self.call_id.clone(),
            output_index,
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            output: self.output.clone(),
            status: self.status.clone(),
            error: self.error.clone(),
        }
    }
}

fn exact(raw: Raw<'_>) -> Option<String> {
    let raw = raw?.get();
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok(),
        b'0'..=b'9' => Some(raw.to_owned()),
        _ => None,
    }
}

fn value(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok()
}
