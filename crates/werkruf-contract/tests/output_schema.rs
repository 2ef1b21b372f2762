//! The schema of what a tool returns, as clients check results against it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use werkruf_contract::output_of_type;

#[derive(Serialize, JsonSchema)]
struct Found {
    /// How many there are
    count: u8,
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

#[test]
fn what_is_always_written_is_required() {
    assert_eq!(
        output_of_type::<Found>(),
        Some(json!({
            "type": "object",
            "properties": {
                "count": {"description": "How many there are", "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255},
                "next": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]}
            },
            "required": ["count", "next"]
        }))
    );
    assert_eq!(output_of_type::<Vec<Found>>(), None, "only objects are structured results");
    assert_eq!(output_of_type::<()>(), None);
}
