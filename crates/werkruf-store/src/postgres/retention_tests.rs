//! Two processes sweep the same rows while messages arrive.

use futures_util::future::{join, join_all};
use jiff::Timestamp;

use super::cluster_tests::{Process, existing, two};
use crate::{ConversationFilter, Opened, Page, Records, Retention, Sweep, Sweepable, Turns};

async fn sweep(process: &Process, rows: Sweepable, before: Timestamp) -> u64 {
    let (sweep, mut total, mut after) = (Sweep { rows, before, now: process.now, dry_run: false }, 0, None);
    loop {
        let swept = process.store.sweep(sweep, after).await.unwrap();
        total += swept.rows;
        after = swept.next;
        if after.is_none() {
            return total;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_sweep_at_once_count_every_row_once() {
    let (mut here, mut there) = two().await;
    for _ in 0..40 {
        let running = here.talk().await;
        let call = here.call(&running, 0);
        here.act(&running, std::slice::from_ref(&call)).await;
        here.finish_call(&running, &call).await;
        here.complete(&running).await;
    }
    let before = here.later(1_000);
    there.now = here.now;
    for (rows, expected) in [(Sweepable::Calls, 40), (Sweepable::Messages, 160), (Sweepable::Usage, 80)] {
        let (one, other) = join(sweep(&here, rows, before), sweep(&there, rows, before)).await;
        // A row that one process had locked is left for the next run.
        let rest = sweep(&here, rows, before).await;
        assert_eq!(one + other + rest, expected, "{rows:?}: {one} and {other}, then {rest}");
    }
    assert!(here.store.conversations(here.tenant, ConversationFilter::default(), Page::default()).await.unwrap().is_empty());
}

/// A message is stored in a whole conversation, or is refused because there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_arrives_during_a_sweep_is_stored_or_refused() {
    let (mut here, mut there) = two().await;
    let mut conversations = Vec::new();
    for _ in 0..60 {
        let running = here.talk().await;
        here.complete(&running).await;
        conversations.push(running.conversation);
    }
    let before = here.later(1_000);
    there.now = here.now;
    let messages = join_all(conversations.iter().rev().map(|id| there.store.open_turn(existing(&there, *id, "process-2"))));
    let (deleted, opened) = join(sweep(&here, Sweepable::Messages, before), messages).await;
    let (mut refused, mut stored) = (0, 0);
    for (id, opened) in conversations.iter().rev().zip(opened) {
        let history = here.store.history(here.tenant, *id).await.unwrap();
        let found = here.store.conversation(here.tenant, *id).await.unwrap();
        match opened.unwrap() {
            Opened::Stored { fence: Some(_), .. } => {
                stored += 1;
                assert!(found.is_some());
                assert_eq!(history.last().map(|message| (message.role.as_str(), message.content.as_str())), Some(("user", "and?")));
                assert!([1, 3].contains(&history.len()), "whole turns: {history:?}");
            }
            Opened::UnknownConversation => {
                refused += 1;
                assert!(found.is_none() && history.is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stored + refused, 60);
    assert!(deleted >= 2 * refused, "{deleted} messages were deleted, {refused} refused");
}
