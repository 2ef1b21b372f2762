//! Changes of budgets, many requests at once, and sequences of changes that nobody thought of.

use jiff::SignedDuration;
use serde_json::json;
use tokio::task::JoinSet;
use werkruf_contract::TurnStatus;

use super::audit::Tamper;
use super::budgets::{assert_sound, own};
use super::world::to;
use super::{Running, World};
use crate::{Author, Budget, BudgetPeriod, BudgetScope, BudgetUnit, NewReservation, NewUsage, OpenTurn, Opened, UsageOwner, verify_chain};

pub(crate) async fn a_deleted_budget_is_not_counted_any_more<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let (budget, before) = (world.calls_per_day(1).await, world.version().await);
    let reservation = world.reservation(&[world.worst(&budget, 1)]);
    let running = world.begin(world.within(world.new_conversation(), &reservation).await).await;
    assert!(!world.store.create_budget(budget.clone(), Author::operator()).await.unwrap(), "the id is taken");
    let same = Budget { id: world.id(), limit: 5, ..budget.clone() };
    assert!(!world.store.create_budget(same, Author::operator()).await.unwrap(), "there is one for the same requests");
    assert_eq!(world.version().await, before);
    assert!(!world.store.delete_budget(world.id(), budget.id, Author::operator()).await.unwrap(), "another tenant");
    assert!(world.store.delete_budget(world.tenant, budget.id, Author::operator()).await.unwrap());
    assert!(!world.store.delete_budget(world.tenant, budget.id, Author::operator()).await.unwrap());
    assert_eq!((world.version().await, world.uses().await), (before + 1, Vec::new()));
    for table in ["budgets", "budget_periods", "budget_reservations"] {
        assert_eq!(world.store.texts(&format!("SELECT 'left' FROM {table}")).await, Vec::<String>::new(), "{table}");
    }
    // What was admitted under it goes on: it counts nowhere, and nothing is refused.
    let next = world.reservation(&[world.worst(&budget, 1)]);
    let mut write = world.to_write(&running);
    (write.usage, write.reserve, write.turn) = (vec![world.counted(&reservation)], Some(next), Some(to(TurnStatus::Completed)));
    assert_eq!(world.store.write(write).await.unwrap().over_budget, None);
    assert_eq!(world.uses().await, []);
    let stale = crate::OpenTurn { budgets_version: Some(before), ..world.opening(world.new_conversation(), "hello") };
    assert_eq!(world.store.open_turn(stale).await.unwrap(), Opened::StaleBudgets);
    assert_sound(&world).await;
}

