//! One output item, as in `output_item.added`, `output_item.done` and the final response.
//!
//! Item types keep their arguments and output in different fields; here they are mapped to the same fields.

use serde_json::Value;
use serde_json::value::RawValue;
use werkruf_contract::CallKind;

use crate::annotations::Annotations;
use crate::raw::{Raw, list, object, raw_struct};
use crate::{ProviderItem, ToolCall};

/// The type of an item with which the provider asks for permission to run a call.
pub(super) const APPROVAL_REQUEST: &str = "mcp_approval_request";

/// The content of an item.
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
    pub(crate) approval_request_id: Option<String>,
    pub(crate) server_label: Option<String>,
    /// The content of a message, in order.
    pub(crate) parts: Vec<Part>,
    /// `commentary` or `final_answer`, if the server distinguishes messages.
    pub(crate) phase: Option<String>,
    /// The whole item, for types that are sent back as received.
    pub(crate) raw: Option<Value>,
    /// A string could not be decoded; its text is lost.
    pub(crate) damaged: bool,
}

/// A part of a message: text or a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: String,
    pub(crate) refusal: bool,
    pub(crate) annotations: Annotations,
}

raw_struct! {
    WireItem {
        kind = "type", id, call_id, name, arguments, input, code, queries, action, operation, output, outputs, results,
        tools, status, error, content, phase, approval_request_id, server_label,
    }
    WirePart { text, refusal, annotations }
}

impl Item {
    /// Decodes an item; `None` if it is not an object.
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        let wire: WireItem<'_> = object(raw)?;
        let mut item = Self { kind: exact(wire.kind).unwrap_or_default(), ..Self::default() };
        item.id = exact(wire.id);
        item.call_id = exact(wire.call_id);
        item.name = exact(wire.name);
        item.status = exact(wire.status);
        item.phase = exact(wire.phase);
        item.approval_request_id = exact(wire.approval_request_id);
        item.server_label = exact(wire.server_label);
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
        if item.is_returned_verbatim() {
            item.raw = value(raw);
        }
        Some(item)
    }

    fn read_parts(&mut self, content: Raw<'_>) {
        if content.is_some_and(|content| content.get().starts_with('"')) {
            let text = self.text_of(content).unwrap_or_default();
            self.parts.push(Part { text, ..Part::default() });
            return;
        }
        for part in content.into_iter().flat_map(list::<WirePart<'_>>) {
            // A part of an unknown type keeps its index, because deltas refer to parts by index.
            let refusal = part.text.is_none() && part.refusal.is_some();
            let text = self.text_of(part.text.or(part.refusal)).unwrap_or_default();
            let mut annotations = Annotations::default();
            part.annotations.into_iter().flat_map(list::<Value>).for_each(|annotation| annotations.add(&annotation));
            self.parts.push(Part { text, refusal, annotations });
        }
    }

    /// A string as it is, anything else as its JSON.
    fn text_of(&mut self, raw: Raw<'_>) -> Option<String> {
        let raw = raw?.get();
        if !raw.starts_with('"') {
            return Some(raw.to_owned());
        }
        let text = serde_json::from_str(raw).ok();
        self.damaged |= text.is_none();
        text
    }

    /// The kind of a call that the server must run or approve; `None` for other items.
    pub(crate) fn requested_call(&self) -> Option<CallKind> {
        match self.kind.as_str() {
            "function_call" => Some(CallKind::Function),
            "custom_tool_call" => Some(CallKind::Custom),
            APPROVAL_REQUEST => Some(CallKind::Mcp),
            _ => None,
        }
    }

    /// Whether the item is text or reasoning of the model, not an action of the provider.
    pub(crate) fn is_model_output(&self) -> bool {
        matches!(self.kind.as_str(), "message" | "reasoning" | "compaction" | "")
    }

    /// Whether the item may be sent back to the provider as received.
    fn is_returned_verbatim(&self) -> bool {
        self.kind == APPROVAL_REQUEST || (self.requested_call().is_none() && self.kind != "message" && !self.kind.is_empty())
    }

    /// The item as a call of this kind. Missing arguments mean no arguments only if the provider reported the end of the answer.
    pub(crate) fn to_tool_call(&self, kind: CallKind, output_index: u32, executable: bool) -> ToolCall {
        let arguments = self.arguments.clone().unwrap_or_default();
        let none = arguments.is_empty() && executable && self.kind == "function_call";
        ToolCall {
            kind,
            item_id: self.id.clone(),
            call_id: self.call_id.clone(),
            output_index,
            name: self.name.clone().unwrap_or_default(),
            arguments: if none { "{}".to_owned() } else { arguments },
            status: self.status.clone(),
            server_label: self.server_label.clone().filter(|_| kind == CallKind::Mcp),
        }
    }

    /// The item as a `ProviderItem` of the answer.
    pub(crate) fn to_provider_item(&self, output_index: u32, response_id: Option<&str>) -> ProviderItem {
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
            approval_request_id: self.approval_request_id.clone(),
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
