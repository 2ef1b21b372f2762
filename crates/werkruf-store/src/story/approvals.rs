//! Approvals: the turn releases its lease, a decision is final, and the turn continues where it stopped.

use jiff::SignedDuration;
use werkruf_contract::{ApprovalStatus, CallKind, CallStatus, Runner, TurnStatus};

use super::world::{OWNER, Running, to};
use super::{Store, World};
use crate::{
    ApprovalFilter, CallRow, CallStart, Decision, DecisionOutcome, IdOf, NewApproval, OutboxFilter, OutboxStatus, Page, Replacement,
    StoreError,
};

/// What the model had read before the call.
const TAINT: &str = r#"[{"tool":"web"}]"#;

/// A turn whose only call waits for an approval that expires in an hour.
pub(super) async fn awaiting_approval<S: Store>(world: &World<S>) -> (Running, CallRow, NewApproval) {
    let running = world.talk().await;
    let call =
        CallRow { status: CallStatus::Queued, attempt: 0, started_at: None, taint: Some(TAINT.to_owned()), ..world.call(&running, 0) };
    let approval = NewApproval {
        id: world.id(),
        call_id: call.id,
        tool_name: call.tool_name.clone(),
        server_label: Some("bank".to_owned()),
        arguments: r#"{"status":"open"}"#.to_owned(),
        arguments_digest: "digest".to_owned(),
        approver_roles: vec!["lead".to_owned(), "admin".to_owned()],
        taint: Some(TAINT.to_owned()),
        asked_by: "1".to_owned(),
        asked_key: "key:1".to_owned(),
        retried_by: Some("3".to_owned()),
        expires_at: world.now.checked_add(SignedDuration::from_hours(1)).unwrap(),
    };
    let mut write = world.to_write(&running);
    write.calls = vec![call.clone()];
    write.approvals = vec![approval.clone()];
    write.turn = Some(to(TurnStatus::Acting));
    world.store.write(write).await.unwrap();
    let mut write = world.to_write(&running);
    let mut placeholder = world.message("tool", "waiting");
    placeholder.tool_call_id = Some("call_0".to_owned());
    placeholder.status = Some("pending");
    write.messages = vec![placeholder];
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    (running, call, approval)
}

