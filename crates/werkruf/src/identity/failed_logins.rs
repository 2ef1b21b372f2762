//! Failed logins per address. For a while after many of them, a wrong credential is told to wait.
//!
//! A right credential never waits, so that nobody locks out others who share an address. The wait tells a client to stop; it does not
//! slow down guesses, which the length of a key makes hopeless. The table and the reports are bounded: see [`subscriber`].

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::subscriber::subscriber;

/// The most addresses. A full table forgets the one that failed longest ago.
const ADDRESSES: usize = 4096;
/// So many different credentials are free: a person mistypes, a program tries an old key.
const FREE_CREDENTIALS: u32 = 20;
/// So many failures are free where the same credentials come again and again: nobody guesses that way.
const FREE_FAILURES: u32 = 300;
/// The last credentials of an address that are told from new ones.
const LAST: usize = 4;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// An address without a failure for this long starts anew.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// The failures of an address are reported once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// The most reports in that time. Failures of further addresses are reported in one sum: nobody fills the audit log.
const REPORTS: u32 = 60;
/// The address of that sum.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What a failed login leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedLogin {
    /// How many milliseconds the client has to wait, if it came during a wait.
    pub(crate) wait_ms: Option<u64>,
    /// The report that is due.
    pub(crate) report: Option<FailedLoginReport>,
}

/// The failures of one address that are due to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedLoginReport {
    pub address: IpAddr,
    /// Failures since the last report.
    pub failures: u32,
}

/// The table of failed logins.
#[derive(Default)]
pub(crate) struct FailedLogins {
    table: Mutex<Table>,
    hasher: RandomState,
}

#[derive(Default)]
struct Table {
    by_address: HashMap<IpAddr, Failures>,
    reports: Reports,
}

/// The reports of the current minute.
#[derive(Default)]
struct Reports {
    since: Option<Instant>,
    made: u32,
    /// Failures of the addresses that got no report of their own.
    others: u32,
}

struct Failures {
    count: u32,
    credentials: u32,
    /// Hashes of the last credentials.
    last_credentials: [u64; LAST],
    last: Instant,
    /// Wrong credentials are told to wait until this time.
    until: Instant,
    unreported: u32,
    reported: Option<Instant>,
}

