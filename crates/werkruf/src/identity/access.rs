//! What every authenticated request passes: the credential, the networks of a key and the request limits; after a wrong credential the wait.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use werkruf_llm::network;
use werkruf_runtime::{Rate, RateLimiter, RateSubject};
use werkruf_store::{Act, Author, Cluster, KeyRow, SERVER_CHAIN};

use super::bearer::{self, Bearer, NoBearer, RequestCount};
use super::console_session;
use super::failed_logins::{FailedLoginReport, FailedLogins};
use super::key_uses::KeyUses;
use super::open_streams::OpenStreams;
use super::origin::RequestHead;
use super::{Identity, credential, identify};
use crate::api::ApiError;
use crate::app::App;
use crate::openai_path::is_openai_path;

/// How often streams are checked and uses of keys are stored. A stream ends within twice this time.
const CHECK_EVERY: Duration = Duration::from_secs(2);
const _: () = assert!(2 * CHECK_EVERY.as_secs() <= 5, "the documents say that a stream ends within five seconds");

/// What requests of all callers share.
pub(crate) struct Access {
    pub(super) rates: RateLimiter,
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

/// Identifies the caller of a request and counts the request. `address` is `None` where it is not known.
pub(crate) async fn admit(app: &App, address: Option<IpAddr>, head: &RequestHead<'_>) -> Result<Identity, ApiError> {
    let (credential, found) = match console_session::token(app, head)? {
        Some(token) => (token, console_session::find(app, address, token).await),
        None => {
            let credential = credential(head.headers)?;
            (credential, bearer::find(app, address, credential).await.map(|bearer| (bearer, None)))
        }
    };
    let (bearer, session) = match found {
        Ok(found) => found,
        Err(NoBearer::Other(error)) => return Err(error),
        Err(NoBearer::Wrong(error)) => return Err(failed_login(app, address, credential, error).await),
    };
    let mut count = RequestCount::of(app, &bearer);
    count.check()?;
    let identity = match identify(app, head.headers, &bearer, &mut count).await {
        Ok(identity) => Identity { address, ..identity }.in_session(session),
        Err(error) => {
            count.take().await?;
            return Err(error);
        }
    };
    // Programs use `/v1`: their key counts there, as for turns. The limit of a user is for people.
    let by_key = matches!(bearer, Bearer::Key(_)) && is_openai_path(head.uri.path());
    // The user first: what one user is refused must not use up the key that users share.
    if let Some(principal) = identity.principal.as_ref().filter(|_| !identity.is_operator() && !by_key) {
        let (user, per_minute) = (RateSubject::User(principal.user_id.clone()), app.config.requests.per_minute_user);
        app.access.rates.take(identity.tenant_id, user, Rate::of_requests(per_minute)).await.map_err(too_many)?;
    }
    if let Bearer::Key(key) = &bearer {
        count.take().await?;
        app.access.key_uses.used(key.tenant_id, key.id, app.clock.now());
    }
    Ok(identity)
}

/// The error for a wrong credential. Only wrong ones have to wait: nobody locks out others who share an address.
pub(super) async fn failed_login(app: &App, address: Option<IpAddr>, credential: &str, error: ApiError) -> ApiError {
    let failed = app.access.failed_logins.failed(address, credential);
    if let Some(report) = &failed.report {
        report_failed_logins(app, report).await;
    }
    match failed.wait_ms {
        Some(wait) => rate_limited("Too many failed logins from this address; wait and try again.", wait),
        None => error,
    }
}

pub(super) fn too_many(wait_ms: u64) -> ApiError {
    rate_limited("Too many requests; wait and try again.", wait_ms)
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
pub(super) fn allows(key: &KeyRow, address: Option<IpAddr>) -> bool {
    let within = |address: IpAddr| key.allow_ips.iter().filter_map(|text| network(text)).any(|network| network.contains(&address));
    key.allow_ips.is_empty() || address.is_some_and(|address| within(address.to_canonical()))
}

/// Ends streams of revoked and expired credentials, stores uses of keys and reports failed logins, until it is dropped. None of these
/// waits for another.
pub async fn watch(app: Arc<App>) {
    let access = &app.access;
    let expired = repeat(async || access.streams.end_expired(app.clock.now()));
    let revoked = repeat(async || {
        let streams = &access.streams;
        for ended in [streams.end_revoked(&app).await, streams.end_deactivated(&app).await, streams.end_signed_out(&app).await] {
            if let Err(error) = ended {
                tracing::warn!(%error, "the credentials of open streams could not be checked");
            }
        }
    });
    let uses = repeat(async || {
        if let Err(error) = access.key_uses.store(app.store.as_ref()).await {
            tracing::warn!(%error, "the last use of keys was not stored");
        }
    });
    let failed_logins = repeat(async || {
        for report in access.failed_logins.due() {
            report_failed_logins(&app, &report).await;
        }
    });
    tokio::join!(expired, revoked, uses, failed_logins);
}

async fn repeat<F: Future<Output = ()>>(work: impl Fn() -> F) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        work().await;
    }
}
