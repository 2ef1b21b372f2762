//! `[[budgets]]`: what model requests may use in a day or a month.

use jiff::Timestamp;
use serde::Deserialize;
use werkruf_contract::Uuid;
use werkruf_store::{Budget, BudgetPeriod, BudgetScope, BudgetUnit};

use super::file::Document;
use super::violation::ConfigViolation;
use crate::sample;

const MAX_SUBJECT_BYTES: usize = 256;

/// One of `[[budgets]]`. A wrong or missing key is reported with the others.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BudgetSection {
    pub scope: String,
    pub subject: Option<BudgetSubject>,
    pub period: String,
    pub unit: String,
    pub limit: Option<i64>,
    pub tenant: Option<String>,
}

/// A subject as text, or the id of a user as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum BudgetSubject {
    Number(i64),
    Text(String),
}

impl BudgetSubject {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// A budget that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetConfig {
    /// The slug or id of its tenant; empty where the caller knows it.
    pub tenant: String,
    pub scope: BudgetScope,
    pub subject: Option<String>,
    pub period: BudgetPeriod,
    pub unit: BudgetUnit,
    pub limit: i64,
}

impl BudgetConfig {
    /// Reads the words of a budget. The error has each wrong key with what to write.
    pub(crate) fn check(
        scope: &str,
        subject: Option<String>,
        period: &str,
        unit: &str,
        limit: i64,
    ) -> Result<Self, Vec<(&'static str, &'static str)>> {
        let mut faults = Vec::new();
        let (found_scope, found_period, found_unit) = (BudgetScope::parse(scope), BudgetPeriod::parse(period), BudgetUnit::parse(unit));
        if found_scope.is_none() {
            faults.push(("scope", "takes tenant, user, key or assistant"));
        }
        if found_period.is_none() {
            faults.push(("period", "takes day or month"));
        }
        if found_unit.is_none() {
            faults.push(("unit", "takes tokens, nano_usd or model_calls"));
        }
        if limit < 0 {
            faults.push(("limit", "takes a whole number that is not negative"));
        }
        match (found_scope, subject.as_deref()) {
            (Some(BudgetScope::Tenant), Some(_)) => {
                faults.push(("subject", "is for users, keys and assistants; leave it out for a tenant"))
            }
            (Some(BudgetScope::Key), Some(id)) if Uuid::try_parse(id).is_err() => faults.push(("subject", "takes the id of a key")),
            (_, Some(text)) if text.trim().is_empty() || text.len() > MAX_SUBJECT_BYTES => {
                faults.push(("subject", "takes 1 to 256 bytes; leave it out for a budget that each one has for itself"));
            }
            (_, _) => {}
        }
        match (found_scope, found_period, found_unit) {
            (Some(scope), Some(period), Some(unit)) if faults.is_empty() => {
                // Rows have ids of keys in their usual form.
                let subject = match scope {
                    BudgetScope::Key => subject.map(|id| Uuid::try_parse(&id).map_or(id, |id| id.to_string())),
                    BudgetScope::Tenant | BudgetScope::User | BudgetScope::Assistant => subject,
                };
                Ok(Self { tenant: String::new(), scope, subject, period, unit, limit })
            }
            _ => Err(faults),
        }
    }

    /// The budget of a tenant.
    pub(crate) fn budget(&self, id: Uuid, tenant_id: Uuid, configured: bool, created_at: Timestamp) -> Budget {
        let Self { scope, subject, period, unit, limit, .. } = self.clone();
        Budget { id, tenant_id, scope, subject, period, unit, limit, configured, created_at }
    }
}

/// Reads all of them. One with a fault is left out.
pub(super) fn merge(document: &Document, violations: &mut Vec<ConfigViolation>) -> Vec<BudgetConfig> {
    let mut budgets: Vec<BudgetConfig> = Vec::new();
    for (at, section) in document.file.budgets.iter().enumerate() {
        let mut refuse = |key: &str, message: &str| violations.push(document.violation(&format!("/budgets/{at}/{key}"), message));
        let subject = section.subject.clone().map(BudgetSubject::text);
        let Some(limit) = section.limit else {
            refuse("limit", "is missing; write what may be used in a period");
            continue;
        };
        match BudgetConfig::check(&section.scope, subject, &section.period, &section.unit, limit) {
            Err(faults) => faults.into_iter().for_each(|(key, message)| refuse(key, message)),
            Ok(budget) => {
                let budget = BudgetConfig { tenant: section.tenant.clone().unwrap_or_else(|| sample::DEMO.to_owned()), ..budget };
                if budgets.iter().any(|other| BudgetConfig { limit: budget.limit, ..other.clone() } == budget) {
                    refuse("scope", "there is already a budget of this tenant, scope, subject, period and unit");
                }
                budgets.push(budget);
            }
        }
    }
    budgets
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Flags;
    use super::super::environment::Environment;
    use super::super::merge::merge;
    use super::*;

    fn read(text: &str) -> (Vec<BudgetConfig>, Vec<String>) {
        let mut violations = Vec::new();
        let document = Document::parse(PathBuf::from("werkruf.toml"), text, &mut violations);
        let flags = Flags { config: Some(PathBuf::from("werkruf.toml")), ..Flags::default() };
        let config = merge(&document, &flags, &Environment::of([]), &mut violations);
        (config.budgets, violations.iter().map(|found| format!("{}: {}", found.path, found.message)).collect())
    }

    #[test]
    fn budgets_are_read() {
        let text = "[[budgets]]\nscope = 'user'\nsubject = 3\nperiod = 'day'\nunit = 'tokens'\nlimit = 100000\n\
                    [[budgets]]\nscope = 'tenant'\nperiod = 'month'\nunit = 'nano_usd'\nlimit = 50000000000\ntenant = 'acme'\n";
        let budget = |tenant: &str, scope, subject: Option<&str>, period, unit, limit| BudgetConfig {
            tenant: tenant.to_owned(),
            scope,
            subject: subject.map(str::to_owned),
            period,
            unit,
            limit,
        };
        let expected = vec![
            budget("demo", BudgetScope::User, Some("3"), BudgetPeriod::Day, BudgetUnit::Tokens, 100_000),
            budget("acme", BudgetScope::Tenant, None, BudgetPeriod::Month, BudgetUnit::NanoUsd, 50_000_000_000),
        ];
        assert_eq!(read(text), (expected, Vec::new()));
    }

    #[test]
    fn every_fault_is_named() {
        let one = "[[budgets]]\nscope = 'tenant'\nperiod = 'day'\nunit = 'tokens'\nlimit = 1\n";
        assert_eq!(read(&one.repeat(2)).1, ["/budgets/1/scope: there is already a budget of this tenant, scope, subject, period and unit"]);
        let wrong = "[[budgets]]\nscope = 'team'\nperiod = 'week'\nunit = 'usd'\nlimit = -1\n";
        let faults: Vec<String> = read(wrong).1.iter().map(|fault| fault.split(':').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(faults, ["/budgets/0/scope", "/budgets/0/period", "/budgets/0/unit", "/budgets/0/limit"]);
        assert_eq!(read("[[budgets]]\n").1, ["/budgets/0/limit: is missing; write what may be used in a period"]);
        let subject = |scope: &str, subject: &str| read(&one.replace("'tenant'", &format!("'{scope}'\nsubject = {subject}"))).1.len();
        assert_eq!(
            (subject("tenant", "'x'"), subject("key", "'x'"), subject("assistant", "' '"), subject("assistant", "'x'")),
            (1, 1, 1, 0)
        );
    }
}
