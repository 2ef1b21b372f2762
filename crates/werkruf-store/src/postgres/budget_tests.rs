//! Budgets with several processes on one database, and with answers that are lost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use futures_util::future::{join, join_all};
use werkruf_contract::{Clock, TurnStatus};

use super::failure_tests::{Process, behind_proxy, cut};
use super::proxy::Cut;
use super::{PostgresOptions, PostgresStore};
use crate::story::{Running, Tamper, World, assert_sound, to};
use crate::testbed::fresh_database;
use crate::{
    Author, Budget, BudgetPeriod, BudgetScope, BudgetStatistics, BudgetUnit, Budgets, ManageBudgets, NewUsage, OpenTurn, Opened, Turns,
    UsageRows,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_does_not_reserve_or_count_twice() {
    for at in [Cut::Before, Cut::After] {
        let (world, proxy) = behind_proxy(2).await;
        let world = world.at_noon().await;
        let draft = Budget {
            id: world.id(),
            tenant_id: world.tenant,
            scope: BudgetScope::Tenant,
            subject: None,
            period: BudgetPeriod::Day,
            unit: BudgetUnit::Tokens,
            limit: 50,
            configured: false,
            created_at: world.now,
        };
        assert!(cut(&proxy, at, world.store.create_budget(draft.clone(), Author::operator())).await, "{at:?}");
        let first = world.reservation(&[world.worst(&draft, 20)]);
        let open = world.within(world.new_conversation(), &first).await;
        let turn = open.turn_id;
        let Opened::Stored { fence: Some(fence), .. } = cut(&proxy, at, world.store.open_turn(open)).await else { panic!("{at:?}") };
        let running = Running { conversation: fence.stream_id, fence, turn };
        assert_eq!(world.uses().await, [(String::new(), 0, 20)], "{at:?}");

        let second = world.reservation(&[world.worst(&draft, 30)]);
        let mut write = world.to_write(&running);
        (write.usage, write.reserve) = (vec![world.counted(&first)], Some(second.clone()));
        assert_eq!(cut(&proxy, at, world.store.write(write)).await.over_budget, None, "{at:?}");
        assert_eq!(world.uses().await, [(String::new(), 15, 30)], "{at:?}");

        let third = world.reservation(&[world.worst(&draft, 40)]);
        let mut write = world.to_write(&running);
        (write.usage, write.reserve) = (vec![world.counted(&second)], Some(third.clone()));
        let over = cut(&proxy, at, world.store.write(write)).await.over_budget.unwrap();
        assert_eq!((over.used, over.reserved, over.amount), (30, 0, 40), "{at:?}");

        let estimate = NewUsage { tokens_total: 5, estimated: true, reservation: None, ..world.counted(&third) };
        let small = crate::NewReservation { claims: vec![world.worst(&draft, 10)], ..third };
        let reserved = cut(&proxy, at, world.store.reserve(world.owner("1"), small.clone(), Some(estimate.clone()), world.now)).await;
        assert_eq!(reserved, None, "{at:?}");
        assert_eq!(world.uses().await, [(String::new(), 35, 5)], "{at:?}");
        let known = NewUsage { tokens_total: 8, estimated: false, reservation: Some(small.id), ..estimate };
        cut(&proxy, at, world.store.put_usage(world.owner("1"), known.clone(), world.now)).await;
        assert_eq!(world.uses().await, [(String::new(), 38, 0)], "{at:?}");
        cut(&proxy, at, world.store.delete_usage(world.tenant, Some(known.id), Some(small.id))).await;
        assert_eq!(world.uses().await, [(String::new(), 30, 0)], "{at:?}");
        assert_sound(&world).await;
        assert!(cut(&proxy, at, world.store.delete_budget(world.tenant, draft.id, Author::operator())).await, "{at:?}");
    }
}

/// What all processes of the test share.
struct Shared {
    budgets: Vec<Budget>,
    /// One that is made and deleted all the time.
    passing: Mutex<Budget>,
    version: AtomicI64,
    done: AtomicBool,
    admitted: AtomicU64,
    refused: AtomicU64,
}

/// One request after another: through turns and outside them, settled, canceled, or lost with its process.
async fn client(world: Process, shared: &Shared, number: usize) {
    for round in 0..20 {
        let kind = number + round;
        let passing = shared.passing.lock().unwrap().clone();
        let amount = |budget: &Budget| if budget.unit == BudgetUnit::Tokens { 20 } else { 1 };
        let mut claims: Vec<_> = shared.budgets.iter().chain([&passing]).map(|budget| world.worst(budget, amount(budget))).collect();
        // The order of claims and counters is not left to the caller.
        let turn_round = kind % claims.len();
        claims.rotate_left(turn_round);
        let mut reservation = world.reservation(&claims);
        let lost = kind.is_multiple_of(7);
        if lost {
            reservation.expires_at = world.now;
        }
        let admitted = match kind % 3 {
            0 => {
                let open = OpenTurn {
                    budgets_version: Some(shared.version.load(Ordering::SeqCst)),
                    reservation: Some(reservation.clone()),
                    ..world.opening(world.new_conversation(), "hello")
                };
                let turn = open.turn_id;
                match world.store.open_turn(open).await.unwrap() {
                    Opened::Stored { fence: Some(fence), .. } if !lost => {
                        let running = Running { conversation: fence.stream_id, fence, turn };
                        let mut write = world.to_write(&running);
                        (write.usage, write.turn) = (vec![world.counted(&reservation)], Some(to(TurnStatus::Completed)));
                        world.store.write(write).await.unwrap();
                        true
                    }
                    Opened::Stored { .. } => true,
                    Opened::OverBudget(_) => false,
                    Opened::StaleBudgets => continue,
                    other => panic!("{other:?}"),
                }
            }
            way => {
                let estimate = NewUsage { tokens_total: 3, estimated: true, reservation: None, ..world.counted(&reservation) };
                let row = (way == 1).then(|| estimate.clone());
                let refused = world.store.reserve(world.owner("1"), reservation.clone(), row.clone(), world.now).await.unwrap();
                if refused.is_none() && !lost {
                    if kind.is_multiple_of(5) {
                        world.store.delete_usage(world.tenant, row.map(|row| row.id), Some(reservation.id)).await.unwrap();
                    } else {
                        let known = NewUsage { id: estimate.id, ..world.counted(&reservation) };
                        world.store.put_usage(world.owner("1"), known, world.now).await.unwrap();
                    }
                }
                refused.is_none()
            }
        };
        if admitted { &shared.admitted } else { &shared.refused }.fetch_add(1, Ordering::Relaxed);
    }
}

/// Looks all the time whether a budget is exceeded, and releases what is expired.
async fn observer(world: Process, shared: &Shared) {
    while !shared.done.load(Ordering::SeqCst) {
        for one in world.store.budget_uses(world.tenant, world.now).await.unwrap() {
            if let Some(budget) = shared.budgets.iter().find(|budget| budget.id == one.counter.budget_id) {
                assert!(one.used >= 0 && one.reserved >= 0 && one.used + one.reserved <= budget.limit, "{one:?} of {budget:?}");
            }
        }
        world.store.release_expired(world.now).await.unwrap();
    }
}

/// Deletes a budget that requests are using, and makes it again.
async fn changer(world: Process, shared: &Shared) {
    while !shared.done.load(Ordering::SeqCst) {
        let passing = shared.passing.lock().unwrap().clone();
        assert!(world.store.delete_budget(world.tenant, passing.id, Author::operator()).await.unwrap());
        let next = Budget { id: world.id(), ..passing };
        assert!(world.store.create_budget(next.clone(), Author::operator()).await.unwrap());
        shared.version.store(world.version().await, Ordering::SeqCst);
        *shared.passing.lock().unwrap() = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_never_exceed_a_budget_and_never_deadlock() {
    let (url, clock) = (fresh_database(), Clock::system(0));
    let open = async || {
        let options = PostgresOptions { pool_size: 6, poll_only: true, ..PostgresOptions::new(url.clone()) };
        PostgresStore::open(options, &clock, crate::story::MODULES).await.unwrap()
    };
    let first = World::new(open().await, clock.clone()).at_noon().await;
    let processes = [first.clone(), World { store: open().await, ..first.clone() }, World { store: open().await, ..first.clone() }];
    let budgets = vec![
        first.budget(BudgetScope::Assistant, None, BudgetPeriod::Day, BudgetUnit::Tokens, 3500).await,
        first.budget(BudgetScope::User, None, BudgetPeriod::Month, BudgetUnit::ModelCalls, 200).await,
        first.calls_per_day(150).await,
        first.budget(BudgetScope::Tenant, None, BudgetPeriod::Month, BudgetUnit::Tokens, 5000).await,
    ];
    let passing = Mutex::new(first.budget(BudgetScope::User, Some("1"), BudgetPeriod::Day, BudgetUnit::ModelCalls, 1_000_000).await);
    let version = AtomicI64::new(first.version().await);
    let (done, admitted, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let shared = Shared { budgets, passing, version, done, admitted, refused };
    let clients = async {
        join_all((0..18).map(|number| client(processes[number % 3].clone(), &shared, number))).await;
        shared.done.store(true, Ordering::SeqCst);
    };
    let others = join(observer(processes[1].clone(), &shared), changer(processes[2].clone(), &shared));
    join(clients, others).await;

    // Turns whose process was lost still reserve; their reservations are the expired ones.
    first.store.release_expired(first.now).await.unwrap();
    let uses = first.store.budget_uses(first.tenant, first.now).await.unwrap();
    assert!(uses.iter().all(|one| one.reserved == 0), "{uses:?}");
    assert_eq!(first.store.texts("SELECT 'left' FROM budget_reservations").await, Vec::<String>::new());
    // Some rows were written for a budget that was gone by then. They count in its successor once every process knows that one.
    let later = first.now.checked_add(jiff::SignedDuration::from_mins(3)).unwrap();
    join_all(processes.iter().map(|process| process.store.release_expired(later))).await;
    assert_sound(&first).await;
    let counted = (shared.admitted.load(Ordering::Relaxed), shared.refused.load(Ordering::Relaxed));
    assert!(counted.0 > 100 && counted.1 > 20, "admitted and refused: {counted:?}");
    let deadlocks = first.store.texts("SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()").await;
    assert_eq!(deadlocks, ["0"]);
}
