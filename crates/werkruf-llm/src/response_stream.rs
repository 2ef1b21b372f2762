//! The stream of deltas that is read from an HTTP response.
//!
//! Deadlines: the first byte of the body within `first_byte` of sending, every further chunk within `idle` of the previous one.
//! Dropping the stream closes the connection.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::Response;
use tokio::time::timeout;
use werkruf_contract::Deadline;

use crate::carry::Origin;
use crate::http::cause;
use crate::overdue::in_time;
use crate::reader::{Reader, Wire};
use crate::record::Recording;
use crate::secrets::Secrets;
use crate::{AnswerStream, Delta, ModelError, ModelFault};

/// The maximum size of a response.
pub(crate) const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How long to wait for the end of the body after the end of the answer. After that, the connection is closed instead of reused.
const BODY_END_WAIT: Duration = Duration::from_millis(10);

/// A response that is being read.
pub(crate) struct ResponseStream<W> {
    pub(crate) response: Response,
    pub(crate) reader: Reader<W>,
    /// The deadline of the first byte, until it has arrived.
    pub(crate) first_byte: Option<Deadline>,
    pub(crate) idle: Duration,
    pub(crate) received: usize,
    pub(crate) secrets: Secrets,
    pub(crate) origin: Origin,
    pub(crate) recording: Option<Recording>,
}

/// The result of one wait for bytes.
enum Received {
    Deltas(Vec<Delta>),
    End,
    Failed(ModelFault, String),
}

impl<W: Wire + Send + 'static> ResponseStream<W> {
    pub(crate) fn into_stream(self) -> AnswerStream {
        let steps: BoxStream<'static, Vec<Result<Delta, ModelError>>> =
            stream::unfold(Some(self), |stream| async move { Some(stream?.advance().await) }).boxed();
        AnswerStream::new(steps.flat_map(stream::iter))
    }

    /// The next deltas, and the stream unless they are the last.
    async fn advance(mut self) -> (Vec<Result<Delta, ModelError>>, Option<Self>) {
        loop {
            match self.receive().await {
                Received::Deltas(deltas) if self.reader.is_finished() => return (self.end(deltas).await, None),
                Received::Deltas(deltas) if deltas.is_empty() => {}
                Received::Deltas(deltas) => return (joined(deltas).into_iter().map(Ok).collect(), Some(self)),
                Received::End => return (self.end(Vec::new()).await, None),
                // The answer is complete; at most the usage was lost with the connection.
                Received::Failed(_, message) if self.reader.is_complete() => {
                    self.reader.warn(message);
                    return (self.end(Vec::new()).await, None);
                }
                Received::Failed(fault, message) => {
                    return (vec![Err(ModelError { received: self.reader.text(), ..ModelError::new(fault, message) })], None);
                }
            }
        }
    }

    async fn receive(&mut self) -> Received {
        let wait = self.first_byte.unwrap_or_else(|| Deadline::after(self.idle));
        match in_time(wait, self.response.chunk()).await {
            None if self.first_byte.is_some() => {
                Received::Failed(ModelFault::FirstByte, "the first byte did not arrive in time".to_owned())
            }
            None => Received::Failed(ModelFault::Idle, "no further bytes arrived in time".to_owned()),
            Some(Err(error)) => Received::Failed(ModelFault::Incomplete, self.secrets.redact(&cause(&error))),
            Some(Ok(None)) => Received::End,
            Some(Ok(Some(bytes))) => {
                self.first_byte = None;
                self.received += bytes.len();
                if self.received > MAX_ANSWER_BYTES {
                    return Received::Failed(ModelFault::Protocol, format!("the answer is larger than {MAX_ANSWER_BYTES} bytes"));
                }
                if let Some(recording) = &mut self.recording {
                    recording.write(&bytes);
                }
                Received::Deltas(self.reader.push(&bytes))
            }
        }
    }

    async fn end(mut self, mut deltas: Vec<Delta>) -> Vec<Result<Delta, ModelError>> {
        // The connection can only be reused if the body was read to its end. After an error, usage may follow.
        if let Ok(Ok(Some(bytes))) = timeout(BODY_END_WAIT, self.response.chunk()).await {
            deltas.extend(self.reader.push(&bytes));
        }
        let (late, outcome) = self.reader.finish();
        deltas.extend(late);
        let mut out: Vec<_> = deltas.into_iter().map(Ok).collect();
        out.push(match outcome.into_result() {
            Ok(mut answer) => {
                answer.carry = answer.carry.and_then(|carry| self.origin.label(carry));
                Ok(Delta::Done(Box::new(answer)))
            }
            Err(error) => Err(ModelError { message: self.secrets.redact(&error.message), ..error }),
        });
        out
    }
}

/// Joins the texts of one chunk into one delta, so that a server that sends all at once does not flood the subscribers.
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
