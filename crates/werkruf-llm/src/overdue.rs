//! Timeouts for responses of other services that allow for a suspended process.
//!
//! After a process or machine was suspended, all its deadlines have passed although responses that arrived in time are still unread.
//! A wait therefore gets a short grace period when its own timer fired late.

use std::time::Duration;

use werkruf_contract::Deadline;

/// A timer that fires this much too late indicates that the process was suspended.
const SUSPENDED_AFTER: Duration = Duration::from_millis(100);
/// Long enough to read responses that have already arrived.
const GRACE_PERIOD: Duration = Duration::from_millis(250);

/// Resolves when the other service has missed the deadline.
pub async fn overdue(deadline: Deadline) {
    tokio::time::sleep_until(deadline.instant().into()).await;
    if deadline.late() > SUSPENDED_AFTER {
        tokio::time::sleep(GRACE_PERIOD).await;
    }
}

/// The result of `work`, or `None` if it missed the deadline.
pub async fn in_time<T>(deadline: Deadline, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = overdue(deadline) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use werkruf_contract::Deadline;

    use super::in_time;

    #[tokio::test]
    async fn a_response_that_arrived_during_suspension_is_in_time() {
        let deadline = Deadline::after(Duration::from_millis(20));
        let answer = async {
            // Simulates a suspended process: no timer fires and no task runs.
            std::thread::sleep(Duration::from_millis(200));
            // The response passes through other tasks before it reaches the waiting one.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            7
        };
        assert_eq!(in_time(deadline, answer).await, Some(7));
        let never = std::future::pending::<u8>();
        assert_eq!(in_time(Deadline::after(Duration::from_millis(5)), never).await, None);
    }
}
