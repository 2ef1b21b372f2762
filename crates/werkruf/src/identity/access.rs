//! What every authenticated request passes: the wait after failed logins, the credential, the networks of a key, the request limits.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret;
use serde_json::json;
use subtle::ConstantTimeEq;
use werkruf_llm::network;
use werkruf_runtime::{Rate, RateLimiter, RateSubject};
use werkruf_store::{Act, Author, Cluster, KeyRow, SERVER_CHAIN};

use super::failed_logins::{FailedLoginReport, FailedLogins};
use super::key_uses::KeyUses;
use super::open_streams::OpenStreams;
use super::{Identity, credential, identify_credential};
use crate::api::ApiError;
use crate::app::App;

/// How often streams are checked and uses of keys are stored. A stream ends within twice this time.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// What requests of all callers share.
pub(crate) struct Access {
    rates: RateLimiter,
    failed_logins: FailedLogins,
    pub(crate) key_uses: KeyUses,
    pub(crate) streams: OpenStreams,
}

impl Access {
    pub(crate) fn new(cluster: &Arc<dyn Cluster>) -> Self {
        Self {
            rates: RateLimiter::new("requests", cluster),
            failed_logins: FailedLogins::default(),
            key_uses: KeyUses::default(),
            streams: OpenStreams::default(),
        }
    }
}

/// Identifies the caller of a request and counts the request. `address` is `None` inside this process.
pub(crate) async fn admit(app: &App, address: Option<IpAddr>, headers: &HeaderMap) -> Result<Identity, ApiError> {
    let credential = credential(headers)?;
    let (known_address, address) = (address, address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let access = &app.access;
    // The token of the lock file cannot be guessed, and the operator must be able to reach a server that is being attacked.
    let local = bool::from(app.operator_token.expose_secret().as_bytes().ct_eq(credential.as_bytes()));
    if !local && let Err(wait) = access.failed_logins.check(address, credential) {
        return Err(rate_limited("Too many failed logins from this address; wait and try again.", wait));
    }
    let mut identity = match identify_credential(app, address, headers, credential).await {
        Ok(identity) => identity,
        Err(error) => {
            if error.status() == StatusCode::UNAUTHORIZED
                && let Some(report) = access.failed_logins.failed(address, credential)
            {
                report_failed_logins(app, &report).await;
            }
            return Err(error);
        }
    };
    identity.address = known_address;
    access.failed_logins.accepted(credential);
    count(app, &identity).await?;
    if let Some(key_id) = identity.key_id {
        access.key_uses.used(identity.tenant_id, key_id, app.clock.now());
    }
    Ok(identity)
}

/// Counts a request. The operator's credential is not limited, whoever it acts for.
async fn count(app: &App, identity: &Identity) -> Result<(), ApiError> {
    if identity.is_operator() {
        return Ok(());
    }
    let (rates, limits) = (&app.access.rates, app.config.requests);
    let too_many = |wait| rate_limited("Too many requests; wait and try again.", wait);
    // The user first: what one user is refused must not use up the key that users share.
    if let Some(principal) = &identity.principal {
        let user = RateSubject::User(principal.user_id.clone());
        rates.take(identity.tenant_id, user, Rate::of_requests(limits.per_minute_user)).await.map_err(too_many)?;
    }
    if let Some(key_id) = identity.key_id {
        rates.take(identity.tenant_id, RateSubject::Key(key_id), Rate::of_requests(limits.per_minute_key)).await.map_err(too_many)?;
    }
    Ok(())
}

fn rate_limited(message: &'static str, wait_ms: u64) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).retry_after_ms(wait_ms)
}

/// The only place that reports failed logins: at most once a minute for each address.
async fn report_failed_logins(app: &App, report: &FailedLoginReport) {
    tracing::warn!(address = %report.address, failures = report.failures, "failed logins");
    let author = Author { address: Some(report.address.to_string()), ..Author::server() };
    let act = Act::new("login.failed", report.address.to_string()).after(json!({"failures": report.failures}));
    app.record(SERVER_CHAIN, author, act).await;
}

/// Whether a key may be used from this address. The error is the same as for an unknown key: a stolen key tells nothing.
pub(super) fn allows(key: &KeyRow, address: IpAddr) -> bool {
    let address = address.to_canonical();
    key.allow_ips.is_empty() || key.allow_ips.iter().filter_map(|text| network(text)).any(|network| network.contains(&address))
}

/// Ends streams of revoked and expired credentials, and stores uses of keys, until it is dropped.
pub async fn watch(app: Arc<App>) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = app.access.key_uses.store(app.store.as_ref()).await {
            tracing::warn!(%error, "the last use of keys was not stored");
        }
        if let Err(error) = app.access.streams.end_invalid(&app).await {
            tracing::warn!(%error, "the credentials of open streams could not be checked");
        }
    }
}
