//! Sends the body of a response: pieces, gates, delays, and how it ends.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;

use super::Open;
use super::gate::{Gate, GatePoint};
use super::reply::{Ending, Reply};

struct BodyState {
    pieces: VecDeque<Bytes>,
    sent: usize,
    /// Pieces before the first delta.
    preface: usize,
    gates: Vec<Gate>,
    delay: Option<Duration>,
    silent_after: Option<usize>,
    drops: bool,
    open: Open,
}

/// The body of a reply. `preface` is the number of pieces before the first delta.
pub(super) fn body(mut pieces: Vec<Bytes>, preface: usize, reply: &Reply, open: Open) -> Body {
    let mut drops = false;
    if let Ending::CutAfter(bytes) = reply.fate {
        pieces = cut(pieces, bytes);
        drops = true;
    }
    let outflow = BodyState {
        pieces: pieces.into(),
        sent: 0,
        preface,
        gates: reply.gates.clone(),
        delay: reply.delay,
        silent_after: (reply.fate == Ending::HangMidStream).then_some(preface + 1),
        drops,
        open,
    };
    Body::from_stream(stream::unfold(Some(outflow), |outflow| async move { outflow?.next().await }))
}

impl BodyState {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        for gate in &self.gates {
            if matches!(gate.point, GatePoint::AfterDeltas(deltas) if self.sent == self.preface + deltas) {
                gate.pass().await;
            }
        }
        if self.silent_after == Some(self.sent) {
            self.open.0.closed().await;
            return Some((Err(io::Error::other("the fake closed")), None));
        }
        if let Some(delay) = self.delay {
            tokio::time::sleep(delay).await;
        }
        match self.pieces.pop_front() {
            Some(piece) => {
                self.sent += 1;
                Some((Ok(piece), Some(self)))
            }
            None if self.drops => {
                // Sent bytes must leave the buffer first; the server flushes when no piece is ready.
                tokio::task::yield_now().await;
                Some((Err(io::Error::other("cut as the script says")), None))
            }
            None => None,
        }
    }
}

fn cut(pieces: Vec<Bytes>, mut bytes: usize) -> Vec<Bytes> {
    let mut sent = Vec::new();
    for piece in pieces {
        if bytes == 0 {
            break;
        }
        sent.push(piece.slice(..piece.len().min(bytes)));
        bytes = bytes.saturating_sub(piece.len());
    }
    sent
}
