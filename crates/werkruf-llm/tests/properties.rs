//! Whatever the bytes are, how they were cut makes no difference, and nothing panics.

use proptest::prelude::*;
use werkruf_llm::{SseDecoder, WireApi, inspect};

/// Pieces that occur in streams, so that random bytes also get past the first line.
fn streamlike() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"data: ".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"data: [DONE]\n\n".to_vec()),
        Just(b": comment\r".to_vec()),
        Just("data: {\"choices\":[{\"delta\":{\"content\":\"grün 🙂\"}}]}\n\n".as_bytes().to_vec()),
        Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\r\n\r\n".to_vec()),
        Just(b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"stop\"}]}\n\n".to_vec()),
        Just(b"data: {\"error\":\"no\"}\n\n".to_vec()),
        Just(b"event: error\n".to_vec()),
        Just(b"{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"length\"}]}\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_answer(bytes in streamlike(), chunk in 1_usize..40) {
        let whole = inspect(WireApi::Chat, &bytes, 0);
        prop_assert_eq!(&inspect(WireApi::Chat, &bytes, chunk), &whole);
        prop_assert_eq!(inspect(WireApi::Chat, &bytes, 1), whole);
    }

    #[test]
    fn any_cut_gives_the_same_events(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), any::<u8>()], 0..200), cuts in proptest::collection::vec(0_usize..200, 0..6)) {
        let mut decoder = SseDecoder::default();
        let mut whole = decoder.push(&bytes).unwrap();
        whole.extend(decoder.finish());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let mut decoder = SseDecoder::default();
        let (mut events, mut from) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([bytes.len()]) {
            events.extend(decoder.push(&bytes[from..cut]).unwrap());
            from = cut;
        }
        events.extend(decoder.finish());
        prop_assert_eq!(events, whole);
    }

    #[test]
    fn arbitrary_payloads_never_panic(payload in "\\PC{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = inspect(WireApi::Chat, format!("data: {{\"choices\":[{{\"delta\":{payload}}}]}}\n\n").as_bytes(), 3);
        let _ = inspect(WireApi::Chat, &bytes, 0);
    }
}
