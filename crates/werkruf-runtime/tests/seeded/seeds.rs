//! Many runs: all hold, each is repeatable, and every defect put in on purpose is found.

use std::sync::Mutex;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ledger::Counts;
use crate::mutant::Mutant;
use crate::play::{Outcome, play};
use crate::tools::PANIC;

const SEEDS: u64 = 3000;
/// What must have happened somewhere in that many runs.
const EXPECTED: [&str; 33] = [
    "kills",
    "stops",
    "drains",
    "writes lost",
    "acknowledgements lost",
    "reads that failed",
    "writes fenced",
    "streams cut",
    "calls of the provider's own",
    "answers given up that had run something",
    "answers cut off",
    "turns canceled",
    "calls canceled",
    "calls canceled elsewhere",
    "calls joined elsewhere",
    "letters sent to two at once",
    "renewals",
    "texts shown elsewhere",
    "retries",
    "turns taken over",
    "turns given up as poison",
    "outcomes unknown",
    "calls joined or reused",
    "calls attempted again",
    "calls refused because the same one waits",
    "decisions that came too late",
    "texts kept",
    "turns canceled in their lane",
    "turns that others came between",
    "wishes withdrawn",
    "words given",
    "words refused",
    "words that never came",
];
/// Within so many seeds every defect shows.
const MUTANT_SEEDS: u64 = 1000;

/// Tools that break on purpose need not be heard of.
fn quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
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
        "{}\n\nseed {seed} fails:\n  {}\n\nagain: WERKRUF_SEED={seed} cargo test -p werkruf-runtime --test seeded every_seed_holds -- --nocapture\n",
        outcome.trace,
        outcome.violations.join("\n  ")
    )
}

#[test]
fn every_seed_holds() {
    quiet();
    if let Some(seed) = number("WERKRUF_SEED") {
        let outcome = play(seed, Mutant::None);
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
        let outcome = play(seed, Mutant::None);
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
        panic!("{}\nall that fail, with their first word:\n  {}", report(*seed, outcome), all.join("\n  "));
    }
    let total = total.into_inner().unwrap();
    println!("{seeds} seeds: {:?}", total.0);
    if seeds >= SEEDS {
        let rare: Vec<&str> = EXPECTED.into_iter().filter(|what| total.0.get(what).copied().unwrap_or(0) == 0).collect();
        // Some are rare by nature, such as three crashes without a step between; never is too rare.
        assert!(rare.is_empty(), "these never happened, so the seeds prove little: {rare:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_story() {
    quiet();
    for seed in 0..40 {
        let (first, second) = (play(seed, Mutant::None), play(seed, Mutant::None));
        if first.digest != second.digest {
            let apart = first.trace.lines().zip(second.trace.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let near = |trace: &str| trace.lines().skip(apart.saturating_sub(5)).take(8).collect::<Vec<_>>().join("\n");
            panic!("seed {seed} parts ways at line {apart}:\n{}\n---\n{}", near(&first.trace), near(&second.trace));
        }
    }
}

#[test]
fn every_mutant_is_found() {
    quiet();
    let only = std::env::var("WERKRUF_MUTANT").unwrap_or_default();
    for mutant in Mutant::ALL.into_iter().filter(|mutant| format!("{mutant:?}").contains(&only)) {
        let found = (0..MUTANT_SEEDS).find(|seed| !play(*seed, mutant).violations.is_empty());
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}
