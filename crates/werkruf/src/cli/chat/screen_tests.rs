use serde_json::json;

use super::*;

fn event(name: &str, data: Value) -> ServerEvent {
    ServerEvent { id: None, event: name.to_owned(), data }
}

fn token(text: &str, step: u64) -> ServerEvent {
    event("assistant_token", json!({"content": text, "step": step}))
}

fn last(text: &str) -> ServerEvent {
    let usage = json!({"total_tokens": 15});
    event(
        "final",
        json!({"message": {"role": "assistant", "content": text}, "usage": usage, "conversation_id": "0197f2c4-77aa-7000-8000-000000000001"}),
    )
}

fn tool(name: &str, job: &str, status: &str) -> ServerEvent {
    event(name, json!({"tool": "find", "job_id": job, "status": status, "took_ms": 12, "cache_hit": false}))
}

/// The text that all these events write.
fn written(screen: &mut Screen, events: &[ServerEvent]) -> String {
    events.iter().map(|event| screen.render(event, Some("permission_denied"))).collect()
}

fn terminal() -> Screen {
    Screen { size: || Some((10, 5)), ..Screen::new(OutputMode::Terminal { color: false }) }
}

#[test]
fn a_pipe_gets_text_as_it_arrives_and_a_line_per_call() {
    let mut screen = Screen::new(OutputMode::Pipe);
    let events = [
        token("Let me ", 1),
        token("look.", 1),
        tool("tool_started", "a", "running"),
        tool("tool_started", "b", "running"),
        tool("tool_finished", "b", "failed"),
        tool("tool_finished", "a", "succeeded"),
        token("Done.", 2),
        last("Done."),
    ];
    let expected = "Let me look.\n  ✗ find permission_denied 12 ms · b\n  ✓ find 12 ms · a\nDone.\n  15 tokens · 00000001\n";
    assert_eq!(written(&mut screen, &events), expected);
}

#[test]
fn a_pipe_gets_the_whole_text_once_where_it_differs() {
    let reset = event("assistant_reset", json!({"step": 1}));
    let mut screen = Screen::new(OutputMode::Pipe);
    let events = [token("Half a", 1), reset.clone(), token("A whole answer", 1), last("A whole answer")];
    assert_eq!(written(&mut screen, &events), "Half a\nA whole answer\n  15 tokens · 00000001\n");
    let same = [token("Yes.", 1), reset, token("Yes.", 1), last("Yes.")];
    assert_eq!(written(&mut screen, &same), "Yes.\n  15 tokens · 00000001\n");
}

#[test]
fn after_a_break_a_pipe_continues_only_at_a_known_position() {
    let mut screen = Screen::new(OutputMode::Pipe);
    assert_eq!(written(&mut screen, &[token("One ", 1)]), "One ");
    assert_eq!(screen.reconnected(), "");
    assert_eq!(written(&mut screen, &[token("three", 1)]), "", "the missed text is unknown");
    let snapshot = event("assistant_snapshot", json!({"content": "One two ", "step": 1}));
    assert_eq!(written(&mut screen, &[snapshot, token("three", 1)]), "two three");
    assert_eq!(written(&mut screen, &[last("One two three")]), "\n  15 tokens · 00000001\n");
}

#[test]
fn a_terminal_rewrites_the_line_of_a_call() {
    let mut screen = terminal();
    let started = written(&mut screen, &[tool("tool_started", "a", ""), tool("tool_started", "b", "")]);
    assert_eq!(started, "  ⚙ find …\n  ⚙ find …\n");
    assert_eq!(written(&mut screen, &[tool("tool_finished", "a", "succeeded")]), "\x1b[2A\r\x1b[2K  ✓ find 12 ms · a\x1b[2B\r");
    assert_eq!(
        written(&mut screen, &[tool("tool_finished", "b", "failed")]),
        "\x1b[1A\r\x1b[2K  ✗ find permission_denied 12 ms · b\x1b[1B\r"
    );
    // Text was written below, so the line of the call can no longer be rewritten.
    let late = [tool("tool_started", "c", ""), token("x", 2), tool("tool_finished", "c", "succeeded")];
    assert_eq!(written(&mut screen, &late), "  ⚙ find …\nx\n  ✓ find 12 ms · c\n");
}

#[test]
fn a_terminal_erases_text_over_all_its_rows() {
    let mut screen = terminal();
    let reset = event("assistant_reset", json!({"step": 1}));
    // Two rows of ten columns, then a short one.
    let events = [token("twelve wide!\nnext", 1), reset.clone(), token("New", 1)];
    assert_eq!(written(&mut screen, &events), "twelve wide!\nnext\x1b[2A\r\x1b[JNew");
    assert_eq!(written(&mut screen, &[last("New")]), "\n  15 tokens · 00000001\n");
    let tall = [token("1\n2\n3\n4\n5\n6", 1), reset];
    assert_eq!(written(&mut screen, &tall), "1\n2\n3\n4\n5\n6\n", "text that has scrolled away stays");
}

#[test]
fn the_notice_of_a_break_is_removed_on_reconnect() {
    let mut screen = Screen { size: || Some((80, 24)), ..terminal() };
    assert_eq!(written(&mut screen, &[token("Half", 1)]), "Half");
    assert_eq!(screen.lost(), format!("\n{LOST}"));
    assert_eq!(screen.reconnected(), "\x1b[1A\r\x1b[JHalf");
    assert_eq!(written(&mut screen, &[last("Whole")]), "\r\x1b[JWhole\n  15 tokens · 00000001\n");
}

#[test]
fn control_characters_of_a_model_do_not_reach_the_terminal() {
    let mut screen = terminal();
    assert_eq!(written(&mut screen, &[token("a\x1b[2Jb\tc\r\n", 1)]), "a[2Jb    c\n");
    let mut colored = Screen { mode: OutputMode::Terminal { color: true }, ..terminal() };
    assert!(written(&mut colored, &[last("x")]).contains("\x1b[2m  15 tokens"));
}

#[test]
fn json_is_one_event_per_line() {
    let mut screen = Screen::new(OutputMode::Json);
    let event = ServerEvent { id: Some(4), event: "init".to_owned(), data: json!({"a": 1}) };
    assert_eq!(screen.render(&event, None), "{\"id\":4,\"event\":\"init\",\"data\":{\"a\":1}}\n");
}
