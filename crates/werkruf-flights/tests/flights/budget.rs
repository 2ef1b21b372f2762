//! Quotas, tokens and cached results, which all processes on one store share.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use werkruf_contract::Reply;

use werkruf_store::{ProviderAccount, ProviderTokens};

use crate::behavior::Behavior;
use crate::fixture::{Fixture, Options, Tools, args_with, provider_status};

fn awards_only(quota: u32) -> Options {
    Options { quota, amadeus: false, ..Options::default() }
}

#[tokio::test]
async fn a_quota_of_n_allows_n_calls_over_all_processes() {
    let fixture = Fixture::open().await;
    let replicas = [fixture.tools(&awards_only(7)), fixture.tools(&awards_only(7))];
    let searches = (0..20).map(|at| replicas[at % 2].search(args_with(json!({"award_only": true, "flexibility": at % 4}))));
    let replies = join_all(searches).await;
    assert_eq!(fixture.stub().seats_count(), 7);
    assert_eq!(replies.iter().filter(|reply| provider_status(reply, "seatsaero").0 == "ok").count(), 7);
    assert_eq!(replies.iter().filter(|reply| provider_status(reply, "seatsaero") == ("failed".into(), "quota".into())).count(), 13);
}

#[tokio::test]
async fn the_smaller_remaining_quota_wins() {
    let fixture = Fixture::open().await;
    // Another program has used the key: three calls are left, whatever was counted here.
    fixture.stub().remaining.store(3, Ordering::SeqCst);
    let tools = fixture.tools(&awards_only(1000));
    for _ in 0..6 {
        tools.search(args_with(json!({"award_only": true}))).await;
    }
    assert_eq!(fixture.stub().seats_count(), 3, "the provider never has to refuse");
}

#[tokio::test]
async fn a_429_without_retry_after_ends_the_day() {
    let fixture = Fixture::open().await;
    fixture.stub().seats_behavior.lock().unwrap().push_back(Behavior::QuotaExhausted);
    let (tools, other) = (fixture.tools(&awards_only(1000)), fixture.tools(&awards_only(1000)));
    assert_eq!(
        provider_status(&tools.search(args_with(json!({"award_only": true}))).await, "seatsaero"),
        ("failed".into(), "quota".into())
    );
    fixture.stub().seats_behavior.lock().unwrap().clear();
    assert_eq!(
        provider_status(&other.search(args_with(json!({"award_only": true}))).await, "seatsaero"),
        ("failed".into(), "quota".into())
    );
    assert_eq!(fixture.stub().seats_count(), 1);
}

#[tokio::test]
async fn ten_searches_with_an_expired_token_fetch_one() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options::default());
    tools.search(args_with(json!({}))).await;
    assert_eq!(fixture.stub().tokens(), 1);
    fixture.stub().expire();
    let replies = join_all((1..=10).map(|day| tools.search(args_with(json!({"depart_date": format!("2026-12-{day:02}")}))))).await;
    assert!(
        replies.iter().all(|reply| provider_status(reply, "amadeus").0 == "ok"),
        "{:?}",
        replies.iter().map(|reply| provider_status(reply, "amadeus")).collect::<Vec<_>>()
    );
    assert_eq!(fixture.stub().tokens(), 2, "one renewal for all of them");
}

#[tokio::test]
async fn ten_first_searches_fetch_one_token() {
    let fixture = Fixture::open().await;
    let tools = fixture.tools(&Options::default());
    join_all((1..=10).map(|day| tools.search(args_with(json!({"depart_date": format!("2026-12-{day:02}")}))))).await;
    assert_eq!(fixture.stub().tokens(), 1);
}

/// Concurrent searches of several processes, each for another day.
async fn at_once(replicas: &[Tools]) -> Vec<Reply> {
    let search = |at: usize| replicas[at % replicas.len()].search(args_with(json!({"depart_date": format!("2026-12-{:02}", at + 1)})));
    join_all((0..10).map(search)).await
}

