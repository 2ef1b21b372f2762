use super::*;

fn whole(bytes: &[u8]) -> Vec<String> {
    let mut decoder = SseDecoder::default();
    let mut events = decoder.push(bytes).unwrap();
    events.extend(decoder.finish());
    events.into_iter().map(|event| event.data).collect()
}

#[test]
fn reads_all_three_line_ends() {
    assert_eq!(whole(b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\n"), ["a", "b", "c", "d"]);
}

#[test]
fn skips_comments_marks_and_unknown_fields() {
    assert_eq!(whole(b"\xEF\xBB\xBFdata: a\n\n: PROCESSING\n\nid: 7\nretry: 3\nfoo\ndata:b\n\n"), ["a", "b"]);
}

#[test]
fn joins_lines_and_keeps_inner_spaces() {
    assert_eq!(whole(b"data:  a\ndata\ndata: b \n\n"), [" a\n\nb "]);
}

#[test]
fn keeps_the_name_of_its_own_event_only() {
    let mut decoder = SseDecoder::default();
    let events = decoder.push(b"event: error\n\ndata: a\n\nevent: ping\ndata: b\n\n").unwrap();
    assert_eq!(events.iter().map(|event| event.name.as_deref()).collect::<Vec<_>>(), [None, Some("ping")]);
}

#[test]
fn a_stream_without_the_last_blank_line_still_gives_its_event() {
    assert_eq!(whole(b"data: a\n\ndata: b"), ["a", "b"]);
    assert_eq!(whole(b"data: a\n\ndata: b\n"), ["a", "b"]);
}

#[test]
fn chunk_boundaries_do_not_change_the_events() {
    let bytes = "\u{feff}event: x\r\ndata: grün 🙂\r\n\r\n: c\r\rdata: 1\ndata: 2\n\n".as_bytes();
    let expected = whole(bytes);
    assert_eq!(expected, ["grün 🙂", "1\n2"]);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let mut decoder = SseDecoder::default();
            let mut found = Vec::new();
            for piece in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                found.extend(decoder.push(piece).unwrap());
            }
            found.extend(decoder.finish());
            assert_eq!(found.into_iter().map(|event| event.data).collect::<Vec<_>>(), expected, "cut at {first} and {second}");
        }
    }
}

#[test]
fn invalid_utf8_is_marked_as_damage() {
    let mut decoder = SseDecoder::default();
    let events = decoder.push(b"data: a\xFFb\n\ndata: c\n\n").unwrap();
    assert_eq!(events.iter().map(|event| event.damaged).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn an_endless_event_is_rejected() {
    let mut decoder = SseDecoder::default();
    let piece = vec![b'x'; 1024 * 1024];
    decoder.push(b"data: ").unwrap();
    for _ in 0..3 {
        assert_eq!(decoder.push(&piece), Ok(Vec::new()));
    }
    assert_eq!(decoder.push(&piece), Err(SseError::TooLarge));
    assert_eq!(decoder.push(b"\n\ndata: a\n\n"), Err(SseError::TooLarge), "a failed decoder stays failed");
    assert_eq!(decoder.finish(), None);
}
