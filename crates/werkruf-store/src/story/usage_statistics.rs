//! Sums of usage rows, before and after their days are rolled up and their rows deleted.

use jiff::{SignedDuration, Timestamp};

use super::{Store, World};
use crate::{NewUsage, Sweep, Sweepable, UsageGroup, UsageOwner, UsageQuery, UsageSum};

/// A request of a user, of a tool where `tool` is not empty.
async fn put<S: Store>(world: &World<S>, user: &str, model: &str, tool: &str, at: Timestamp) -> NewUsage {
    let (priced, estimated) = (model != "unpriced", model == "unpriced");
    let usage = NewUsage {
        model: model.to_owned(),
        request_id: Some(format!("req_{user}_{model}")),
        started_at: at.checked_sub(SignedDuration::from_millis(250)).ok(),
        took_ms: Some(250),
        tool_name: Some(tool.to_owned()).filter(|tool| !tool.is_empty()),
        tokens_cached: 4,
        tokens_reasoning: 2,
        estimated,
        cost_nano_usd: priced.then_some(7),
        ..world.usage()
    };
    let owner = UsageOwner { tenant_id: world.tenant, user_id: user.to_owned(), ..UsageOwner::default() };
    world.store.put_usage(owner, usage.clone(), at).await.unwrap();
    usage
}

async fn sums<S: Store>(world: &World<S>, group_by: UsageGroup, user: Option<&str>, from: &str, to: &str) -> Vec<UsageSum> {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    let query = UsageQuery { tenant_id: world.tenant, user_id: user.map(str::to_owned), group_by, from, to };
    world.store.usage_sums(query).await.unwrap()
}

/// Key, requests, tokens, cost, unpriced and estimated requests.
fn short(sums: &[UsageSum]) -> Vec<(&str, i64, i64, i64, i64, i64)> {
    let row = |sum: &UsageSum| (sum.calls, sum.tokens_total, sum.cost_nano_usd, sum.unpriced_calls, sum.estimated_calls);
    let of = |sum| {
        let (calls, tokens, cost, unpriced, estimated) = row(sum);
        (sum.key.as_deref().unwrap_or("-"), calls, tokens, cost, unpriced, estimated)
    };
    sums.iter().map(of).collect()
}

pub(crate) async fn sums_stay_when_days_are_rolled_up_and_rows_deleted<S: Store>(world: World<S>) {
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    put(&world, "1", "gpt-5", "", time("2026-02-28T23:59:59.999Z")).await;
    put(&world, "1", "gpt-5", "ask_gpt", time("2026-03-01T00:00:00Z")).await;
    put(&world, "2", "unpriced", "", time("2026-03-01T12:00:00Z")).await;
    put(&world, "2", "gpt-5", "", time("2026-03-02T09:00:00Z")).await;
    let last = put(&world, "", "gpt-5", "", time("2026-03-02T10:00:00Z")).await;
    let (from, to) = ("2026-02-01T00:00:00Z", "2026-04-01T00:00:00Z");
    let check = async |when: &str| {
        let found = sums(&world, UsageGroup::Day, None, from, to).await;
        let days = [("2026-02-28", 1, 15, 7, 0, 0), ("2026-03-01", 2, 30, 7, 1, 1), ("2026-03-02", 2, 30, 14, 0, 0)];
        assert_eq!(short(&found), days, "{when}");
        let total = UsageSum {
            key: None,
            calls: 5,
            tokens_prompt: 50,
            tokens_cached: 20,
            tokens_completion: 25,
            tokens_reasoning: 10,
            tokens_total: 75,
            cost_nano_usd: 28,
            unpriced_calls: 1,
            estimated_calls: 1,
        };
        assert_eq!(UsageSum::total(&found), total, "{when}");
        let found = sums(&world, UsageGroup::Month, None, from, to).await;
        assert_eq!(short(&found), [("2026-02", 1, 15, 7, 0, 0), ("2026-03", 4, 60, 21, 1, 1)], "{when}");
        let found = sums(&world, UsageGroup::Model, None, from, to).await;
        assert_eq!(short(&found), [("gpt-5", 4, 60, 28, 0, 0), ("unpriced", 1, 15, 0, 1, 1)], "{when}");
        let found = sums(&world, UsageGroup::Tool, None, from, to).await;
        assert_eq!(short(&found), [("-", 4, 60, 21, 1, 1), ("ask_gpt", 1, 15, 7, 0, 0)], "{when}");
        let found = sums(&world, UsageGroup::User, None, from, to).await;
        assert_eq!(short(&found), [("1", 2, 30, 14, 0, 0), ("2", 2, 30, 7, 1, 1), ("-", 1, 15, 7, 0, 0)], "{when}");
        let found = sums(&world, UsageGroup::Day, Some("1"), "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z").await;
        assert_eq!(short(&found), [("2026-03-01", 1, 15, 7, 0, 0)], "{when}: the end is exclusive");
    };
    check("from usage rows").await;
    let found = sums(&world, UsageGroup::Day, None, "2026-03-01T06:00:00Z", "2026-03-02T09:30:00Z").await;
    assert_eq!(short(&found), [("2026-03-01", 1, 15, 0, 1, 1), ("2026-03-02", 1, 15, 7, 0, 0)], "parts of days");

    // Some rows of a day are deleted before the day is rolled up.
    let delete = async |before: &str| {
        let sweep = Sweep { rows: Sweepable::Usage, before: time(before), now: time(before), dry_run: false };
        world.store.sweep(sweep, None).await.unwrap().rows
    };
    assert_eq!(delete("2026-03-01T06:00:00Z").await, 2);
    check("after rows of open days were deleted").await;
    let roll_up = |now: &str| world.store.roll_up_usage(time(now));
    assert_eq!(roll_up("2026-03-02T05:59:59Z").await.unwrap(), 0, "the first of March is not settled yet");
    let (one, other) = tokio::join!(roll_up("2026-03-02T06:00:00Z"), roll_up("2026-03-02T06:00:00Z"));
    assert!(one.unwrap() + other.unwrap() >= 1, "two runs at once, as after a start, count a day once");
    assert_eq!(roll_up("2026-03-02T06:00:00Z").await.unwrap(), 0);
    check("after a day was rolled up").await;
    let found = sums(&world, UsageGroup::Day, None, "2026-03-01T06:00:00Z", "2026-03-02T09:30:00Z").await;
    assert_eq!(short(&found), [("2026-03-01", 1, 15, 0, 1, 1), ("2026-03-02", 1, 15, 7, 0, 0)], "parts of days, still from rows");
    let requests = world.store.usage_requests(world.tenant, time(from), time(to), None, 10).await.unwrap();
    assert_eq!(
        requests.iter().map(|request| request.request_id.as_deref().unwrap()).collect::<Vec<_>>(),
        ["req_2_unpriced", "req_2_gpt-5", "req__gpt-5"]
    );
    assert_eq!((requests[2].id, requests[2].at, requests[2].took_ms), (last.id, last.started_at.unwrap(), Some(250)));
    let next = world.store.usage_requests(world.tenant, time(from), time(to), Some(requests[0].id), 1).await.unwrap();
    assert_eq!(next, requests[1..2]);
    assert_eq!(delete("2026-03-10T00:00:00Z").await, 3);
    check("after all rows were deleted").await;
    assert_eq!(roll_up("2026-03-10T00:00:00Z").await.unwrap(), 0, "no rows are left to roll up");
}
