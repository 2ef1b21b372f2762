//! Turns of one conversation run one after another, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use werkruf_contract::Uuid;

type Waiting = HashMap<Uuid, VecDeque<oneshot::Sender<()>>>;

/// The lanes that have somebody in them.
#[derive(Clone, Default)]
pub(crate) struct Lanes {
    waiting: Arc<Mutex<Waiting>>,
}

/// A place in a lane. Dropping it lets the next one go.
pub(crate) struct Ticket {
    lanes: Lanes,
    stream_id: Uuid,
    turn_of: Option<oneshot::Receiver<()>>,
}

impl Lanes {
    /// Takes the next place. The order of these calls is the order of the turns.
    pub(crate) fn enter(&self, stream_id: Uuid) -> Ticket {
        let mut lanes = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let turn_of = match lanes.get_mut(&stream_id) {
            None => {
                lanes.insert(stream_id, VecDeque::new());
                None
            }
            Some(queue) => {
                let (sender, receiver) = oneshot::channel();
                queue.push_back(sender);
                Some(receiver)
            }
        };
        Ticket { lanes: self.clone(), stream_id, turn_of }
    }
}

impl Ticket {
    /// Whether nobody is ahead.
    pub(crate) const fn is_first(&self) -> bool {
        self.turn_of.is_none()
    }

    /// Waits until everybody ahead has left.
    pub(crate) async fn called(&mut self) {
        if let Some(turn_of) = self.turn_of.as_mut() {
            // An error means the sender was dropped with the whole map: shutting down, nobody is ahead.
            let _ = turn_of.await;
            self.turn_of = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut lanes = self.lanes.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Who leaves before being called takes only its own place away: its receiver is gone, so the sender is skipped below.
        if let Some(mut receiver) = self.turn_of.take() {
            receiver.close();
            if receiver.try_recv().is_err() {
                return;
            }
        }
        let Some(queue) = lanes.get_mut(&self.stream_id) else { return };
        while let Some(next) = queue.pop_front() {
            if next.send(()).is_ok() {
                return;
            }
        }
        lanes.remove(&self.stream_id);
    }
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;

    use super::Lanes;

    #[tokio::test]
    async fn places_are_called_in_order_and_leavers_are_skipped() {
        let lanes = Lanes::default();
        let lane = Uuid::from_u128(1);
        let first = lanes.enter(lane);
        let mut second = lanes.enter(lane);
        let third = lanes.enter(lane);
        let mut fourth = lanes.enter(lane);
        assert!(first.is_first() && !second.is_first());
        assert!(lanes.enter(Uuid::from_u128(2)).is_first());
        drop(third);
        drop(first);
        second.called().await;
        drop(second);
        fourth.called().await;
        drop(fourth);
        assert!(lanes.enter(lane).is_first());
    }

    #[tokio::test]
    async fn a_place_called_but_never_taken_passes_the_lane_on() {
        let lanes = Lanes::default();
        let lane = Uuid::from_u128(1);
        let first = lanes.enter(lane);
        let second = lanes.enter(lane);
        let mut third = lanes.enter(lane);
        drop(first);
        drop(second);
        third.called().await;
    }
}