pub(crate) async fn budgets_of_the_configuration_keep_their_counters<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let make = |scope, subject: Option<&str>, limit| Budget {
        id: world.id(),
        tenant_id: world.tenant,
        scope,
        subject: subject.map(str::to_owned),
        period: BudgetPeriod::Month,
        unit: BudgetUnit::ModelCalls,
        limit,
        configured: true,
        created_at: world.now,
    };
    let put = async |budgets: Vec<Budget>| {
        world.store.put_configured_budgets(budgets, world.now).await.unwrap();
        let all = world.store.all_budgets().await.unwrap().into_iter().find(|of| of.tenant_id == world.tenant).unwrap_or_default();
        let mut limits: Vec<_> = all.budgets.iter().map(|budget| (budget.scope, budget.limit, budget.configured)).collect();
        limits.sort_unstable();
        (all.version, limits)
    };
    let by_hand = world.budget(BudgetScope::User, Some("7"), BudgetPeriod::Day, BudgetUnit::Tokens, 3).await;
    let (tenant, user) = (BudgetScope::Tenant, BudgetScope::User);
    assert_eq!(
        put(vec![make(tenant, None, 5), make(user, None, 2)]).await,
        (2, vec![(tenant, 5, true), (user, 2, true), (user, 3, false)])
    );
    let stored = world.store.all_budgets().await.unwrap().remove(0).budgets;
    let of_tenant = stored.iter().find(|budget| budget.scope == tenant).unwrap();
    let reservation = world.reservation(&[world.worst(of_tenant, 1)]);
    assert_eq!(world.store.reserve(world.owner("1"), reservation.clone(), None, world.now).await.unwrap(), None);
    world.store.put_usage(world.owner("1"), NewUsage { reservation: None, ..world.counted(&reservation) }, world.now).await.unwrap();

    // The same again changes nothing, another limit keeps the counter, and one that is gone is deleted.
    assert_eq!(put(vec![make(tenant, None, 5), make(user, None, 2)]).await.0, 2);
    assert_eq!(put(vec![make(tenant, None, 6)]).await, (3, vec![(tenant, 6, true), (user, 3, false)]));
    let uses = world.store.budget_uses(world.tenant, world.now).await.unwrap();
    let counter = uses.iter().find(|one| one.counter.budget_id == of_tenant.id).unwrap();
    assert_eq!((counter.used, counter.reserved), (1, 1));
    // A budget that somebody made becomes one of the configuration, and goes with it.
    let same = Budget { limit: 4, ..by_hand.clone() };
    assert_eq!(put(vec![Budget { id: world.id(), ..same }]).await, (4, vec![(user, 4, true)]));
    assert_eq!(put(Vec::new()).await, (5, Vec::new()));
    let actions = world.store.audit_entries(world.tenant, 0, 100).await.unwrap().into_iter().map(|entry| entry.action);
    let actions: Vec<_> = actions.map(|action| action.trim_start_matches("budget.").to_owned()).collect();
    assert_eq!(actions.join(" "), "create create create delete change delete change delete");
    assert!(
        world.store.put_configured_budgets(vec![Budget { tenant_id: world.id(), ..by_hand }], world.now).await.is_err(),
        "no such tenant"
    );
}

pub(crate) async fn a_budget_of_many_lists_those_that_used_most<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    for user in 1..=101 {
        let usage = NewUsage { tokens_total: user, ..world.usage() };
        world.store.put_usage(world.owner(&user.to_string()), usage, world.now).await.unwrap();
    }
    let even = world.budget(BudgetScope::User, None, BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let odd = world.budget(BudgetScope::User, None, BudgetPeriod::Month, BudgetUnit::Tokens, 101).await;
    let nothing = world.budget(BudgetScope::User, None, BudgetPeriod::Day, BudgetUnit::NanoUsd, 0).await;
    let listed = world.store.budget_uses(world.tenant, world.now).await.unwrap();
    let half = world.store.half_used_budgets(world.now).await.unwrap();
    for (budget, first) in [(&even, 50), (&odd, 51), (&nothing, 102)] {
        let mut used: Vec<i64> = listed.iter().filter(|one| one.counter.budget_id == budget.id).map(|one| one.used).collect();
        used.sort_unstable();
        assert_eq!(used.len(), 100, "{budget:?}");
        assert!(budget.limit == 0 || used == (2..=101).collect::<Vec<_>>(), "{used:?}");
        let mut used: Vec<i64> = half.iter().filter(|(of, _)| of == budget).map(|(_, one)| one.used).collect();
        used.sort_unstable();
        assert_eq!(used, (first..=101).collect::<Vec<_>>(), "the half of {} is rounded up", budget.limit);
    }
}

pub(crate) async fn budgets_of_tenants_are_separate<S: Tamper>(world: World<S>) {
    let here = world.at_noon().await;
    let there = World { tenant: here.id(), ..here.clone() }.at_noon().await;
    let (ours, theirs) = (here.calls_per_day(1).await, there.calls_per_day(1).await);
    for (world, budget) in [(&here, &ours), (&there, &theirs)] {
        let reservation = world.reservation(&[world.worst(budget, 1)]);
        world.begin(world.within(world.new_conversation(), &reservation).await).await;
        assert_eq!(world.uses().await, own(0, 1));
    }
    // A claim on the budget of another tenant reaches nothing there.
    let foreign = here.reservation(&[here.worst(&theirs, 1)]);
    here.store.reserve(here.owner("1"), foreign, None, here.now).await.unwrap();
    let row = NewUsage { counted_in: vec![here.worst(&theirs, 1).counter], ..here.usage() };
    here.store.put_usage(here.owner("1"), row.clone(), here.now).await.unwrap();
    here.store.delete_usage(there.tenant, Some(row.id), Some(here.id())).await.unwrap();
    assert_eq!(there.uses().await, own(0, 1));
    assert_eq!(there.version().await, 1);
}

