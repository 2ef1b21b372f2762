//! Renews tokens, each in a task of its own.
//!
//! An authorization server may replace the token that renews: from its answer on the one before is worthless. So whoever waits for a renewal may leave,
//! and the renewal goes on until its answer is stored. One runs for an account at a time: in this process by the map, over all processes by a claim.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use werkruf_contract::{Deadline, Uuid};
use werkruf_store::{ConnectionChange, ConnectionKey, ConnectionRow, ProviderAccount};

use super::fault::{ConnectFault, FaultKind};
use super::grant::Grant;
use super::site::Site;
use super::token::{self, Issued};

/// How long a process may take to renew a token, and how often others look.
const CLAIM: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(25);
/// How long new tokens are tried to be stored, and how often.
const KEEP: Duration = Duration::from_secs(60);
const KEEP_AGAIN: Duration = Duration::from_millis(250);
/// Renewals of a server at once, at most: callers that leave do not end theirs.
const MOST_RENEWALS: usize = 256;

/// A token, and the connection that it belongs to: a person who connects again has another one.
#[derive(Clone)]
pub(in crate::mcp) struct AccountToken {
    pub(in crate::mcp) account: Uuid,
    pub(in crate::mcp) token: SecretString,
}

type Renewed = Result<AccountToken, ConnectFault>;

/// The renewals of one server that are in progress.
#[derive(Clone, Default)]
pub(super) struct Renewals(Arc<Mutex<HashMap<ConnectionKey, watch::Receiver<Option<Renewed>>>>>);

/// Removes a renewal that has ended, also by a panic.
struct Running {
    renewals: Renewals,
    key: ConnectionKey,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.renewals.lock().remove(&self.key);
    }
}

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionKey, watch::Receiver<Option<Renewed>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another token than the one of `stale`. Waits for a renewal that is in progress, or starts one.
    pub(super) async fn renewed(&self, site: &Arc<Site>, key: &ConnectionKey, stale: Grant) -> Renewed {
        let mut answer = self.join(site, key, stale)?;
        let broken = || ConnectFault::refused("The renewal of the token broke off.");
        let ended = answer.wait_for(Option::is_some).await.map_err(|_| broken())?;
        ended.clone().unwrap_or_else(|| Err(broken()))
    }

    fn join(&self, site: &Arc<Site>, key: &ConnectionKey, stale: Grant) -> Result<watch::Receiver<Option<Renewed>>, ConnectFault> {
        let mut running = self.lock();
        let is_full = running.len() >= MOST_RENEWALS;
        match running.entry(key.clone()) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(_) if is_full => Err(ConnectFault::refused("Too many tokens are being renewed.")),
            Entry::Vacant(place) => {
                let (tell, answer) = watch::channel(None);
                place.insert(answer.clone());
                let (guard, site) = (Running { renewals: self.clone(), key: key.clone() }, Arc::clone(site));
                let tracker = site.services.tasks.clone();
                tracker.spawn(async move {
                    let renewed = renew_claimed(&site, &guard.key, &stale).await;
                    // Whoever comes now reads the stored token, which is the new one.
                    drop(guard);
                    tell.send_replace(Some(renewed));
                });
                Ok(answer)
            }
        }
    }
}

/// Renews the token as soon as no other process does. A token that another process has renewed meanwhile is as good.
async fn renew_claimed(site: &Site, key: &ConnectionKey, stale: &Grant) -> Renewed {
    let account = ProviderAccount { provider: "mcp".to_owned(), account: werkruf_contract::hex(&Sha256::digest(key.purpose())) };
    let (owner, waited) = (site.services.clock.new_id(), Deadline::after(CLAIM));
    let store = &site.services.store;
    while !store.claim_token(account.clone(), owner, CLAIM, site.now()).await? {
        if waited.passed() {
            return Err(ConnectFault::refused("The token of the person is being renewed, and that takes too long."));
        }
        tokio::time::sleep(POLL).await;
    }
    let renewed = match site.stored(key).await {
        Ok(Some((row, grant))) if grant.has_tokens_of(stale) => renew(site, &row, grant).await,
        Ok(found) => found.ok_or_else(not_connected).and_then(|(_, grant)| usable(&grant)),
        Err(fault) => Err(fault),
    };
    // A claim that stays ends by itself, and the token is good.
    if let Err(error) = store.release_token(account, owner).await {
        tracing::warn!(server = site.name, %error, "the claim on a token could not be released");
    }
    renewed
}

async fn renew(site: &Site, row: &ConnectionRow, grant: Grant) -> Renewed {
    match token::renew(&site.http, &site.addresses, grant.clone(), site.now()).await {
        Ok(issued) => keep(site, row, &grant, issued).await,
        // Refused for good: the person must connect again, and nobody asks again before that.
        Err(fault) if fault.kind == FaultKind::NeedsConnection => {
            let ended = Grant { access: None, refresh: None, ..grant };
            let change =
                ConnectionChange { old: row.sealed.clone(), sealed: site.close(&row.key.purpose(), &ended)?, expires_at: Some(site.now()) };
            // A connection that was made or encrypted again meanwhile stays; the next call asks again.
            site.services.store.replace_connection(row.key.clone(), change, site.now()).await?;
            Err(fault)
        }
        Err(fault) => Err(fault),
    }
}

/// Stores new tokens in the place of `before`. The bytes there may be others by now, because `secrets rotate` has encrypted them again.
async fn keep(site: &Site, row: &ConnectionRow, before: &Grant, issued: Issued) -> Renewed {
    let (key, until, tried) = (&row.key, issued.until, Deadline::after(KEEP));
    let mut old = row.sealed.clone();
    loop {
        // Inside the loop: the key of the installation may be another one by now.
        let change = ConnectionChange { old: old.clone(), sealed: site.close(&key.purpose(), &issued.grant)?, expires_at: until };
        let fault = match site.services.store.replace_connection(key.clone(), change, site.now()).await {
            Ok(true) => return usable(&issued.grant),
            Ok(false) => match site.stored(key).await {
                // Another process was refused with the token that was used here: this answer is the valid one.
                Ok(Some((now, grant))) if grant.account == before.account && (grant.has_tokens_of(before) || grant.refresh.is_none()) => {
                    old = now.sealed;
                    continue_soon(tried)
                }
                // The person has connected again, or another process has renewed the token.
                Ok(Some((_, grant))) => {
                    if grant.account != before.account {
                        site.revoke(&issued.grant).await;
                    }
                    return usable(&grant);
                }
                Ok(None) => {
                    site.revoke(&issued.grant).await;
                    return Err(not_connected());
                }
                Err(fault) => Err(fault),
            },
            Err(error) => Err(error.into()),
        };
        if let Err(fault) = fault {
            if tried.passed() {
                return Err(fault);
            }
            tokio::time::sleep(KEEP_AGAIN).await;
        }
    }
}

/// Bytes that change all the time are given up like a store that does not answer.
fn continue_soon(tried: Deadline) -> Result<(), ConnectFault> {
    if tried.passed() { Err(ConnectFault::refused("The new token could not be stored.")) } else { Ok(()) }
}

/// The token of a grant that was just issued.
pub(super) fn usable(grant: &Grant) -> Renewed {
    let token = grant.access.clone().ok_or_else(ended)?;
    Ok(AccountToken { account: grant.account, token: SecretString::from(token) })
}

pub(super) fn not_connected() -> ConnectFault {
    ConnectFault::needs_connection("The person has not connected an account.")
}

pub(super) fn ended() -> ConnectFault {
    ConnectFault::needs_connection("The connection of the person has ended.")
}
