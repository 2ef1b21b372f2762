//! Runs of many seeds: no run violates an invariant, each is repeatable, and every deliberate defect is found.

use std::sync::Mutex;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mutant::Mutant;
use crate::observations::Counts;
use crate::run::{Outcome, run_seed};
use crate::tools::PANIC;

const SEEDS: u64 = 3000;
/// What must happen at least once in that many runs.
const EXPECTED: [&str; 38] = [
    "kills",
    "stops",
    "drains",
    "writes lost",
    "acknowledgements lost",
    "reads that failed",
    "writes fenced",
    "streams cut",
    "provider items",
    "calls that the provider asked for",
    "approvals that the provider received",
    "abandoned responses with provider items",
    "answers cut off",
    "turns canceled",
    "calls canceled",
    "calls canceled on another process",
    "calls joined on another process",
    "messages sent to two processes at once",
    "renewals",
    "texts received from another process",
    "retries",
    "turns taken over",
    "turns failed as poison",
    "outcomes unknown",
    "calls joined or reused",
    "calls attempted again",
    "calls refused because an identical one awaits approval",
    "decisions that came too late",
    "texts checkpointed",
    "turns canceled in the queue",
    "turns interrupted by others",
    "approvals withdrawn",
    "calls approved",
    "calls denied",
    "approvals expired",
    "keyword turns answered",
    "keyword turns taken over and answered",
    "messages over the limit",
];
/// Every defect must be found within this number of seeds.
const MUTANT_SEEDS: u64 = 1000;

/// Suppresses the message of the scripted panics.
fn silence_scripted_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&PANIC) {
                before(panic);
            }
        }));
    });
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn report(seed: u64, outcome: &Outcome) -> String {
    format!(
        "{}\n\nseed {seed} fails:\n  {}\n\nrepeat: WERKRUF_SEED={seed} cargo test -p werkruf-runtime --test seeded every_seed_holds -- --nocapture\n",
        outcome.trace,
        outcome.violations.join("\n  ")
    )
}

#[test]
fn every_seed_holds() {
    silence_scripted_panics();
    if let Some(seed) = number("WERKRUF_SEED") {
        let outcome = run_seed(seed, Mutant::None);
        assert!(outcome.violations.is_empty(), "{}", report(seed, &outcome));
        println!("{}", outcome.trace);
        return;
    }
    let first = number("WERKRUF_FIRST_SEED").unwrap_or(0);
    let (next, total, failed) = (AtomicU64::new(first), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let seeds = number("WERKRUF_SEEDS").unwrap_or(SEEDS);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::SeqCst);
        if seed >= first + seeds || failed.lock().unwrap().len() >= 20 {
            return;
        }
        let outcome = run_seed(seed, Mutant::None);
        total.lock().unwrap().add(&outcome.counts);
        if !outcome.violations.is_empty() {
            failed.lock().unwrap().push((seed, outcome));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort_by_key(|(seed, _)| *seed);
    let all: Vec<String> = failed.iter().map(|(seed, outcome)| format!("{seed}: {}", outcome.violations[0])).collect();
    if let Some((seed, outcome)) = failed.first() {
        panic!("{}\nall failing seeds, with their first violation:\n  {}", report(*seed, outcome), all.join("\n  "));
    }
    let total = total.into_inner().unwrap();
    println!("{seeds} seeds: {:?}", total.0);
    if seeds >= SEEDS {
        let rare: Vec<&str> = EXPECTED.into_iter().filter(|what| total.0.get(what).copied().unwrap_or(0) == 0).collect();
        // Some are rare, such as three crashes without a step between them, but each must happen.
        assert!(rare.is_empty(), "these never happened, so the seeds do not cover them: {rare:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    silence_scripted_panics();
    for seed in 0..40 {
        let (first, second) = (run_seed(seed, Mutant::None), run_seed(seed, Mutant::None));
        if first.digest != second.digest {
            let differs_at = first.trace.lines().zip(second.trace.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let near = |trace: &str| trace.lines().skip(differs_at.saturating_sub(5)).take(8).collect::<Vec<_>>().join("\n");
            panic!("seed {seed} differs at line {differs_at}:\n{}\n---\n{}", near(&first.trace), near(&second.trace));
        }
    }
}

#[test]
fn every_mutant_is_found() {
    silence_scripted_panics();
    let only = std::env::var("WERKRUF_MUTANT").unwrap_or_default();
    for mutant in Mutant::ALL.into_iter().filter(|mutant| format!("{mutant:?}").contains(&only)) {
        let found = (0..MUTANT_SEEDS).find(|seed| !run_seed(*seed, mutant).violations.is_empty());
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}
