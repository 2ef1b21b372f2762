//! An answer on its way in.
//!
//! Deadlines: the first byte of the body within `first_byte` of sending, every later one within `idle` of the one before.
//! Dropping the stream closes the connection.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::Response;
use tokio::time::timeout;
use werkruf_contract::Deadline;

use crate::carry::Origin;
use crate::overdue::in_time;
use crate::reading::{Reader, Wire};
use crate::record::Recording;
use crate::secrets::Secrets;
use crate::server::describe;
use crate::{AnswerStream, Delta, ModelError, ModelFault};

/// The largest answer taken.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How long the end of a body may lag behind the answer's before the connection is given up instead of kept for the next request.
const LINGER: Duration = Duration::from_millis(10);

/// A connection, and what it has said so far.
pub(crate) struct Flow<W> {
    pub(crate) response: Response,
    pub(crate) reader: Reader<W>,
    /// Until the first byte, its deadline.
    pub(crate) first_byte: Option<Deadline>,
    pub(crate) idle: Duration,
    pub(crate) taken: usize,
    pub(crate) secrets: Secrets,
    pub(crate) origin: Origin,
    pub(crate) recording: Option<Recording>,
}

/// What one wait for bytes brought.
enum Step {
    More(Vec<Delta>),
    End,
    Lost(ModelFault, String),
}

impl<W: Wire + Send + 'static> Flow<W> {
    pub(crate) fn into_stream(self) -> AnswerStream {
        let steps: BoxStream<'static, Vec<Result<Delta, ModelError>>> =
            stream::unfold(Some(self), |flow| async move { Some(flow?.advance().await) }).boxed();
        steps.flat_map(stream::iter).boxed()
    }

    /// The next deltas, and the flow unless they are the last.
    async fn advance(mut self) -> (Vec<Result<Delta, ModelError>>, Option<Self>) {
        loop {
            match self.step().await {
                Step::More(deltas) if self.reader.is_over() => return (self.end(deltas).await, None),
                Step::More(deltas) if deltas.is_empty() => {}
                Step::More(deltas) => return (joined(deltas).into_iter().map(Ok).collect(), Some(self)),
                Step::End => return (self.end(Vec::new()).await, None),
                // The answer was there; what the line lost is at most the usage.
                Step::Lost(_, words) if self.reader.is_whole() => {
                    self.reader.note(words);
                    return (self.end(Vec::new()).await, None);
                }
                Step::Lost(fault, words) => {
                    return (vec![Err(ModelError { received: self.reader.text(), ..ModelError::new(fault, words) })], None);
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let wait = self.first_byte.unwrap_or_else(|| Deadline::after(self.idle));
        match in_time(wait, self.response.chunk()).await {
            None if self.first_byte.is_some() => Step::Lost(ModelFault::FirstByte, "the first byte did not come in time".to_owned()),
            None => Step::Lost(ModelFault::Idle, "the stream stopped talking".to_owned()),
            Some(Err(error)) => Step::Lost(ModelFault::Incomplete, self.secrets.told(&describe(error))),
            Some(Ok(None)) => Step::End,
            Some(Ok(Some(bytes))) => {
                self.first_byte = None;
                self.taken += bytes.len();
                if self.taken > MAX_ANSWER_BYTES {
                    return Step::Lost(ModelFault::Protocol, format!("the answer is larger than {MAX_ANSWER_BYTES} bytes"));
                }
                if let Some(recording) = &mut self.recording {
                    recording.write(&bytes);
                }
                Step::More(self.reader.push(&bytes))
            }
        }
    }

    async fn end(mut self, mut deltas: Vec<Delta>) -> Vec<Result<Delta, ModelError>> {
        // Read to its end, the connection can be used again.
        let _ = timeout(LINGER, self.response.chunk()).await;
        let (late, verdict) = self.reader.finish();
        deltas.extend(late);
        let mut out: Vec<_> = deltas.into_iter().map(Ok).collect();
        out.push(match verdict.into_result() {
            Ok(mut answer) => {
                answer.carry = answer.carry.and_then(|carry| self.origin.seal(carry));
                Ok(Delta::Done(Box::new(answer)))
            }
            Err(error) => Err(ModelError { message: self.secrets.told(&error.message), ..error }),
        });
        out
    }
}

/// What came in one piece is shown in one piece: a server that sends all at once must not flood its readers.
fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (out.last_mut(), delta) {
            (Some(Delta::Text(before)), Delta::Text(text)) => before.push_str(&text),
            (_, delta) => out.push(delta),
        }
    }
    out
}