pub(crate) async fn a_turn_waits_for_an_approval_and_continues<S: Store>(mut world: World<S>) {
    let (running, call, approval) = awaiting_approval(&world).await;
    assert!(matches!(world.store.write(world.to_write(&running)).await, Err(StoreError::Fenced)), "the lease was released");
    assert_eq!(world.store.unfinished_turns(OWNER.to_owned()).await.unwrap(), [], "not resumed without a decision");
    let earlier = world.store.reusable_call(world.tenant, Some(running.conversation), "key".to_owned()).await.unwrap().unwrap();
    assert_eq!(earlier.call.id, call.id, "the same call again finds the one that waits");

    world.later(10);
    let tenant = world.tenant;
    let told = world.outbox_row(None, "approved");
    let decision = Decision { outbox: vec![told.clone()], ..world.decision(ApprovalStatus::Approved) };
    let decided = world.store.decide(tenant, approval.id, decision).await.unwrap();
    let Some(DecisionOutcome::Decided(row)) = decided else { panic!("not decided: {decided:?}") };
    assert_eq!((row.status, row.decided_by.as_deref(), row.decided_at), (ApprovalStatus::Approved, Some("2"), Some(world.now)));
    assert_eq!((row.call_id, row.turn_id, row.conversation_id), (call.id, running.turn, Some(running.conversation)));
    assert_eq!(
        (&row.arguments, &row.arguments_digest, &row.approver_roles, &row.taint),
        (&approval.arguments, &approval.arguments_digest, &approval.approver_roles, &approval.taint)
    );
    assert_eq!(world.stored(told.id).await.status, OutboxStatus::Pending, "with the decision");
    let unsaid = world.outbox_row(None, "denied");
    let late = Decision { outbox: vec![unsaid.clone()], ..world.decision(ApprovalStatus::Denied) };
    let again = world.store.decide(tenant, approval.id, late).await.unwrap();
    assert_eq!(again, Some(DecisionOutcome::AlreadyDecided(row)), "a decision is final");
    assert_eq!(world.find(tenant, unsaid.id).await, None, "what did not happen is not told");

    let found = world.store.unfinished_turns(OWNER.to_owned()).await.unwrap();
    assert_eq!(found.iter().map(|turn| (turn.id, turn.status)).collect::<Vec<_>>(), [(running.turn, TurnStatus::AwaitingApproval)]);
    let fence = world.store.take_over(tenant, running.turn, OWNER.to_owned(), world.now).await.unwrap();
    let turn = world.store.turn(tenant, running.turn).await.unwrap().unwrap();
    assert_eq!((turn.status, turn.takeovers), (TurnStatus::Acting, 0), "waiting is not a takeover");
    let mut write = world.to_write(&Running { fence, ..running.clone() });
    write.starts = vec![CallStart { id: call.id, started_at: world.now }];
    write.ends = vec![world.end(&call, CallStatus::Succeeded)];
    write.replacements = vec![Replacement {
        tool_call_id: "call_0".to_owned(),
        content: "{}".to_owned(),
        status: "success",
        metadata: Some(r#"{"untrusted":[]}"#.to_owned()),
    }];
    world.store.write(write.clone()).await.unwrap();
    let history = world.store.history(tenant, running.conversation).await.unwrap();
    let result = history.iter().find(|row| row.role == "tool").unwrap();
    assert_eq!((result.content.as_str(), result.status.as_deref(), result.seq), ("{}", Some("success"), Some(2)));
    (write.id, write.starts, write.ends) = (world.id(), Vec::new(), Vec::new());
    assert!(matches!(world.store.write(write).await, Err(StoreError::Moved { .. })), "a real result is never replaced");
}

pub(crate) async fn a_call_of_the_provider_waits_for_every_decision<S: Store>(world: World<S>) {
    let running = world.talk().await;
    let queued = CallRow { status: CallStatus::Queued, attempt: 0, started_at: None, ..world.call(&running, 0) };
    let asked = CallRow { runner: Runner::Provider, kind: CallKind::Mcp, call_id: None, item_id: Some("mcpr_1".to_owned()), ..queued };
    let own = CallRow { status: CallStatus::Queued, attempt: 0, started_at: None, ..world.call(&running, 1) };
    let approval = |call: &CallRow| NewApproval {
        id: world.id(),
        call_id: call.id,
        tool_name: call.tool_name.clone(),
        server_label: Some("bank".to_owned()),
        arguments: "{}".to_owned(),
        arguments_digest: "digest".to_owned(),
        approver_roles: vec!["admin".to_owned()],
        taint: None,
        asked_by: "1".to_owned(),
        asked_key: "key:1".to_owned(),
        retried_by: None,
        expires_at: world.now.checked_add(SignedDuration::from_hours(1)).unwrap(),
    };
    let (first, second) = (approval(&asked), approval(&own));
    let mut write = world.to_write(&running);
    write.calls = vec![asked.clone(), own];
    write.approvals = vec![first.clone(), second.clone()];
    write.turn = Some(to(TurnStatus::AwaitingApproval));
    world.store.write(write).await.unwrap();
    let found = async || world.store.unfinished_turns(OWNER.to_owned()).await.unwrap().iter().map(|turn| turn.id).collect::<Vec<_>>();
    world.store.decide(world.tenant, first.id, world.decision(ApprovalStatus::Approved)).await.unwrap();
    assert!(found().await.is_empty(), "the provider learns all decisions at once");
    world.store.decide(world.tenant, second.id, world.decision(ApprovalStatus::Denied)).await.unwrap();
    assert_eq!(found().await, [running.turn]);
    let fence = world.store.take_over(world.tenant, running.turn, OWNER.to_owned(), world.now).await.unwrap();
    let mut write = world.to_write(&Running { fence, ..running });
    write.starts = vec![CallStart { id: asked.id, started_at: world.now }];
    world.store.write(write).await.unwrap();
    let row = world.store.call(world.tenant, asked.id).await.unwrap().unwrap();
    let kept = (row.runner, row.kind, row.call_id, row.item_id.as_deref());
    assert_eq!((kept, row.status, row.attempt), ((Runner::Provider, CallKind::Mcp, None, Some("mcpr_1")), CallStatus::Running, 1));
}

pub(crate) async fn whoever_asked_cannot_approve<S: Store>(world: World<S>) {
    let (_, _, approval) = awaiting_approval(&world).await;
    let tenant = world.tenant;
    let decide = async |by: &str, key: &str, status, by_another| {
        let outbox = vec![world.outbox_row(None, &format!("decided by {by}"))];
        let (by, key) = (by.to_owned(), Some(key.to_owned()));
        world.store.decide(tenant, approval.id, Decision { by, key, by_another, outbox, ..world.decision(status) }).await.unwrap().unwrap()
    };
    for (by, key) in [("1", "key:2"), ("3", "key:2"), ("2", "key:1"), ("key:1", "key:1"), ("1", "key:1")] {
        let refused = decide(by, key, ApprovalStatus::Approved, true).await;
        assert!(
            matches!(&refused, DecisionOutcome::AskedByDecider(row) if row.status == ApprovalStatus::Pending),
            "{by} {key}: {refused:?}"
        );
    }
    let row = world.store.approval(tenant, approval.id).await.unwrap().unwrap();
    assert_eq!((row.asked_by.as_str(), row.asked_key.as_str(), row.decided_by, row.decided_key), ("1", "key:1", None, None));
    let DecisionOutcome::Decided(row) = decide("2", "key:2", ApprovalStatus::Approved, true).await else { panic!("not decided") };
    assert_eq!((row.decided_by.as_deref(), row.decided_key.as_deref()), (Some("2"), Some("key:2")));
    let late = decide("1", "key:1", ApprovalStatus::Approved, true).await;
    assert_eq!(late, DecisionOutcome::AlreadyDecided(row), "who comes too late learns the decision");
    let told = world.store.outbox(tenant, OutboxFilter::default(), Page::default()).await.unwrap();
    let bodies: Vec<&str> = told.iter().map(|row| row.body.as_str()).collect();
    assert!(matches!(bodies.as_slice(), [only] if only.contains("decided by 2")), "only the decision is told: {bodies:?}");

    let (_, _, approval) = awaiting_approval(&world).await;
    let own = Decision { by: "1".to_owned(), key: Some("key:1".to_owned()), ..world.decision(ApprovalStatus::Denied) };
    let denied = world.store.decide(tenant, approval.id, own).await.unwrap();
    assert!(matches!(denied, Some(DecisionOutcome::Decided(_))), "without the rule everybody decides: {denied:?}");
}

pub(crate) async fn an_expired_approval_cannot_be_decided<S: Store>(mut world: World<S>) {
    let (running, call, approval) = awaiting_approval(&world).await;
    assert_eq!(world.store.expire_approvals(world.now).await.unwrap(), 0);
    world.later(3_600_000);
    let late = world.store.decide(world.tenant, approval.id, world.decision(ApprovalStatus::Approved)).await.unwrap();
    assert!(
        matches!(late, Some(DecisionOutcome::AlreadyDecided(row)) if row.status == ApprovalStatus::Pending),
        "expired, even before the expiry is stored"
    );
    assert_eq!(world.store.expire_approvals(world.now).await.unwrap(), 1);
    assert_eq!(world.store.approval(world.tenant, approval.id).await.unwrap().unwrap().status, ApprovalStatus::Expired);
    assert_eq!(world.store.unfinished_turns(OWNER.to_owned()).await.unwrap().len(), 1, "its turn can be resumed");
    let fence = world.store.take_over(world.tenant, running.turn, OWNER.to_owned(), world.now).await.unwrap();
    let mut write = world.to_write(&Running { fence, ..running });
    write.withdrawn = vec![call.id];
    world.store.write(write).await.unwrap();
    assert_eq!(world.store.approval(world.tenant, approval.id).await.unwrap().unwrap().status, ApprovalStatus::Expired, "a decision stays");
    assert_eq!(world.store.decide(world.tenant, world.id(), world.decision(ApprovalStatus::Denied)).await.unwrap(), None);
}

pub(crate) async fn approvals_are_listed_by_role_status_and_turn<S: Store>(world: World<S>) {
    let (first, _, _) = awaiting_approval(&world).await;
    let (_, _, approval) = awaiting_approval(&world).await;
    world.store.decide(world.tenant, approval.id, world.decision(ApprovalStatus::Denied)).await.unwrap();
    let count = async |status, turn_id, roles: Option<&[&str]>| {
        let roles = roles.map(|roles| roles.iter().map(ToString::to_string).collect());
        world.store.approvals(world.tenant, ApprovalFilter { status, turn_id, roles }, Page::default()).await.unwrap().len()
    };
    assert_eq!(count(None, None, None).await, 2);
    assert_eq!(count(Some(ApprovalStatus::Pending), None, None).await, 1);
    assert_eq!(count(None, Some(first.turn), None).await, 1);
    assert_eq!(count(None, None, Some(&["guest", "admin"])).await, 2);
    assert_eq!(count(None, None, Some(&["guest"])).await, 0);
    assert_eq!(count(None, None, Some(&[])).await, 0);
    let prefix = approval.id.to_string()[..20].to_owned();
    assert!(world.store.ids_like(world.tenant, IdOf::Approval, prefix.clone(), 2).await.unwrap().contains(&approval.id));
    assert!(world.store.ids_like(world.id(), IdOf::Approval, prefix, 2).await.unwrap().is_empty(), "another tenant reads nothing");
    assert_eq!(world.store.approval(world.id(), approval.id).await.unwrap(), None);
}
