//! Writes log lines to stderr on a thread of its own, so that a program that does not read them blocks no request. Lines that find the
//! buffer full are dropped and counted.
//!
//! Invariant: one event is one line. In the text format every control character inside it is escaped, so that no value forges a line.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::fmt::{FormatFields, MakeWriter};

/// The most lines and bytes that wait to be written.
const MAX_LINES: usize = 16_384;
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

enum Job {
    Line(Box<[u8]>),
    /// Everything before it is written: dropping the sender says so.
    Flush(SyncSender<()>),
}

/// How the events of a log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// The formatter escapes everything itself.
    Json,
    Text,
    /// Text with colours, which are escape sequences.
    Colored,
}

/// Takes the events of the log. Clones share the thread.
#[derive(Clone)]
pub(crate) struct LogWriter {
    sender: SyncSender<Job>,
    counts: Arc<Counts>,
    format: LineFormat,
}

impl LogWriter {
    /// Starts the thread that writes to `output`.
    pub(crate) fn start(output: impl Write + Send + 'static, format: LineFormat) -> io::Result<Self> {
        let (sender, jobs) = sync_channel(MAX_LINES);
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(output, &jobs, &shared))?;
        Ok(Self { sender, counts, format })
    }

    /// How many lines were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    fn put(&self, line: Box<[u8]>) {
        let length = line.len();
        let waiting = self.counts.waiting_bytes.fetch_add(length, Ordering::Relaxed);
        let sent = waiting < MAX_BYTES && self.sender.try_send(Job::Line(line)).is_ok();
        if !sent {
            self.counts.waiting_bytes.fetch_sub(length, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written, for a moment: whoever does not read the log does not keep the process.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if !matches!(self.sender.try_send(Job::Flush(done)), Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) {
            let _ = written.recv_timeout(FLUSH);
        }
    }
}

fn write_lines(mut output: impl Write, jobs: &Receiver<Job>, counts: &Counts) {
    let mut reported = 0;
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Line(line) => {
                // A log that cannot be written, as on a full disk, must not stop the work.
                let _ = output.write_all(&line);
                counts.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Job::Flush(done) => {
                let _ = output.flush();
                drop(done);
            }
        }
        let dropped = counts.dropped.load(Ordering::Relaxed);
        if dropped > reported {
            tracing::warn!(lines = dropped - reported, "lines of the log were dropped, because nobody read them");
            reported = dropped;
        }
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event(self)
    }
}

/// One event. The formatter writes it at once.
pub(crate) struct Event<'a>(&'a LogWriter);

impl Write for Event<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(match self.0.format {
            LineFormat::Json => bytes.into(),
            LineFormat::Text => one_line(bytes, false),
            LineFormat::Colored => one_line(bytes, true),
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the fields of the text formats, with control characters escaped. The formatter's own way lets a value of `%` bring its colours.
pub(crate) fn text_fields() -> impl for<'a> FormatFields<'a> + 'static {
    debug_fn(|writer, field, value| {
        let value = escaped(&format!("{value:?}"), false).into_owned();
        if field.name() == "message" { write!(writer, "{value}") } else { write!(writer, "{}={value}", field.name()) }
    })
    .delimited(" ")
}

/// The event with every control character but its last newline escaped.
fn one_line(bytes: &[u8], colored: bool) -> Box<[u8]> {
    let text = String::from_utf8_lossy(bytes);
    let body = text.strip_suffix('\n').unwrap_or(&text);
    format!("{}\n", escaped(body, colored)).into_bytes().into()
}

/// The text without control characters. Where there are colours, only values were escaped before, and the formatter's sequences stay.
fn escaped(text: &str, colored: bool) -> Cow<'_, str> {
    let forbidden = |letter: char| (letter.is_control() && !(colored && letter == '\u{1b}')) || is_direction(letter);
    if !text.contains(forbidden) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if forbidden(letter) {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    Cow::Owned(line)
}

/// Line separators, and characters that turn the direction of what follows.
const fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
#[path = "log_writer_tests.rs"]
mod tests;
