//! `[alerts]`: when the operator is alerted.

use jiff::SignedDuration;
use serde::Deserialize;
use werkruf_runtime::AlertSettings;

use super::database::Database;
use super::file::Document;
use super::violation::ConfigViolation;

/// A month.
const MAX_MINUTES: i64 = 31 * 24 * 60;
/// An exbibyte.
const MAX_MIB: i64 = 1 << 40;

/// `[alerts]`. Any whole number is read, so that an invalid one gets its own message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AlertsSection {
    pub approval_waiting_minutes: Option<i64>,
    pub disk_free_mib: Option<i64>,
}

pub(super) fn merge(document: &Document, database: &Database, violations: &mut Vec<ConfigViolation>) -> AlertSettings {
    let section = &document.file.alerts;
    let usual = AlertSettings::default();
    let mut refuse = |key: &str, most: i64| {
        violations.push(document.violation(&format!("/alerts/{key}"), format!("must be 1 to {most}")));
    };
    let minutes = section.approval_waiting_minutes.filter(|minutes| {
        let valid = (1..=MAX_MINUTES).contains(minutes);
        if !valid {
            refuse("approval_waiting_minutes", MAX_MINUTES);
        }
        valid
    });
    let mib = section.disk_free_mib.filter(|mib| {
        let valid = (1..=MAX_MIB).contains(mib);
        if !valid {
            refuse("disk_free_mib", MAX_MIB);
        }
        valid
    });
    AlertSettings {
        approval_waiting: minutes.map_or(usual.approval_waiting, SignedDuration::from_mins),
        database: database.file().map(ToOwned::to_owned),
        disk_free_mib: mib.and_then(|mib| u64::try_from(mib).ok()),
    }
}
