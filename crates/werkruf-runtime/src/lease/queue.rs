//! Turns of one conversation run one after another, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use werkruf_contract::Uuid;

type Queues = HashMap<Uuid, VecDeque<oneshot::Sender<()>>>;

/// The conversations that have a turn running or waiting. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct TurnQueues {
    waiting: Arc<Mutex<Queues>>,
}

/// A turn's place in its conversation's queue. Dropping it lets the next turn start.
pub(crate) struct QueuePlace {
    queues: TurnQueues,
    stream_id: Uuid,
    started: Option<oneshot::Receiver<()>>,
}

impl TurnQueues {
    /// Takes the next place. The order of these calls is the order of the turns.
    pub(crate) fn enter(&self, stream_id: Uuid) -> QueuePlace {
        let mut queues = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let started = match queues.get_mut(&stream_id) {
            None => {
                queues.insert(stream_id, VecDeque::new());
                None
            }
            Some(queue) => {
                let (sender, receiver) = oneshot::channel();
                queue.push_back(sender);
                Some(receiver)
            }
        };
        QueuePlace { queues: self.clone(), stream_id, started }
    }

    /// How many turns wait behind another turn of their conversation.
    pub(crate) fn waiting(&self) -> usize {
        let queues = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().flatten().filter(|place| !place.is_closed()).count()
    }
}

impl QueuePlace {
    /// Whether no turn is ahead.
    pub(crate) const fn is_first(&self) -> bool {
        self.started.is_none()
    }

    /// Waits until every turn ahead has left.
    pub(crate) async fn reached(&mut self) {
        if let Some(started) = self.started.as_mut() {
            // An error means that the whole map was dropped: the process shuts down, and no turn is ahead.
            let _ = started.await;
            self.started = None;
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queues = self.queues.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // A turn that leaves while it waits only gives up its own place: its receiver is gone, so its sender is skipped below.
        if let Some(mut receiver) = self.started.take() {
            receiver.close();
            if receiver.try_recv().is_err() {
                return;
            }
        }
        let Some(queue) = queues.get_mut(&self.stream_id) else { return };
        while let Some(next) = queue.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        queues.remove(&self.stream_id);
    }
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;

    use super::TurnQueues;

    #[tokio::test]
    async fn turns_start_in_order_and_those_that_left_are_skipped() {
        let queues = TurnQueues::default();
        let conversation = Uuid::from_u128(1);
        let first = queues.enter(conversation);
        let mut second = queues.enter(conversation);
        let third = queues.enter(conversation);
        let mut fourth = queues.enter(conversation);
        assert!(first.is_first() && !second.is_first());
        assert!(queues.enter(Uuid::from_u128(2)).is_first());
        assert_eq!(queues.waiting(), 3);
        drop(third);
        assert_eq!(queues.waiting(), 2);
        drop(first);
        second.reached().await;
        drop(second);
        fourth.reached().await;
        drop(fourth);
        assert!(queues.enter(conversation).is_first());
    }

    #[tokio::test]
    async fn a_place_that_is_reached_and_dropped_passes_the_queue_on() {
        let queues = TurnQueues::default();
        let conversation = Uuid::from_u128(1);
        let first = queues.enter(conversation);
        let second = queues.enter(conversation);
        let mut third = queues.enter(conversation);
        drop(first);
        drop(second);
        third.reached().await;
    }
}
