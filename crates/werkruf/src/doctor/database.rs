//! Looks at the numbers of a database.

use jiff::{SignedDuration, Timestamp};
use werkruf_store::Diagnosis;

use super::{Report, Severity};
use crate::config::{Config, RetentionConfig};

/// More than this between the clocks makes times in the data misleading.
const SKEW: SignedDuration = SignedDuration::from_secs(5);
/// From this size on a database without retention is worth a thought.
const LARGE: i64 = 1 << 30;

pub(crate) fn check_database(diagnosis: &Diagnosis, config: &Config, now: Timestamp, report: &mut Report) {
    let measured = &diagnosis.measurements;
    report.checked(format!("database: {}, {} MiB, {} open turns", diagnosis.version, measured.size_bytes >> 20, measured.open_turns));
    for damage in &diagnosis.damage {
        let advice = "Stop the server, copy the files of the database, and restore the newest backup (`werkruf restore`).";
        report.find(Severity::Error, "database", "database_unavailable", format!("The database is damaged: {damage}."), advice);
    }
    if let Some(skew) = diagnosis.now.map(|theirs| now.duration_since(theirs).abs()).filter(|skew| *skew > SKEW) {
        let message = format!("The clocks of this machine and of the database differ by {} seconds.", skew.as_secs());
        report.find(Severity::Warning, "database", "", message, "Let both machines follow the same time servers (NTP).");
    }
    if let Some(turn) = diagnosis.stuck_turn {
        let message = format!("{} without progress for an hour; the oldest is {turn}.", turns(diagnosis.stuck_turns));
        let advice = "Start a server, which continues them; if one runs, read its log for that turn_id, or cancel the turn.";
        report.find(Severity::Error, "database", "", message, advice);
    }
    check_outbox(diagnosis, report);
    for (model, requests) in &diagnosis.unpriced {
        let message = format!("{requests} requests of the last 30 days to {model} have no cost, because the model has no price.");
        let advice = "Add the model to the file of WERKRUF_PRICES; a price of 0 is a price.";
        report.find(Severity::Warning, "database", "", message, advice);
    }
    if config.retention == RetentionConfig::default() && measured.size_bytes > LARGE {
        let message = format!("The database has {} MiB, and nothing is ever deleted.", measured.size_bytes >> 20);
        report.find(Severity::Warning, "database", "", message, "Set [retention]; docs/operations.md says what each setting deletes.");
    }
    if measured.pending_approvals > 0 {
        let message = format!("{} approvals wait for a decision.", measured.pending_approvals);
        report.find(Severity::Note, "database", "approval_pending", message, "`werkruf approvals list --status pending` shows them.");
    }
}

fn turns(count: i64) -> String {
    if count == 1 { "A turn is".to_owned() } else { format!("{count} turns are") }
}

fn check_outbox(diagnosis: &Diagnosis, report: &mut Report) {
    let rows = |status: &str| diagnosis.measurements.outbox_rows(status);
    if rows("dead") > 0 {
        let message = format!("{} rows of the outbox were given up: people or programs were not told.", rows("dead"));
        let advice = "`werkruf outbox list --status dead` says why; correct the cause, then `werkruf outbox retry ID`.";
        report.find(Severity::Warning, "database", "attempts_exhausted", message, advice);
    }
    if rows("held") > 0 {
        let message = format!("{} rows of the outbox are held since a restore.", rows("held"));
        let advice = "Check what was sent after the backup, then `werkruf outbox release`.";
        report.find(Severity::Warning, "database", "restored", message, advice);
    }
}
