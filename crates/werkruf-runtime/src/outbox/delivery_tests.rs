use jiff::SignedDuration;
use werkruf_contract::Uuid;
use werkruf_store::{OutboxStatus, Recipient};

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn row(attempts: u32, repeatable: bool, age: SignedDuration) -> OutboxRow {
    let recipient =
        Recipient { channel: "test".to_owned(), account: String::new(), address: String::new(), user_id: None, lane: String::new() };
    OutboxRow {
        id: Uuid::from_u128(1),
        tenant_id: Uuid::from_u128(2),
        recipient,
        conversation_id: None,
        turn_id: None,
        approval_id: None,
        part: 1,
        body: "{}".to_owned(),
        status: OutboxStatus::Sending,
        repeatable,
        ambiguous: false,
        attempts,
        error_code: None,
        error: None,
        external_id: None,
        next_at: now(),
        created_at: now() - age,
        updated_at: now(),
    }
}

fn retry(after: Option<Duration>) -> SendResult {
    SendResult::Retry { after, code: "busy".to_owned(), message: "m".to_owned() }
}

/// Milliseconds until the next attempt; `None` for a dead row.
fn pause(result: SendResult, row: &OutboxRow, chance: f64) -> Option<i128> {
    match end_of(result, row, Duration::from_secs(30), now(), chance) {
        SendEnd::Retry { at, .. } => Some(at.duration_since(now()).as_millis()),
        SendEnd::Dead { code, .. } => {
            assert_eq!(code, ATTEMPTS_EXHAUSTED);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_pause_grows_with_each_attempt_and_ends() {
    let young = |attempts| row(attempts, false, SignedDuration::ZERO);
    let pauses: Vec<_> = (1..=10).map(|attempts| pause(retry(None), &young(attempts), 0.5)).collect();
    let longer = [1, 4, 16, 64, 256, 1024, 4096, 10_800, 10_800].map(|seconds| Some(seconds * 1000));
    assert_eq!(pauses[..9], longer);
    assert_eq!(pauses[9], None, "the tenth was the last");
    assert_eq!(backoff(20, 0.5), LONGEST_BACKOFF);
    assert_eq!((pause(retry(None), &young(1), 0.0), pause(retry(None), &young(1), 1.0)), (Some(750), Some(1250)));
    assert_eq!(pause(retry(Some(Duration::from_secs(6))), &young(1), 0.5), Some(6000), "at least what the channel says");
    assert_eq!(pause(retry(Some(Duration::from_millis(1))), &young(3), 0.5), Some(16_000));
    let old = row(2, false, SignedDuration::from_hours(24));
    assert_eq!(pause(retry(None), &old, 0.5), None, "older than a day");
}

#[test]
fn a_doubtful_sending_is_repeated_only_where_the_recipient_recognizes_it() {
    let unknown = || SendResult::Unknown { code: "timeout".to_owned(), message: "m".to_owned() };
    let end = end_of(unknown(), &row(1, false, SignedDuration::ZERO), Duration::from_secs(30), now(), 0.5);
    let until = now() + Duration::from_secs(30);
    assert_eq!(end, SendEnd::Unknown { until, code: "timeout".to_owned(), message: "m".to_owned() });
    assert_eq!(pause(unknown(), &row(2, true, SignedDuration::ZERO), 0.5), Some(2000));
}