pub(crate) async fn acts_on_budgets_are_recorded<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let budget = world.budget(BudgetScope::User, Some("7"), BudgetPeriod::Day, BudgetUnit::Tokens, 3).await;
    assert!(world.store.delete_budget(world.tenant, budget.id, Author::operator()).await.unwrap());
    let entries = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
    let value = json!({"scope": "user", "subject": "7", "period": "day", "unit": "tokens", "limit": 3, "configured": false});
    let found: Vec<_> = entries
        .iter()
        .map(|entry| {
            let parsed = |text: &Option<String>| text.as_deref().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
            (entry.action.as_str(), entry.subject.clone(), entry.person.as_deref(), parsed(&entry.before), parsed(&entry.after))
        })
        .collect();
    let id = budget.id.to_string();
    assert_eq!(
        found,
        [("budget.create", id.clone(), Some("7"), None, Some(value.clone())), ("budget.delete", id, Some("7"), Some(value), None)]
    );
    assert_eq!(verify_chain(world.store.as_ref(), world.tenant).await.unwrap().found, None);
}

pub(crate) async fn a_new_budget_counts_rows_of_processes_that_did_not_know_it<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let tenant = world.calls_per_day(5).await;
    let each = world.budget(BudgetScope::User, None, BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let held = world.reservation(&[world.worst(&tenant, 1), world.worst(&each, 20)]);
    assert_eq!(world.store.reserve(world.owner("1"), held, None, world.now).await.unwrap(), None);
    world.later(1000);
    for user in ["1", "2"] {
        world.store.put_usage(world.owner(user), world.usage(), world.now).await.unwrap();
    }
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 0);
    assert_eq!(world.uses().await.len(), 2, "other processes may still not know it");
    world.later(120_000);
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 0);
    let row = |subject: &str, used, reserved| (subject.to_owned(), used, reserved);
    assert_eq!(world.uses().await, [row("", 2, 1), row("1", 15, 20), row("2", 15, 0)]);
    assert_sound(&world).await;
    // Once: afterwards every process counts.
    world.store.put_usage(world.owner("2"), world.usage(), world.now).await.unwrap();
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 0);
    assert_eq!(world.uses().await, [row("", 2, 1), row("1", 15, 20), row("2", 15, 0)]);
}

pub(crate) async fn old_counters_are_deleted<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let budget = world.calls_per_day(5).await;
    let later = world.now.checked_add(SignedDuration::from_hours(24 * 91)).unwrap();
    world.store.delete_expired(later).await.unwrap();
    assert_eq!(world.uses().await, own(0, 0));
    let held = world.reservation(&[world.worst(&budget, 1)]);
    assert_eq!(world.store.reserve(world.owner("1"), held.clone(), None, world.now).await.unwrap(), None);
    let later = later.checked_add(SignedDuration::from_hours(48)).unwrap();
    world.store.delete_expired(later).await.unwrap();
    assert_eq!(world.uses().await, own(0, 1), "a request is in progress");
    world.store.delete_usage(world.tenant, None, Some(held.id)).await.unwrap();
    world.store.delete_expired(later).await.unwrap();
    assert_eq!(world.uses().await, []);
    world.later(1);
}

