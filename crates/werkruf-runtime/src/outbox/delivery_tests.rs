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
        first_at: Some(now() - age),
        created_at: now() - SignedDuration::from_hours(100),
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
    let pauses = |repeatable| (1..=10).map(move |attempts| pause(retry(None), &row(attempts, repeatable, SignedDuration::ZERO), 0.0));
    let seconds = |pauses: [u64; 9]| pauses.map(|seconds| Some(i128::from(seconds) * 1000)).into_iter().chain([None]).collect::<Vec<_>>();
    assert_eq!(pauses(false).collect::<Vec<_>>(), seconds(PAUSES_FOR_PEOPLE), "the tenth attempt was the last");
    assert_eq!(pauses(true).collect::<Vec<_>>(), seconds(PAUSES_FOR_PROGRAMS));
    assert_eq!(pause(retry(None), &young(1), 1.0), Some(1250), "rows that failed together are not sent together");
    assert_eq!(pause(retry(Some(Duration::from_secs(6))), &young(9), 0.0), Some(6000), "the channel's own pause");
    assert_eq!(pause(retry(Some(Duration::MAX)), &young(1), 0.0), Some(6 * 3_600_000), "a bound");
    let old = row(2, false, SignedDuration::from_hours(24));
    assert_eq!(pause(retry(None), &old, 0.5), None, "older than a day");
}

#[test]
fn a_doubtful_sending_is_repeated_only_where_the_recipient_recognizes_it() {
    let unknown = || SendResult::Unknown { code: "timeout".to_owned(), message: "m".to_owned() };
    let end = end_of(unknown(), &row(1, false, SignedDuration::ZERO), Duration::from_secs(30), now(), 0.5);
    let until = now() + Duration::from_secs(30);
    assert_eq!(end, SendEnd::Unknown { until, code: "timeout".to_owned(), message: "m".to_owned() });
    assert_eq!(pause(unknown(), &row(2, true, SignedDuration::ZERO), 0.0), Some(4000));
}