#[tokio::test]
async fn ten_searches_of_several_processes_fetch_one_token() {
    let fixture = Fixture::open().await;
    let replicas = [fixture.tools(&Options::default()), fixture.tools(&Options::default()), fixture.tools(&Options::default())];
    // Processes do not share a rate limiter, so a search may be rate-limited. No search may fail because of the token.
    let ok = |replies: Vec<Reply>| {
        let provider_status: Vec<_> = replies.iter().map(|reply| provider_status(reply, "amadeus")).collect();
        provider_status.iter().all(|(status, reason)| status == "ok" || reason == "quota")
            && provider_status.iter().any(|(status, _)| status == "ok")
    };
    assert!(ok(at_once(&replicas).await));
    assert_eq!(fixture.stub().tokens(), 1, "one first token");
    fixture.stub().expire();
    assert!(ok(at_once(&replicas).await));
    assert_eq!(fixture.stub().tokens(), 2, "one renewal for all processes");
}

#[tokio::test]
async fn a_process_that_died_while_fetching_a_token_does_not_block_others() {
    let fixture = Fixture::open().await;
    let account = ProviderAccount { provider: "amadeus".to_owned(), account: "prod".to_owned() };
    // The test clock does not advance, so this claim never expires. The waiting process has its own time limit.
    let dead = fixture.clock.new_id();
    assert!(fixture.store.claim_token(account.clone(), dead, Duration::from_secs(60), fixture.clock.now()).await.unwrap());
    let tools = fixture.tools(&Options { deadline: Duration::from_secs(12), ..Options::default() });
    let reply = tools.search(args_with(json!({}))).await;
    assert_eq!((provider_status(&reply, "amadeus").0.as_str(), fixture.stub().tokens()), ("ok", 1));
    assert!(
        !fixture.store.claim_token(account, fixture.clock.new_id(), Duration::ZERO, fixture.clock.now()).await.unwrap(),
        "the claim of the dead process was not released"
    );
}

#[tokio::test]
async fn other_processes_use_the_stored_token_and_it_is_encrypted() {
    let fixture = Fixture::open().await;
    fixture.tools(&Options::default()).search(args_with(json!({}))).await;
    let reply = fixture.tools(&Options::default()).search(args_with(json!({}))).await;
    assert_eq!((provider_status(&reply, "amadeus").0.as_str(), fixture.stub().tokens()), ("ok", 1));
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"token-1"), "the token is in the store as plain text");
    }
}

#[tokio::test]
async fn refused_keys_are_reported_and_not_tried_again_at_once() {
    let fixture = Fixture::open().await;
    fixture.stub().token_behavior.lock().unwrap().push_back(Behavior::Status(401));
    let tools = fixture.tools(&Options::default());
    let replies = join_all((1..=10).map(|day| tools.search(args_with(json!({"depart_date": format!("2026-12-{day:02}")}))))).await;
    assert!(replies.iter().all(|reply| provider_status(reply, "amadeus") == ("failed".into(), "credentials".into())));
    assert_eq!(fixture.stub().tokens(), 1);
    assert!(replies[0].message.clone().unwrap().contains("Zugangsdaten"));
}

#[tokio::test]
async fn the_same_request_of_the_same_tenant_is_answered_from_the_cache() {
    let fixture = Fixture::open().await;
    let change = Options { cache: Duration::from_secs(300), ..Options::default() };
    let tools = fixture.tools(&change);
    let first = tools.search(args_with(json!({}))).await;
    let second = tools.search(args_with(json!({}))).await;
    assert_eq!((fixture.stub().seats_count(), fixture.stub().offer_count()), (1, 1));
    assert_eq!(
        (&first.data["awards"], &first.data["cash"], &first.data["raw"]),
        (&second.data["awards"], &second.data["cash"], &second.data["raw"])
    );
    let cached = |reply: &werkruf_contract::Reply| reply.data["providers"][0]["cached"].clone();
    assert_eq!((cached(&first), cached(&second)), (json!(false), json!(true)));
    fixture.tools(&change).search(args_with(json!({}))).await;
    assert_eq!(fixture.stub().seats_count(), 2, "another tenant has its own cache");
    tools.search(args_with(json!({"pax": 2}))).await;
    assert_eq!(fixture.stub().seats_count(), 3, "a different request is not cached");
}
