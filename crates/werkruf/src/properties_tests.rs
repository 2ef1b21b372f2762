use proptest::prelude::*;

use super::*;

type Property = fn(&[u8]) -> bool;

/// Every property, and a valid input of it.
const PROPERTIES: [(Property, &str); 10] = [
    (json_fields, r#"{"a": [1, {"b": null}], "unknown": [[1e99]], "c": "\u00e4"}"#),
    (chat_request, include_str!("../../../fuzz/seeds/chat_request.json")),
    (responses_request, include_str!("../../../fuzz/seeds/responses_request.json")),
    (chat_body, r#"{"message": "hi", "chatId": "1", "locale": "de-DE", "background": true}"#),
    (invoke_body, r#"{"input": {"a": [1, 2.5, "x"]}, "conversation_id": "7", "trace_id": "t"}"#),
    (workspace_import, include_str!("../../../fuzz/seeds/workspace_import.json")),
    (knowledge_documents, r#"{"collection": "c", "documents": [{"id": "1", "title": "t", "text": "x"}]}"#),
    (upload, include_str!("../../../fuzz/seeds/upload.txt")),
    (context_headers, "x-trace-id: t\nx-timeout-ms: 5\nx-budget-tokens: 7\naccept-language: de-DE,en;q=0.5\nx-safety-mode: strict"),
    (whatsapp_payload, include_str!("../../../fuzz/seeds/whatsapp_payload.json")),
];

#[test]
fn the_properties_hold_for_valid_input() {
    for (property, valid) in PROPERTIES {
        assert!(property(valid.as_bytes()), "not accepted: {valid}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_properties_hold_for_any_bytes(bytes: Vec<u8>) {
        for (property, _) in PROPERTIES {
            property(&bytes);
        }
    }

    /// A valid input of which a part is replaced.
    #[test]
    fn the_properties_hold_for_damaged_input(
        which in 0..PROPERTIES.len(),
        at: prop::sample::Index,
        length in 0..16_usize,
        part in prop::sample::select(vec!["", "null", "[", "}", "\"", "0", "-1e400", "\\ud800", "{}", "\n", "\r\n", "--b", "é", ":"]),
    ) {
        let (property, valid) = PROPERTIES[which];
        let mut bytes = valid.as_bytes().to_vec();
        let start = at.index(bytes.len());
        let end = bytes.len().min(start + length);
        bytes.splice(start..end, part.bytes());
        property(&bytes);
    }
}