impl FailedLogins {
    /// Counts a failure. Those during a wait do not make it longer. `address` is `None` where it is not known.
    pub(crate) fn failed(&self, address: Option<IpAddr>, credential: &str) -> FailedLogin {
        let address = subscriber(address.unwrap_or(OTHERS));
        let (now, hash) = (Instant::now(), self.hasher.hash_one(credential));
        let mut guard = self.lock();
        let table = &mut *guard;
        if table.by_address.len() >= ADDRESSES && !table.by_address.contains_key(&address) {
            table.make_room(now);
        }
        let unknown =
            || Failures { count: 0, credentials: 0, last_credentials: [0; LAST], last: now, until: now, unreported: 0, reported: None };
        let failures = table.by_address.entry(address).or_insert_with(unknown);
        if now.duration_since(failures.last) >= FORGOTTEN {
            *failures = Failures { reported: failures.reported, unreported: failures.unreported, ..unknown() };
        }
        let wait = failures.until.saturating_duration_since(now);
        if wait.is_zero() {
            failures.count_one(hash, now);
        }
        failures.unreported += 1;
        let report = table.reports.of(address, failures, now);
        let wait_ms = (!wait.is_zero()).then(|| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
        FailedLogin { wait_ms, report }
    }

    /// The reports that are due although nothing failed meanwhile.
    pub(crate) fn due(&self) -> Vec<FailedLoginReport> {
        let now = Instant::now();
        let mut guard = self.lock();
        let Table { by_address, reports } = &mut *guard;
        let waiting = by_address.iter_mut().filter(|(_, failures)| failures.unreported > 0);
        let mut due: Vec<FailedLoginReport> = waiting.filter_map(|(address, failures)| reports.of(*address, failures, now)).collect();
        due.extend(reports.of_others(now));
        due
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failures {
    fn count_one(&mut self, credential: u64, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.last = now;
        if !self.last_credentials.contains(&credential) {
            self.credentials = self.credentials.saturating_add(1);
            self.last_credentials.rotate_right(1);
            self.last_credentials[0] = credential;
        }
        let (by_credentials, by_count) = (self.credentials.checked_sub(FREE_CREDENTIALS + 1), self.count.checked_sub(FREE_FAILURES + 1));
        if let Some(over) = by_credentials.max(by_count) {
            self.until = now + (FIRST_WAIT * 2_u32.saturating_pow(over.min(16))).min(LONGEST_WAIT);
        }
    }
}

impl Reports {
    /// The report about an address, if one is due.
    fn of(&mut self, address: IpAddr, failures: &mut Failures, now: Instant) -> Option<FailedLoginReport> {
        if failures.reported.is_some_and(|last| now.duration_since(last) < REPORT_EVERY) {
            return None;
        }
        failures.reported = Some(now);
        let count = std::mem::take(&mut failures.unreported);
        if self.since.is_none_or(|since| now.duration_since(since) >= REPORT_EVERY) {
            (self.since, self.made) = (Some(now), 0);
        }
        self.made += 1;
        if self.made > REPORTS {
            self.others = self.others.saturating_add(count);
            return None;
        }
        Some(FailedLoginReport { address, failures: count })
    }

    fn of_others(&mut self, now: Instant) -> Option<FailedLoginReport> {
        let over = self.since.is_some_and(|since| now.duration_since(since) >= REPORT_EVERY);
        let failures = if over { std::mem::take(&mut self.others) } else { 0 };
        (failures > 0).then_some(FailedLoginReport { address: OTHERS, failures })
    }
}

impl Table {
    fn make_room(&mut self, now: Instant) {
        self.by_address.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
        if self.by_address.len() >= ADDRESSES {
            let oldest = self.by_address.iter().min_by_key(|(_, failures)| failures.last).map(|(address, _)| *address);
            let forgotten = oldest.and_then(|address| self.by_address.remove(&address));
            self.reports.others = self.reports.others.saturating_add(forgotten.map_or(0, |failures| failures.unreported));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Fails so often, each time with another credential; returns the failures of each report.
    fn fail(logins: &FailedLogins, address: Option<IpAddr>, times: u32) -> Vec<u32> {
        let failed = |number| logins.failed(address, &format!("{number} {:?}", Instant::now())).report;
        (0..times).filter_map(failed).map(|report| report.failures).collect()
    }

    fn wait(logins: &FailedLogins, address: Option<IpAddr>) -> Option<u64> {
        logins.failed(address, "x").wait_ms
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_longer_with_every_failure_after_the_free_ones() {
        let logins = FailedLogins::default();
        assert_eq!(fail(&logins, HOME, FREE_CREDENTIALS), [1], "one report a minute");
        assert_eq!(logins.failed(HOME, "first").wait_ms, None, "the wait begins with this one");
        assert_eq!((wait(&logins, HOME), wait(&logins, HOME)), (Some(1000), Some(1000)), "failures during a wait do not prolong it");
        tokio::time::advance(FIRST_WAIT).await;
        assert_eq!(logins.failed(HOME, "second").wait_ms, None);
        assert_eq!(wait(&logins, HOME), Some(2000));
        for number in 0..16 {
            tokio::time::advance(LONGEST_WAIT).await;
            logins.failed(HOME, &number.to_string());
        }
        assert_eq!(wait(&logins, HOME), Some(60_000));
        assert_eq!(wait(&logins, at("192.0.2.2")), None, "another address");
        tokio::time::advance(FORGOTTEN).await;
        fail(&logins, HOME, FREE_CREDENTIALS);
        assert_eq!(wait(&logins, HOME), None, "the address started anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_with_an_old_key_waits_later_than_one_that_guesses() {
        let logins = FailedLogins::default();
        for number in 0..=FREE_FAILURES {
            assert_eq!(logins.failed(HOME, if number % 2 == 0 { "old" } else { "older" }).wait_ms, None);
        }
        assert_eq!(logins.failed(HOME, "old").wait_ms, Some(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_during_a_wait_are_reported() {
        let logins = FailedLogins::default();
        fail(&logins, HOME, FREE_CREDENTIALS + 10);
        tokio::time::advance(REPORT_EVERY).await;
        assert_eq!(fail(&logins, HOME, 1), [FREE_CREDENTIALS + 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_reported_whole_after_its_minute_and_many_addresses_in_one_sum() {
        let logins = FailedLogins::default();
        fail(&logins, HOME, 1000);
        assert_eq!(logins.due(), [], "within the minute");
        tokio::time::advance(REPORT_EVERY).await;
        assert_eq!(logins.due(), [FailedLoginReport { address: HOME.unwrap(), failures: 999 }]);
        assert_eq!(logins.due(), []);
        tokio::time::advance(REPORT_EVERY).await;
        let many = 2 * u32::try_from(ADDRESSES).unwrap();
        let reports: usize = (0..many).map(|number| fail(&logins, Some(IpAddr::V4(Ipv4Addr::from_bits(number))), 1).len()).sum();
        assert_eq!(reports, 60, "more addresses than the table has");
        tokio::time::advance(REPORT_EVERY).await;
        assert_eq!(logins.due(), [FailedLoginReport { address: OTHERS, failures: many - 60 }]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_a_subscriber_is_one_address() {
        let logins = FailedLogins::default();
        fail(&logins, HOME, FREE_CREDENTIALS + 1);
        for number in 0..u32::try_from(ADDRESSES).unwrap() {
            tokio::time::advance(Duration::from_nanos(1)).await;
            fail(&logins, Some(IpAddr::V4(Ipv4Addr::from_bits(number))), 1);
        }
        assert_eq!(logins.lock().by_address.len(), ADDRESSES);
        assert_eq!(wait(&logins, HOME), None, "the oldest one was forgotten");
        fail(&logins, at("2001:db8::1"), FREE_CREDENTIALS + 1);
        assert!(wait(&logins, at("2001:db8::2")).is_some());
        assert_eq!(wait(&logins, at("2001:db8:0:1::2")), None);
        fail(&logins, None, FREE_CREDENTIALS + 1);
        assert!(wait(&logins, None).is_some(), "unknown addresses count together");
    }
}
