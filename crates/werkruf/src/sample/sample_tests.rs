//! The sample data at different times of day, in the time zones of its users.

use jiff::civil::Weekday;
use werkruf_contract::{Clock, Scope};
use werkruf_store::SqliteStore;
use werkruf_workspace::{ArticleQuery, DateSpan, RowScope, SCHEMA, Target, WorkQuery, Workspace, WorktimeQuery};

use super::*;

/// Midday, shortly after midnight in either zone, and a day on which the clocks change.
const STARTS: [&str; 6] = [
    "2026-11-15T12:00:00Z",
    "2026-11-14T23:00:20Z",
    "2026-11-15T05:03:00Z",
    "2026-03-29T01:30:00Z",
    "2026-01-01T00:10:00Z",
    "2026-11-16T04:59:59Z",
];

#[test]
fn all_users_have_their_time_zones() {
    let batch = people().unwrap();
    assert_eq!(batch.users.iter().map(|user| user.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(DEMO_ID.to_string(), "00000000-0000-7000-8000-000000000001");
    let zone = |user| zone_of(&batch, user).unwrap().iana_name().unwrap().to_owned();
    assert_eq!((zone(2), zone(6)), ("Europe/Madrid".to_owned(), "America/New_York".to_owned()));
}

#[test]
fn the_demo_user_has_its_own_role_and_branch() {
    let batch = demo_user_alone().unwrap();
    assert_eq!((batch.users.len(), batch.roles.len(), batch.branches.len()), (1, 1, 1));
}

#[tokio::test]
async fn there_is_work_today_at_every_first_start() {
    for start in STARTS {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("w.db"), &Clock::system(0), &[SCHEMA]).unwrap();
        let now: Timestamp = start.parse().unwrap();
        werkruf_store::Installation::ensure_tenant(store.as_ref(), DEMO_ID, DEMO.to_owned(), now).await.unwrap();
        write(store.as_ref(), now).await.unwrap();
        write(store.as_ref(), now).await.unwrap();
        let people = people().unwrap();
        for user in [1, 2, 3, 4, 6] {
            let local_now = now.to_zoned(zone_of(&people, user).unwrap());
            let own = RowScope { caller: user, caller_branch: None, grant: Scope::Own, target: Target::Own };
            let today = DateSpan { from: Some(local_now.date()), to: Some(local_now.date()) };
            let query = WorkQuery { row_scope: own.clone(), status: Some("open".to_owned()), due: today, limit: 50 };
            assert!(!store.requests(DEMO_ID, query.clone()).await.unwrap().rows.is_empty(), "{start}: {user} has no request");
            assert!(!store.tasks(DEMO_ID, query).await.unwrap().rows.is_empty(), "{start}: {user} has no task");
            let from = local_now.start_of_day().unwrap().timestamp();
            let to = local_now.tomorrow().unwrap().start_of_day().unwrap().timestamp();
            let worked = store.worktimes(DEMO_ID, WorktimeQuery { row_scope: own, from, to, limit: 50 }).await.unwrap().rows;
            assert_eq!(worked.len(), 1, "{start}: {user}");
            assert!(worked[0].started_at >= from && worked[0].ended_at.unwrap_or(now) <= now, "{start}: {user} worked in the future");
            assert_eq!(worked[0].ended_at.is_none(), user == 3, "{start}: only Clara is still working");
        }
        let guest = RowScope { caller: 5, caller_branch: Some(2), grant: Scope::Own, target: Target::Own };
        let query = WorkQuery { row_scope: guest, status: None, due: DateSpan::default(), limit: 50 };
        assert!(store.requests(DEMO_ID, query).await.unwrap().rows.is_empty(), "Eva is a guest");
    }
}

#[tokio::test]
async fn each_language_finds_its_articles() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("w.db"), &Clock::system(0), &[SCHEMA]).unwrap();
    let now: Timestamp = STARTS[0].parse().unwrap();
    werkruf_store::Installation::ensure_tenant(store.as_ref(), DEMO_ID, DEMO.to_owned(), now).await.unwrap();
    write(store.as_ref(), now).await.unwrap();
    for (branch, search, expected) in [
        (1, "Notfällen", vec![1]),
        (1, "emergency", vec![2]),
        (1, "emergencia", vec![3]),
        (2, "wifi", vec![6]),
        (1, "holidays", vec![7]),
        (2, "holidays", vec![8, 7]),
    ] {
        let reach = RowScope { caller: 3, caller_branch: Some(branch), grant: Scope::Own, target: Target::Own };
        let query = ArticleQuery { row_scope: reach, search: Some(search.to_owned()), tags: Vec::new(), limit: 10 };
        let found = store.articles(DEMO_ID, query).await.unwrap();
        assert_eq!(found.rows.iter().map(|row| row.id).collect::<Vec<_>>(), expected, "{search} in {branch}");
    }
}

#[test]
fn a_week_begins_on_monday() {
    let sunday: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let friday = Due::Week(calendar::DayName::Friday).date(&sunday.to_zoned(TimeZone::UTC)).unwrap();
    assert_eq!((friday.to_string().as_str(), friday.weekday()), ("2026-11-13", Weekday::Friday));
}
