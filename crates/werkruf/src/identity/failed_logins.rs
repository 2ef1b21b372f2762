//! Failed logins per address. An address with many of them must wait before it may try another credential.
//!
//! A credential that was accepted lately is not kept waiting, so that nobody locks out others who share an address. The table is
//! bounded; IPv6 addresses count by their /64, the network of one internet subscriber.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most addresses. A full table forgets the one that failed longest ago.
const ADDRESSES: usize = 4096;
/// The most accepted credentials that are remembered. A full set is cleared.
const ACCEPTED: usize = 8192;
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
    accepted: HashSet<u64>,
}

struct Failures {
    count: u32,
    credentials: u32,
    /// Hashes of the last credentials.
    last_credentials: [u64; LAST],
    last: Instant,
    /// No credential is checked before this time.
    until: Instant,
    unreported: u32,
    reported: Option<Instant>,
}

impl FailedLogins {
    /// Whether a credential from this address may be checked now; the error is how many milliseconds to wait.
    pub(crate) fn check(&self, address: IpAddr, credential: &str) -> Result<(), u64> {
        let table = self.lock();
        let Some(failures) = table.by_address.get(&network_of(address)) else { return Ok(()) };
        let wait = failures.until.saturating_duration_since(Instant::now());
        if wait.is_zero() || table.accepted.contains(&self.hasher.hash_one(credential)) {
            return Ok(());
        }
        Err(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    /// Remembers a credential that was accepted.
    pub(crate) fn accepted(&self, credential: &str) {
        let hash = self.hasher.hash_one(credential);
        let mut table = self.lock();
        if table.accepted.len() >= ACCEPTED && !table.accepted.contains(&hash) {
            table.accepted.clear();
        }
        table.accepted.insert(hash);
    }

    /// Counts a failure. Returns a report when one is due for this address.
    pub(crate) fn failed(&self, address: IpAddr, credential: &str) -> Option<FailedLoginReport> {
        let (address, now, hash) = (network_of(address), Instant::now(), self.hasher.hash_one(credential));
        let mut table = self.lock();
        if table.by_address.len() >= ADDRESSES && !table.by_address.contains_key(&address) {
            table.make_room(now);
        }
        let unknown =
            || Failures { count: 0, credentials: 0, last_credentials: [0; LAST], last: now, until: now, unreported: 0, reported: None };
        let failures = table.by_address.entry(address).or_insert_with(unknown);
        if now.duration_since(failures.last) >= FORGOTTEN {
            *failures = Failures { reported: failures.reported, ..unknown() };
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        if !failures.last_credentials.contains(&hash) {
            failures.credentials = failures.credentials.saturating_add(1);
            failures.last_credentials.rotate_right(1);
            failures.last_credentials[0] = hash;
        }
        let (by_credentials, by_count) =
            (failures.credentials.checked_sub(FREE_CREDENTIALS + 1), failures.count.checked_sub(FREE_FAILURES + 1));
        if let Some(over) = by_credentials.max(by_count) {
            failures.until = now + (FIRST_WAIT * 2_u32.saturating_pow(over.min(16))).min(LONGEST_WAIT);
        }
        failures.unreported += 1;
        let due = failures.reported.is_none_or(|last| now.duration_since(last) >= REPORT_EVERY);
        due.then(|| {
            failures.reported = Some(now);
            FailedLoginReport { address, failures: std::mem::take(&mut failures.unreported) }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self, now: Instant) {
        self.by_address.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN);
        if self.by_address.len() >= ADDRESSES {
            let oldest = self.by_address.iter().min_by_key(|(_, failures)| failures.last).map(|(address, _)| *address);
            oldest.map(|address| self.by_address.remove(&address));
        }
    }
}

fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    /// Fails so often, each time with another credential; returns the failures of each report.
    fn fail(logins: &FailedLogins, address: IpAddr, times: u32) -> Vec<u32> {
        let failed = |number| logins.failed(address, &format!("{number} {:?}", Instant::now()));
        (0..times).filter_map(failed).map(|report| report.failures).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_longer_with_every_failure_after_the_free_ones() {
        let logins = FailedLogins::default();
        assert_eq!(fail(&logins, HOME, FREE_CREDENTIALS), [1], "one report a minute");
        assert_eq!(logins.check(HOME, "x"), Ok(()));
        logins.failed(HOME, "first");
        assert_eq!(logins.check(HOME, "x"), Err(1000));
        logins.failed(HOME, "second");
        assert_eq!(logins.check(HOME, "x"), Err(2000));
        for number in 0..100 {
            logins.failed(HOME, &number.to_string());
        }
        assert_eq!(logins.check(HOME, "x"), Err(60_000));
        assert_eq!(logins.check("192.0.2.2".parse().unwrap(), "x"), Ok(()), "another address");
        tokio::time::advance(LONGEST_WAIT).await;
        assert_eq!(logins.check(HOME, "x"), Ok(()));
        assert_eq!(fail(&logins, HOME, 1), [FREE_CREDENTIALS + 102], "what was not reported yet");
        tokio::time::advance(FORGOTTEN).await;
        fail(&logins, HOME, FREE_CREDENTIALS);
        assert_eq!(logins.check(HOME, "x"), Ok(()), "the address started anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_with_an_old_key_waits_later_than_one_that_guesses() {
        let logins = FailedLogins::default();
        for number in 0..FREE_FAILURES {
            logins.failed(HOME, if number % 2 == 0 { "old" } else { "older" });
        }
        assert_eq!(logins.check(HOME, "old"), Ok(()));
        logins.failed(HOME, "old");
        assert_eq!(logins.check(HOME, "old"), Err(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_credential_does_not_wait_for_the_failures_of_its_neighbours() {
        let logins = FailedLogins::default();
        logins.accepted("good");
        fail(&logins, HOME, FREE_CREDENTIALS + 5);
        assert_eq!((logins.check(HOME, "good"), logins.check(HOME, "other").is_err()), (Ok(()), true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_a_subscriber_is_one_address() {
        let logins = FailedLogins::default();
        fail(&logins, HOME, FREE_CREDENTIALS + 1);
        for number in 0..u32::try_from(ADDRESSES).unwrap() {
            tokio::time::advance(Duration::from_nanos(1)).await;
            fail(&logins, IpAddr::V4(Ipv4Addr::from_bits(number)), 1);
        }
        assert_eq!(logins.lock().by_address.len(), ADDRESSES);
        assert_eq!(logins.check(HOME, "x"), Ok(()), "the oldest one was forgotten");
        fail(&logins, "2001:db8::1".parse().unwrap(), FREE_CREDENTIALS + 1);
        assert!(logins.check("2001:db8::2".parse().unwrap(), "x").is_err());
        assert_eq!(logins.check("2001:db8:0:1::2".parse().unwrap(), "x"), Ok(()));
    }
}
