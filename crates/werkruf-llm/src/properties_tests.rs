use proptest::prelude::*;

use super::*;

/// Common pieces of streams, so that random inputs also get past the first line.
const FRAMES: [&str; 10] = ["data: ", "\n", "\r\n\r\n", "\n\n", "data: [DONE]\n\n", ": comment\r", "event: error\n", "{", "}", "\u{feff}"];

const CHAT: [&str; 8] = [
    r#"{"choices":[{"delta":{"content":"grün 🙂"}}]}"#,
    r#"{"choices":[{"delta":{"reasoning_content":"hm","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"g","arguments":{"x":1}},"extra_content":[]}]}}]}"#,
    r#"{"error":"no"}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":1e300}}"#,
    r#"{"choices":[{"message":{"content":"x"},"finish_reason":"length"}]}"#,
    r#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#,
];

const RESPONSES: [&str; 16] = [
    r#"{"type":"response.created","response":{"id":"r","model":"m"}}"#,
    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc","delta":"{}"}"#,
    r#"{"type":"response.function_call_arguments.done","output_index":4294967295,"arguments":"{}"}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"}}"#,
    r#"{"type":"response.output_item.done","output_index":4294967295,"item":{"type":"mcp_call","id":"m","error":{"type":"http_error"}}}"#,
    r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs","encrypted_content":"g"}}"#,
    r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"grün 🙂"}"#,
    r#"{"type":"response.output_text.done","item_id":"x","text":"grün"}"#,
    r#"{"type":"response.refusal.delta","output_index":1,"content_index":1,"delta":"no"}"#,
    r#"{"type":"response.web_search_call.searching","output_index":2}"#,
    r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
    r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"all"}]},{"type":"custom_tool_call","input":"x"}],"usage":{"input_tokens":1}}}"#,
    r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
    r#"{"type":"error","error":{"code":429}}"#,
    r#"{"object":"response","output":[{"type":"web_search_call"}]}"#,
];

fn streamlike(payloads: &'static [&'static str], frame: bool) -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::sample::select(payloads).prop_map(move |payload| match frame {
        true => format!("data: {payload}\n\n").into_bytes(),
        false => format!("{payload}\n").into_bytes(),
    });
    let bare = proptest::sample::select(payloads).prop_map(|payload| payload.as_bytes().to_vec());
    let mark = proptest::sample::select(&FRAMES[..]).prop_map(|mark| mark.as_bytes().to_vec());
    let noise = proptest::collection::vec(any::<u8>(), 0..12);
    let piece = prop_oneof![6 => payload, 1 => bare, 2 => mark, 1 => noise];
    (any::<u8>(), proptest::collection::vec(piece, 0..14)).prop_map(move |(size, pieces)| {
        let mut bytes = if frame { vec![size % 40] } else { Vec::new() };
        bytes.extend(pieces.concat());
        bytes
    })
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'"'), Just(b'{'), any::<u8>()];
    proptest::collection::vec(byte, 0..300)
}

proptest! {
    #[test]
    fn every_stage_accepts_any_bytes(bytes in anything()) {
        for property in [sse, framing, chat_decode, responses_decode, chat_assemble, responses_assemble, chat_answer, responses_answer, responses_encode] {
            property(&bytes);
        }
    }

    #[test]
    fn chunk_sizes_do_not_change_the_events(bytes in streamlike(&RESPONSES, true)) {
        sse(&bytes);
        framing(&bytes);
    }

    #[test]
    fn chunk_sizes_do_not_change_the_chat_answer(bytes in streamlike(&CHAT, true)) {
        chat_answer(&bytes);
    }

    #[test]
    fn chunk_sizes_do_not_change_the_responses_answer(bytes in streamlike(&RESPONSES, true)) {
        responses_answer(&bytes);
    }

    #[test]
    fn payloads_are_accepted_in_any_order(chat in streamlike(&CHAT, false), responses in streamlike(&RESPONSES, false)) {
        chat_assemble(&chat);
        responses_assemble(&responses);
    }

    #[test]
    fn mutated_payloads_are_accepted(at in 0_usize..16, from in 0_usize..200, length in 0_usize..40, with in "\\PC{0,12}") {
        let mut payload = RESPONSES[at].to_owned();
        let (from, to) = (payload.floor_char_boundary(from), payload.floor_char_boundary(from + length));
        payload.replace_range(from.min(to)..to, &with);
        responses_decode(payload.as_bytes());
        responses_assemble(format!("{}\n{payload}\n{}", RESPONSES[1], RESPONSES[11]).as_bytes());
    }

    #[test]
    fn carried_data_never_changes_the_calls_and_results(
        slots in proptest::collection::vec(prop_oneof![
            Just(r#"{"call":0}"#), Just(r#"{"call":1}"#), Just(r#"{"call":9}"#), Just(r#"{"item":{"type":"reasoning"}}"#),
            Just(r#"{"message":{"bytes":3}}"#), Just(r#"{"message":{}}"#), Just("7"),
        ], 0..6),
    ) {
        responses_encode(format!(r#"{{"items":[{}]}}"#, slots.join(",")).as_bytes());
    }
}

#[test]
fn an_endless_event_is_rejected_before_it_fills_the_memory() {
    let mut decoder = SseDecoder::default();
    let piece = vec![b'x'; 64 * 1024];
    let mut accepted = 0;
    while decoder.push(&piece).is_ok() {
        accepted += piece.len();
        assert!(accepted <= crate::MAX_EVENT_BYTES);
    }
    assert!(decoder.push(b"\n\n").is_err());
}
