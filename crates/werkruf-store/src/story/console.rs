//! Sign-in to the console, and what its pages are told.

use jiff::SignedDuration;
use werkruf_contract::Uuid;

use super::approvals::awaiting_approval;
use super::{Store, World};
use crate::console::MAX_SESSIONS;
use crate::{ConsoleSession, HintKind, KeyDigest, LinkUse, NewConsoleSession, SessionHolder};

fn session<S: Store>(world: &World<S>, token: &str, link: bool, holder: SessionHolder) -> NewConsoleSession {
    let expires_at = world.now.checked_add(SignedDuration::from_mins(15)).unwrap();
    NewConsoleSession { id: world.id(), digest: KeyDigest::of(token), link, holder, created_at: world.now, expires_at }
}

pub(crate) async fn a_link_becomes_one_session<S: Store>(mut world: World<S>) {
    let operator = SessionHolder::Operator(KeyDigest::of("admin key"));
    let key = SessionHolder::Key { tenant_id: world.tenant, id: world.id() };
    let store = world.store.clone();
    let link = session(&world, "link", true, operator.clone());
    store.put_console_session(link.clone()).await.unwrap();
    store.put_console_session(session(&world, "expired", true, key.clone())).await.unwrap();
    let own = session(&world, "own", false, key.clone());
    store.put_console_session(own.clone()).await.unwrap();
    let look = async |token: &str, now| store.console_session(KeyDigest::of(token), now).await.unwrap();
    assert_eq!(look("link", world.now).await, None, "a link is no session");
    let found = look("own", world.now).await.unwrap();
    assert_eq!(found, ConsoleSession { id: own.id, holder: key, expires_at: found.expires_at });
    assert_eq!(found.expires_at.as_millisecond(), own.expires_at.as_millisecond());
    assert_eq!(look("own", own.expires_at).await, None, "it has expired");

    let until = world.now.checked_add(SignedDuration::from_hours(12)).unwrap();
    let to = |token: &str, now| LinkUse { digest: KeyDigest::of(token), now, expires_at: until };
    let (one, other) = tokio::join!(
        store.use_console_link(KeyDigest::of("link"), to("one", world.now)),
        store.use_console_link(KeyDigest::of("link"), to("other", world.now))
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!((one.is_some(), other.is_some()), (other.is_none(), one.is_none()), "it works once");
    let (token, made) = if let Some(made) = one { ("one", made) } else { ("other", other.unwrap()) };
    assert_eq!(made.holder, operator);
    assert_eq!(look(token, world.now).await, Some(made.clone()));
    assert_eq!(store.use_console_link(KeyDigest::of("own"), to("x", world.now)).await.unwrap(), None, "a session is no link");

    let now = world.later(15 * 60_000);
    assert_eq!(store.use_console_link(KeyDigest::of("expired"), to("y", now)).await.unwrap(), None);
    let ids = vec![made.id, own.id, Uuid::nil()];
    assert_eq!(store.console_sessions_by_id(ids.clone()).await.unwrap().len(), 2);
    store.put_console_session(session(&world, "new", false, operator)).await.unwrap();
    assert_eq!(store.console_sessions_by_id(ids).await.unwrap(), [made.id], "expired rows are deleted");
    assert!(store.delete_console_session(made.id).await.unwrap());
    assert!(!store.delete_console_session(made.id).await.unwrap());
    assert_eq!(look(token, now).await, None);
}

pub(crate) async fn a_holder_has_a_bounded_number_of_sessions<S: Store>(mut world: World<S>) {
    let of = |id| SessionHolder::Key { tenant_id: world.tenant, id };
    let (one, other) = (of(world.id()), of(world.id()));
    let mut ids = Vec::new();
    for number in 0..MAX_SESSIONS + 2 {
        world.later(1);
        let new = session(&world, &number.to_string(), false, one.clone());
        ids.push(new.id);
        world.store.put_console_session(new).await.unwrap();
        if number == 0 {
            let foreign = session(&world, "foreign", false, other.clone());
            ids.push(foreign.id);
            world.store.put_console_session(foreign).await.unwrap();
        }
    }
    let mut left = world.store.console_sessions_by_id(ids.clone()).await.unwrap();
    left.sort_unstable();
    ids.remove(2);
    ids.remove(0);
    ids.sort_unstable();
    assert_eq!(left, ids, "the two oldest of the holder are gone, and nothing of others");
}

pub(crate) async fn what_moved_is_found_by_id_state_and_name<S: Store>(world: World<S>) {
    let (waiting, call, approval) = awaiting_approval(&world).await;
    let ended = world.talk().await;
    world.complete(&ended).await;
    let read = async |since, named| {
        let mut rows = world.store.hints(world.tenant, since, named).await.unwrap();
        rows.sort_by_key(|row| (row.kind, row.id));
        let short = |row: &crate::HintRow| (row.kind, row.id, row.status.clone(), row.user_id.clone(), row.approver_roles.len(), row.open);
        rows.iter().map(short).collect::<Vec<_>>()
    };
    let user = || Some("1".to_owned());
    let open = [
        (HintKind::Call, call.id, "queued".to_owned(), user(), 0, true),
        (HintKind::Turn, waiting.turn, "awaiting_approval".to_owned(), user(), 0, true),
        (HintKind::Approval, approval.id, "pending".to_owned(), user(), 2, true),
    ];
    let over = (HintKind::Turn, ended.turn, "completed".to_owned(), user(), 0, false);
    assert_eq!(read(world.id(), Vec::new()).await, open, "nothing is newer, so only what is open");
    let [call, turn, approval] = open.clone();
    let all = [call, turn, over, approval];
    assert_eq!(read(waiting.turn, Vec::new()).await, all);
    assert_eq!(read(world.id(), vec![ended.turn]).await, all);
    assert_eq!(world.store.hints(world.id(), Uuid::nil(), vec![ended.turn]).await.unwrap(), [], "another tenant");

    let found = world.store.turn_requests(world.tenant, ended.turn, Uuid::max()).await.unwrap();
    let short: Vec<_> = found.iter().map(|row| (row.call_id, row.tokens_total, row.request.model.as_str())).collect();
    assert_eq!(short, [(None, 15, "gpt-5")]);
    assert_eq!(world.store.turn_requests(world.tenant, ended.turn, ended.turn).await.unwrap(), []);
}
