//! The log under values that try to forge a line, and on a pipe that nobody reads.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use tracing_subscriber::layer::SubscriberExt;

use super::*;

/// What was written, for a look at it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs values that carry newlines, colours, a carriage return and a right-to-left override.
fn log_hostile_values(format: LineFormat) -> String {
    let written = Shared::default();
    let writer = LogWriter::start(written.clone(), format).unwrap();
    let lines = tracing_subscriber::fmt::layer().without_time().with_writer(writer.clone());
    let hostile = "a\nERROR werkruf: forged\r\u{1b}[31mred\u{7f}\u{9b}2J\u{202e}";
    let log = || {
        tracing::info!(%hostile, quoted = hostile, "an event");
        tracing::info!("message {hostile}");
    };
    match format {
        LineFormat::Json => tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.json().flatten_event(true)), log),
        LineFormat::Text => {
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.with_ansi(false).fmt_fields(text_fields())), log)
        }
        LineFormat::Colored => {
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.with_ansi(true).fmt_fields(text_fields())), log)
        }
    }
    writer.flush();
    let bytes = written.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn no_value_forges_a_line_of_the_log() {
    for format in [LineFormat::Json, LineFormat::Text, LineFormat::Colored] {
        let log = log_hostile_values(format);
        assert_eq!(log.lines().count(), 2, "{format:?}: {log:?}");
        assert!(log.ends_with('\n'), "{format:?}: {log:?}");
        let raw = ['\r', '\u{7f}', '\u{9b}', '\u{202e}'];
        assert!(format == LineFormat::Json || !log.contains(raw), "{format:?}: {log:?}");
        assert!(!log.contains("\u{1b}[31mred"), "{format:?}: {log:?}");
        assert!(log.contains("forged"), "{format:?}: {log:?}");
    }
}

#[test]
fn plain_lines_stay_as_they_are() {
    assert_eq!(&*one_line(" INFO werkruf: größer als 3 €\n".as_bytes(), false), " INFO werkruf: größer als 3 €\n".as_bytes());
    assert_eq!(&*one_line(b"\x1b[2mtime\x1b[0m a\tb\n", true), b"\x1b[2mtime\x1b[0m a\\tb\n");
}

#[test]
fn a_pipe_without_a_reader_blocks_nobody_and_lost_lines_are_counted() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let writer = LogWriter::start(pipe, LineFormat::Text).unwrap();
    // Far more than the pipe and the buffer hold. Each call returns at once, or this test does not end.
    let line = format!("{}\n", "x".repeat(1023));
    for _ in 0..20_000 {
        writer.make_writer().write_all(line.as_bytes()).unwrap();
    }
    let dropped = writer.counts.dropped.load(Ordering::Relaxed);
    assert!(dropped > 20_000 - 2 * (MAX_BYTES as u64 / 1024), "{dropped}");
    assert!(writer.counts.waiting_bytes.load(Ordering::Relaxed) <= MAX_BYTES + 1024);
    // The rest arrives as soon as somebody reads, whole lines in order.
    let kept = 20_000 - usize::try_from(dropped).unwrap();
    let mut read = vec![0; kept * 1024];
    reader.read_exact(&mut read).unwrap();
    assert!(read.chunks(1024).all(|chunk| chunk == line.as_bytes()));
    writer.flush();
    assert_eq!(writer.counts.waiting_bytes.load(Ordering::Relaxed), 0);
}
