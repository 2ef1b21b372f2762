//! Waiting for somebody outside, no longer than until a deadline that is fair.
//!
//! A process that was stopped, or a machine that stood still, wakes up with all its deadlines passed and all the answers that
//! came meanwhile still unread. To be late oneself is no reason to call the other side late.

use std::time::Duration;

use werkruf_contract::Deadline;

/// A timer that rings so much too late was not ringing late because of its work.
const STOOD_STILL: Duration = Duration::from_millis(100);
/// Enough to read what is there already.
const MOMENT: Duration = Duration::from_millis(250);

/// Resolves when the other side is late.
pub async fn overdue(deadline: Deadline) {
    tokio::time::sleep_until(deadline.instant().into()).await;
    if deadline.late() > STOOD_STILL {
        tokio::time::sleep(MOMENT).await;
    }
}

/// What `work` comes to, or `None` when it is late.
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
    async fn an_answer_that_came_while_we_stood_still_is_in_time() {
        let deadline = Deadline::after(Duration::from_millis(20));
        let answer = async {
            // Stands for a stopped process: no timer rings and no task runs meanwhile.
            std::thread::sleep(Duration::from_millis(200));
            // The way of an answer through other tasks to whoever waits for it.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            7
        };
        assert_eq!(in_time(deadline, answer).await, Some(7));
        let nobody = std::future::pending::<u8>();
        assert_eq!(in_time(Deadline::after(Duration::from_millis(5)), nobody).await, None);
    }
}