pub(crate) async fn a_person_is_erased_with_their_budgets<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let own = world.budget(BudgetScope::User, Some("1"), BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let other = world.budget(BudgetScope::User, Some("2"), BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let each = world.budget(BudgetScope::User, None, BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let reservation = world.reservation(&[world.worst(&own, 20), world.worst(&each, 20)]);
    let running = world.begin(world.within(world.new_conversation(), &reservation).await).await;
    world.store.release(running.fence.clone()).await.unwrap();
    // The turn did not end: its reservation ends with the erasure.
    let erased = world.store.erase_person(world.tenant, "1".to_owned(), true, world.closer(), Author::operator(), world.now).await;
    assert_eq!(erased.unwrap().unwrap().turns, 1);
    let all = world.store.all_budgets().await.unwrap().remove(0);
    assert_eq!((all.version, all.budgets.iter().map(|budget| budget.id).collect::<Vec<_>>()), (4, vec![other.id, each.id]));
    assert_eq!(world.uses().await.last(), Some(&("1".to_owned(), 0, 0)), "the counter of a budget for each person stays");
    let entries = world.store.audit_entries(world.tenant, 0, 10).await.unwrap();
    assert_eq!(entries.iter().filter(|entry| entry.after.is_some() && entry.person.as_deref() == Some("1")).count(), 0);
    assert_sound(&world).await;
}

pub(crate) async fn many_requests_at_once_stay_within_the_budget<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let (budget, version) = (world.calls_per_day(10).await, world.version().await);
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let (world, reservation) = (world.clone(), world.reservation(&[world.worst(&budget, 1)]));
        tasks.spawn(async move {
            let open = crate::OpenTurn {
                budgets_version: Some(version),
                reservation: Some(reservation.clone()),
                ..world.opening(world.new_conversation(), "hello")
            };
            let turn = open.turn_id;
            match world.store.open_turn(open).await.unwrap() {
                Opened::Stored { fence: Some(fence), .. } => {
                    let running = Running { conversation: fence.stream_id, fence, turn };
                    let mut write = world.to_write(&running);
                    (write.usage, write.turn) = (vec![world.counted(&reservation)], Some(to(TurnStatus::Completed)));
                    world.store.write(write).await.unwrap();
                    true
                }
                Opened::OverBudget(over) => {
                    assert_eq!(over.used + over.reserved, 10, "refused while there is room");
                    false
                }
                other => panic!("{other:?}"),
            }
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().filter(|admitted| *admitted).count(), 10);
    assert_eq!(world.uses().await, own(10, 0));
    assert_sound(&world).await;
}

/// A request in progress, and its usage row if it has one.
struct InProgress {
    reservation: NewReservation,
    row: Option<NewUsage>,
    user: &'static str,
}

pub(crate) async fn counters_equal_the_rows_after_any_changes<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let clock = werkruf_contract::Clock::driven(|| jiff::Timestamp::UNIX_EPOCH, 7);
    let random = |below: usize| ((clock.chance() * below as f64) as usize).min(below - 1);
    let (mut open, mut budgets): (Vec<InProgress>, Vec<Budget>) = (Vec::new(), Vec::new());
    for step in 0..150 {
        world.later(3_600_000);
        match random(8) {
            0 if budgets.len() < 6 => {
                let scope = [BudgetScope::Tenant, BudgetScope::User, BudgetScope::Assistant][random(3)];
                let unit = [BudgetUnit::Tokens, BudgetUnit::NanoUsd, BudgetUnit::ModelCalls][random(3)];
                let budget = Budget {
                    id: world.id(),
                    tenant_id: world.tenant,
                    scope,
                    subject: (scope == BudgetScope::User && random(2) == 0).then(|| "1".to_owned()),
                    period: [BudgetPeriod::Day, BudgetPeriod::Month][random(2)],
                    unit,
                    limit: [30, 60_000_000_000, 8][unit as usize],
                    configured: false,
                    created_at: world.now,
                };
                if world.store.create_budget(budget.clone(), Author::operator()).await.unwrap() {
                    budgets.push(budget);
                }
            }
            1 if !budgets.is_empty() && random(4) == 0 => {
                let budget = budgets.remove(random(budgets.len()));
                assert!(world.store.delete_budget(world.tenant, budget.id, Author::operator()).await.unwrap());
            }
            2 if !open.is_empty() => {
                let InProgress { reservation, row, .. } = open.remove(random(open.len()));
                world.store.delete_usage(world.tenant, row.map(|row| row.id), Some(reservation.id)).await.unwrap();
            }
            3 => _ = world.store.release_expired(world.now).await.unwrap(),
            4 | 5 if !open.is_empty() => {
                let InProgress { reservation, row, user } = open.remove(random(open.len()));
                let mut known = NewUsage { tokens_total: 1 + random(20) as i64, ..world.counted(&reservation) };
                // Budgets that were made since count the row too.
                let day = BudgetPeriod::Day.start_at(world.now);
                known.counted_in = budgets.iter().filter_map(|budget| budget.counter(user, None, Some("default"), day)).collect();
                if let Some(row) = row {
                    known.id = row.id;
                }
                world.store.put_usage(world.owner(user), known, world.now).await.unwrap();
            }
            _ => {
                let (user, day) = (["1", "2"][random(2)], BudgetPeriod::Day.start_at(world.now));
                let counters = budgets.iter().filter_map(|budget| Some((budget, budget.counter(user, None, Some("default"), day)?)));
                let claims: Vec<_> = counters
                    .map(|(budget, counter)| crate::BudgetClaim {
                        limit: budget.limit,
                        amount: [20, 3_000_000_000, 1][budget.unit as usize],
                        counter,
                    })
                    .collect();
                let reservation = world.reservation(&claims);
                let row = (random(2) == 0).then(|| NewUsage {
                    tokens_total: 5,
                    estimated: true,
                    reservation: None,
                    ..world.counted(&reservation)
                });
                let owner = UsageOwner { turn_id: None, ..world.owner(user) };
                if world.store.reserve(owner, reservation.clone(), row.clone(), world.now).await.unwrap().is_none() {
                    open.push(InProgress { reservation, row, user });
                }
            }
        }
        let wrong = world.store.texts("SELECT CAST(subject AS TEXT) FROM budget_periods WHERE used < 0 OR reserved < 0").await;
        assert_eq!(wrong, Vec::<String>::new(), "step {step}");
        assert_sound(&world).await;
    }
}

pub(crate) async fn a_turn_reserves_again_under_its_id<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let budget = world.budget(BudgetScope::Tenant, None, BudgetPeriod::Day, BudgetUnit::Tokens, 1000).await;
    let turn_id = world.id();
    let claimed = |world: &World<S>, amount| NewReservation { id: turn_id, ..world.reservation(&[world.worst(&budget, amount)]) };
    let first = claimed(&world, 100);
    let running = world.begin(OpenTurn { turn_id, ..world.within(world.new_conversation(), &first).await }).await;
    // A tool of the turn reserves beside it.
    let of_tool = world.reservation(&[world.worst(&budget, 50)]);
    let owner = UsageOwner { turn_id: Some(turn_id), conversation_id: Some(running.conversation), ..world.owner("1") };
    assert_eq!(world.store.reserve(owner, of_tool.clone(), None, world.now).await.unwrap(), None);
    // The tool's request ends, and the next request of the turn claims more than is held: one write.
    let mut write = world.to_write(&running);
    (write.usage, write.release_reservations, write.reserve) = (vec![world.counted(&of_tool)], true, Some(claimed(&world, 300)));
    assert_eq!(world.store.write(write).await.unwrap().over_budget, None);
    assert_eq!(world.uses().await, own(15, 300));
    // A step that claims the same keeps its reservation, also past the time at which the first one was over.
    world.later(9 * 60 * 1000);
    let again = claimed(&world, 300);
    let mut write = world.to_write(&running);
    (write.usage, write.reserve) = (vec![world.counted(&again)], Some(again));
    assert_eq!(world.store.write(write).await.unwrap().over_budget, None);
    world.later(2 * 60 * 1000);
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 0);
    assert_eq!(world.uses().await, own(30, 300));
    world.later(9 * 60 * 1000);
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 1);
    assert_eq!(world.uses().await, own(30, 0));
}
