//! One run of a seed: a world, its processes and clients, a phase without faults, and the audit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use werkruf_contract::ApprovalStatus;

use crate::audit::Audit;
use crate::client::{Client, Known};
use crate::cluster::Cluster;
use crate::mutant::Mutant;
use crate::observations::Counts;
use crate::trace::short;
use crate::world::World;

/// Seconds without faults after which every turn must have ended: many times its deadline, a takeover, and the scan interval.
const CALM_SECONDS: u64 = 900;

pub struct Outcome {
    pub violations: Vec<String>,
    pub trace: String,
    pub digest: u64,
    pub counts: Counts,
}

/// Runs one seed. The same seed gives exactly the same outcome.
pub fn run_seed(seed: u64, mutant: Mutant) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(seed, mutant))
}

async fn run(seed: u64, mutant: Mutant) -> Outcome {
    let world = World::new(seed, mutant);
    let cluster = Cluster::new(&world);
    cluster.start().await;
    if world.faults.shared {
        for _ in 0..world.rng.below(3) {
            cluster.start().await;
        }
    }
    let known = Arc::new(Mutex::new(Known::default()));
    let clients = tokio_util::task::TaskTracker::new();
    let client = |name: String| Client { world: Arc::clone(&world), cluster: Arc::clone(&cluster), known: Arc::clone(&known), name };
    for number in 0..world.rng.between(1, 3) {
        clients.spawn(client(format!("client{number}")).run(world.rng.between(2, 6)));
    }
    let faults = clients.spawn(Arc::clone(&cluster).inject_faults());
    clients.close();
    while clients.len() > 1 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cluster.closing.raise();
    faults.await.unwrap();
    cluster.settle().await;
    world.note("world", format_args!("no more faults"));
    let all_ended = || world.tables.lock().unwrap().turns.values().all(|turn| turn.finished_at.is_some());
    if world.rng.permille(700) {
        // Otherwise nothing is decided any more, and pending approvals expire.
        world.tasks.spawn(client("approver".to_owned()).decide_all());
    }
    for _ in 0..CALM_SECONDS {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if all_ended() {
            break;
        }
    }
    let conversations: Vec<_> = world.tables.lock().unwrap().conversations.keys().copied().collect();
    if all_ended() {
        let last = client("last".to_owned());
        for id in conversations {
            last.check_usable(id).await;
        }
    }
    // Requests that are still in flight outside arrive.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waiting: Vec<_> = world.observed.lock().unwrap().subscribed.iter().cloned().collect();
    for (process, turn_id) in waiting.into_iter().filter(|(process, _)| cluster.is_up(process)) {
        world.violated(format!("a client of {process} waits forever for the end of {}", short(turn_id)));
    }
    conclude(&world)
}

fn conclude(world: &World) -> Outcome {
    let tables = world.tables.lock().unwrap();
    let mut observed = world.observed.lock().unwrap();
    let mut audit = Audit {
        orderly: !world.faults.shared && world.faults.store_answers(),
        tables: &tables,
        observed: &observed,
        violations: Vec::new(),
    };
    audit.check();
    let found = audit.violations;
    let mut violations = world.violations.lock().unwrap().clone();
    violations.extend(found);
    for row in tables.turns.values() {
        observed.counts.one("turns");
        if row.takeovers > 0 {
            observed.counts.one("turns taken over");
        }
        if row.error_code.as_deref() == Some("too_many_turns") {
            observed.counts.one("messages over the limit");
        }
        if row.status == werkruf_contract::TurnStatus::Completed && row.inbound.is_some() {
            observed.counts.one("keyword turns answered");
            if row.takeovers > 0 {
                observed.counts.one("keyword turns taken over and answered");
            }
        }
        if row.error_code.as_deref() == Some("poison") {
            observed.counts.one("turns failed as poison");
        }
    }
    for row in tables.calls.values() {
        observed.counts.one("calls");
        if row.error_code.as_deref() == Some("outcome_unknown") {
            observed.counts.one("outcomes unknown");
        }
        if row.dedupe_of.is_some() {
            observed.counts.one("calls joined or reused");
        }
        if row.error_code.as_deref() == Some("approval_pending") {
            observed.counts.one("calls refused because an identical one awaits approval");
        }
        if row.attempt > 1 {
            observed.counts.one("calls attempted again");
        }
    }
    for id in tables.conversations.keys() {
        let mut blocks: Vec<_> = tables.history(*id).iter().filter_map(|row| row.turn_id).collect();
        blocks.dedup();
        let all = blocks.len();
        for _ in 0..all - blocks.iter().collect::<BTreeSet<_>>().len() {
            observed.counts.one("turns interrupted by others");
        }
    }
    for row in tables.approvals.values() {
        observed.counts.one(match row.status {
            ApprovalStatus::Approved => "calls approved",
            ApprovalStatus::Denied => "calls denied",
            ApprovalStatus::Expired => "approvals expired",
            ApprovalStatus::Canceled => "approvals withdrawn",
            ApprovalStatus::Pending => "approvals left pending",
        });
    }
    Outcome { violations, trace: world.trace.text(), digest: world.trace.digest(), counts: observed.counts.clone() }
}
