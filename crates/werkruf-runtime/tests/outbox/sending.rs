//! How rows are sent: in order, again after a failure, at most once more after a doubt.

use werkruf_contract::{Cancel, TurnStatus};
use werkruf_store::{OutboxRow, OutboxStatus, Records};

use crate::fake_channel::{ELSEWHERE, Sent, Step};
use crate::office::{ADA, Office, TENANT};
use crate::scripted::HOLD;

fn sent(text: &str, attempt: u32) -> Sent {
    Sent { address: ADA.to_owned(), text: text.to_owned(), attempt }
}

/// Status, attempts, doubt and code of each row.
fn ends(rows: &[OutboxRow]) -> Vec<(OutboxStatus, u32, bool, Option<&str>)> {
    rows.iter().map(|row| (row.status, row.attempts, row.ambiguous, row.error_code.as_deref())).collect()
}

#[tokio::test]
async fn an_answer_arrives_in_parts_and_in_order_also_after_a_failure() {
    let office = Office::open().await;
    office.channel.script(ADA, [Step::Retry]);
    let turn = office.write("One. Two. Three.", None, None).await;
    let rows = office.settled(3).await;
    // The second part did not leave before the first had arrived.
    assert_eq!(office.channel.sent(), [sent("You said One.", 1), sent("You said One.", 2), sent("Two.", 1), sent("Three.", 1)]);
    assert!(rows.iter().all(|row| row.turn_id == Some(turn.turn_id) && row.conversation_id == Some(turn.conversation_id)));
    assert_eq!(rows.iter().map(|row| row.part).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(rows[0].external_id, Some(format!("x-{}", rows[0].id)));
    assert_eq!(office.notifications().await, ["turn_finished"]);
}

#[tokio::test]
async fn a_doubtful_sending_is_repeated_once_and_then_given_up_with_its_later_parts() {
    let office = Office::open().await;
    office.channel.script(ADA, [Step::Panic, Step::Unknown]);
    office.write("One. Two.", None, None).await;
    let rows = office.settled(2).await;
    let given_up = (OutboxStatus::Dead, 2, true, Some("outcome_unknown"));
    assert_eq!(ends(&rows), [given_up, (OutboxStatus::Dead, 0, false, Some("earlier_part_dead"))]);
    assert_eq!(office.channel.sent(), [sent("You said One.", 1), sent("You said One.", 2)]);
    // The next answer is not held up, and programs are told of the dead one.
    office.write("Three.", None, None).await;
    office.settled(3).await;
    assert_eq!(office.channel.texts(ADA).last().unwrap(), "You said Three.");
    assert_eq!(office.notifications().await, ["turn_finished", "dead_letter", "turn_finished"]);
}

#[tokio::test]
async fn a_lane_does_not_wait_for_another_and_a_drain_finishes_what_is_being_sent() {
    let office = Office::open().await;
    let gate = Cancel::default();
    office.channel.script(ADA, [Step::Hold(gate.clone())]);
    office.write("One.", None, None).await;
    office.rows_once(|rows| rows.iter().any(|row| row.status == OutboxStatus::Sending)).await;
    // A request for approval to another person leaves meanwhile.
    office.write("pay", Office::pay(), None).await;
    office.rows_once(|rows| rows.iter().any(|row| row.approval_id.is_some() && row.status == OutboxStatus::Sent)).await;
    let runtime = office.runtime.clone();
    let drain = office.tasks.spawn(async move { runtime.drain().await });
    while !office.runtime.is_draining() {
        tokio::task::yield_now().await;
    }
    gate.raise();
    drain.await.unwrap();
    let rows = office.settled(1).await;
    assert_eq!(rows[0].status, OutboxStatus::Sent, "{rows:#?}");
}

#[tokio::test]
async fn an_account_that_hangs_keeps_no_other_waiting() {
    let office = Office::open().await;
    let gate = Cancel::default();
    office.put(ELSEWHERE, "unknown").await;
    for number in 0..70 {
        let address = format!("stuck-{number}");
        office.channel.script(&address, [Step::Hold(gate.clone())]);
        office.put("stuck", &address).await;
    }
    let sending = |rows: &[OutboxRow]| rows.iter().filter(|row| row.status == OutboxStatus::Sending).count();
    office.rows_once(|rows| sending(rows) >= 16).await;
    office.write("One.", None, None).await;
    let rows = office.settled(1).await;
    assert_eq!(office.channel.texts(ADA), ["You said One."]);
    assert_eq!(sending(&rows), 16, "the others of the account wait");
    gate.raise();
    let rows = office.settled(71).await;
    // The row of an account that this process does not know is left to others, and no attempt is counted.
    let left: Vec<_> = rows.iter().filter(|row| row.status == OutboxStatus::Pending).collect();
    assert_eq!(left.iter().map(|row| (row.recipient.account.as_str(), row.attempts)).collect::<Vec<_>>(), [(ELSEWHERE, 0)]);
}

#[tokio::test]
async fn a_turn_that_is_canceled_in_its_queue_is_answered_too() {
    let office = Office::open().await;
    let first = office.write(HOLD, None, None).await;
    let second = office.write("Two.", None, Some(first.conversation_id)).await;
    assert!(office.runtime.cancel_turn(TENANT, second.turn_id).await.unwrap());
    office.settled(1).await;
    assert_eq!(office.channel.texts(ADA), ["The turn was canceled."]);
    assert_eq!(office.store.turn(TENANT, second.turn_id).await.unwrap().unwrap().status, TurnStatus::Canceled);
    office.gate.raise();
    office.settled(2).await;
    assert_eq!(office.channel.texts(ADA), ["The turn was canceled.", "You said hold"]);
    assert_eq!(office.notifications().await, ["turn_failed", "turn_finished"]);
}
