//! One run from its seed: a world, its processes, its clients, the calm after the storm, and the audit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use werkruf_contract::ApprovalStatus;

use crate::audit::Audit;
use crate::client::{Client, Known};
use crate::cluster::Cluster;
use crate::ledger::Counts;
use crate::mutant::Mutant;
use crate::trace::short;
use crate::world::World;

/// By then every turn must have ended: its own time, a takeover, and the scan, many times over.
const CALM: u64 = 900;

pub struct Outcome {
    pub violations: Vec<String>,
    pub trace: String,
    pub digest: u64,
    pub counts: Counts,
}

/// The whole run. The same seed gives the same outcome, to the letter.
pub fn play(seed: u64, mutant: Mutant) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(act(seed, mutant))
}

async fn act(seed: u64, mutant: Mutant) -> Outcome {
    let world = World::new(seed, mutant);
    let cluster = Cluster::new(&world);
    cluster.start().await;
    if world.weather.shared {
        for _ in 0..world.dice.below(3) {
            cluster.start().await;
        }
    }
    let known = Arc::new(Mutex::new(Known::default()));
    let clients = tokio_util::task::TaskTracker::new();
    let client = |name: String| Client { world: Arc::clone(&world), cluster: Arc::clone(&cluster), known: Arc::clone(&known), name };
    for number in 0..world.dice.between(1, 3) {
        clients.spawn(client(format!("client{number}")).live(world.dice.between(2, 6)));
    }
    let fate = clients.spawn(Arc::clone(&cluster).befall());
    clients.close();
    while clients.len() > 1 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    cluster.closing.raise();
    fate.await.unwrap();
    cluster.settle().await;
    world.note("world", format_args!("calm"));
    let all_ended = || world.tables.lock().unwrap().turns.values().all(|turn| turn.finished_at.is_some());
    if world.dice.permille(700) {
        // Else nobody comes any more, and the clock decides.
        world.tasks.spawn(client("clerk".to_owned()).decide_all());
    }
    for _ in 0..CALM {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if all_ended() {
            break;
        }
    }
    let conversations: Vec<_> = world.tables.lock().unwrap().conversations.keys().copied().collect();
    if all_ended() {
        let person = client("person".to_owned());
        for id in conversations {
            person.last_word(id).await;
        }
    }
    // What is still on its way outside arrives.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let waiting: Vec<_> = world.ledger.lock().unwrap().listening.iter().cloned().collect();
    for (process, turn_id) in waiting.into_iter().filter(|(process, _)| cluster.is_up(process)) {
        world.violated(format!("a client of {process} waits for ever for the end of {}", short(turn_id)));
    }
    conclude(&world)
}

fn conclude(world: &World) -> Outcome {
    let tables = world.tables.lock().unwrap();
    let mut ledger = world.ledger.lock().unwrap();
    let mut audit =
        Audit { orderly: !world.weather.shared && world.weather.store_answers(), tables: &tables, ledger: &ledger, found: Vec::new() };
    audit.check();
    let found = audit.found;
    let mut violations = world.violations.lock().unwrap().clone();
    violations.extend(found);
    for row in tables.turns.values() {
        ledger.counts.one("turns");
        if row.takeovers > 0 {
            ledger.counts.one("turns taken over");
        }
        if row.error_code.as_deref() == Some("poison") {
            ledger.counts.one("turns given up as poison");
        }
    }
    for row in tables.calls.values() {
        ledger.counts.one("calls");
        if row.error_code.as_deref() == Some("outcome_unknown") {
            ledger.counts.one("outcomes unknown");
        }
        if row.dedupe_of.is_some() {
            ledger.counts.one("calls joined or reused");
        }
        if row.error_code.as_deref() == Some("approval_pending") {
            ledger.counts.one("calls refused because the same one waits");
        }
        if row.attempt > 1 {
            ledger.counts.one("calls attempted again");
        }
    }
    for id in tables.conversations.keys() {
        let mut blocks: Vec<_> = tables.history(*id).iter().filter_map(|row| row.turn_id).collect();
        blocks.dedup();
        let all = blocks.len();
        for _ in 0..all - blocks.iter().collect::<BTreeSet<_>>().len() {
            ledger.counts.one("turns that others came between");
        }
    }
    for row in tables.approvals.values() {
        ledger.counts.one(match row.status {
            ApprovalStatus::Approved => "words given",
            ApprovalStatus::Denied => "words refused",
            ApprovalStatus::Expired => "words that never came",
            ApprovalStatus::Canceled => "wishes withdrawn",
            ApprovalStatus::Pending => "wishes left",
        });
    }
    Outcome { violations, trace: world.trace.text(), digest: world.trace.digest(), counts: ledger.counts.clone() }
}
