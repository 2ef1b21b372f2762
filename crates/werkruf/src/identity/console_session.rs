//! Sessions of the console. A cookie stands for a key or for the operator, and is worth what that credential is worth at the moment of each
//! request.

use std::net::IpAddr;

use http::header::COOKIE;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret;
use werkruf_contract::Uuid;
use werkruf_store::{
    Act, Actor, Author, ConsoleSession, KeyDigest, KeyRow, LinkUse, NewConsoleSession, SERVER_CHAIN, SessionHolder, StoreError,
};

use super::access::failed_login;
use super::bearer::{self, Bearer, NoBearer, RequestCount};
use super::origin::{self, RequestHead};
use super::secret::KEY_PREFIX;
use super::{Identity, KEY_HEADERS, access, new_secret};
use crate::api::ApiError;
use crate::app::App;
use crate::openai_path::is_openai_path;

pub(crate) const COOKIE_NAME: &str = "werkruf_session";
/// How long a session lasts.
pub(crate) const SESSION: SignedDuration = SignedDuration::from_hours(12);
/// How long a link works.
const LINK: SignedDuration = SignedDuration::from_mins(15);

/// The session of a request, and when it ends at the latest.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionEnd {
    pub(super) id: Uuid,
    pub(super) at: Timestamp,
}

/// The token of a request that has a session and no other credential. Only the APIs take one, and only from pages of this server.
pub(super) fn token<'a>(app: &App, head: &RequestHead<'a>) -> Result<Option<&'a str>, ApiError> {
    let path = head.uri.path();
    let has_key = head.headers.contains_key("authorization") || KEY_HEADERS.iter().any(|name| head.headers.contains_key(*name));
    if has_key || !(path.starts_with("/api/") || is_openai_path(path)) {
        return Ok(None);
    }
    let Some(token) = cookie(head) else { return Ok(None) };
    origin::check(&app.config, head)?;
    Ok(Some(token))
}

fn cookie<'a>(head: &RequestHead<'a>) -> Option<&'a str> {
    let lists = head.headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lists.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE_NAME && !value.is_empty()).then_some(value))
}

/// The owner of a session, as if the credential that it stands for had been sent.
pub(super) async fn find<'a>(app: &App, address: Option<IpAddr>, token: &str) -> Result<(Bearer<'a>, Option<SessionEnd>), NoBearer> {
    let refused = || NoBearer::Wrong(ApiError::unauthorized("The session has ended; sign in again."));
    let session = app.console_store.console_session(KeyDigest::of(token), app.clock.now()).await?.ok_or_else(refused)?;
    let end = SessionEnd { id: session.id, at: session.expires_at };
    match holder(app, address, &session).await? {
        Some(bearer) => Ok((bearer, Some(end))),
        None => Err(refused()),
    }
}

async fn holder<'a>(app: &App, address: Option<IpAddr>, session: &ConsoleSession) -> Result<Option<Bearer<'a>>, StoreError> {
    match &session.holder {
        SessionHolder::Operator(digest) => Ok((*digest == operator_digest(app)).then_some(Bearer::Operator)),
        SessionHolder::Key { id, .. } => {
            let key = app.store.keys_by_id(vec![*id]).await?.pop();
            let counts =
                |key: &KeyRow| access::allows(key, address) && app.config.auth.key_ends(key).is_none_or(|end| app.clock.now() < end);
            Ok(key.filter(counts).map(|key| Bearer::Key(Box::new(key))))
        }
    }
}

/// Changes when the operator's key does, and is the same for all processes with that key.
fn operator_digest(app: &App) -> KeyDigest {
    let key = app.config.admin_key.as_ref().map_or("", |key| key.expose_secret());
    KeyDigest::of(&format!("console of the operator {key}"))
}

/// A new session: the token of its cookie.
pub(crate) struct SignedIn {
    pub(crate) token: String,
}

/// Signs in with a key.
pub(crate) async fn sign_in(app: &App, address: Option<IpAddr>, key: &str) -> Result<SignedIn, ApiError> {
    let bearer = match bearer::find(app, address, key).await {
        Ok(bearer) => bearer,
        Err(NoBearer::Other(error)) => return Err(error),
        Err(NoBearer::Wrong(error)) => return Err(failed_login(app, address, key, error).await),
    };
    let mut count = RequestCount::of(app, &bearer);
    count.check()?;
    count.take().await?;
    let holder = match bearer {
        Bearer::Operator => SessionHolder::Operator(operator_digest(app)),
        Bearer::Key(key) => SessionHolder::Key { tenant_id: key.tenant_id, id: key.id },
        Bearer::Token(..) => return Err(ApiError::unauthorized("A token does not sign in to the console; use a key.")),
    };
    let token = new_token();
    put(app, &token, false, holder.clone(), SESSION).await?;
    record(app, address, &holder, "console.sign_in").await;
    Ok(SignedIn { token })
}

/// Signs in with a link. The link does not work again.
pub(crate) async fn use_link(app: &App, address: Option<IpAddr>, link: &str) -> Result<SignedIn, ApiError> {
    let (token, now) = (new_token(), app.clock.now());
    let session = LinkUse { digest: KeyDigest::of(&token), now, expires_at: later(now, SESSION) };
    let Some(session) = app.console_store.use_console_link(KeyDigest::of(link), session).await? else {
        let error = ApiError::unauthorized("This link was used already, or has expired; ask for another.");
        return Err(failed_login(app, address, link, error).await);
    };
    record(app, address, &session.holder, "console.sign_in").await;
    Ok(SignedIn { token })
}

/// A link that signs in as the caller: the path at this server.
pub(crate) async fn make_link(app: &App, identity: &Identity) -> Result<String, ApiError> {
    let holder = match identity.key_id {
        Some(id) => SessionHolder::Key { tenant_id: identity.tenant_id, id },
        None if identity.is_operator() => SessionHolder::Operator(operator_digest(app)),
        None => return Err(ApiError::forbidden("forbidden", "A token does not sign in to the console; use a key.")),
    };
    let path = put_link(app, holder.clone()).await?;
    record(app, identity.address, &holder, "console.link").await;
    Ok(path)
}

/// A link that signs in as the operator, for whoever starts the server: the path at this server.
pub async fn operator_link(app: &App) -> Result<String, StoreError> {
    put_link(app, SessionHolder::Operator(operator_digest(app))).await
}

async fn put_link(app: &App, holder: SessionHolder) -> Result<String, StoreError> {
    let token = new_token();
    put(app, &token, true, holder, LINK).await?;
    Ok(format!("/console/signin?token={token}"))
}

async fn put(app: &App, token: &str, link: bool, holder: SessionHolder, lasts: SignedDuration) -> Result<(), StoreError> {
    let (digest, now) = (KeyDigest::of(token), app.clock.now());
    let session = NewConsoleSession { id: app.clock.new_id(), digest, link, holder, created_at: now, expires_at: later(now, lasts) };
    app.console_store.put_console_session(session).await
}

/// 256 random bits. It does not look like a key, because it is none.
fn new_token() -> String {
    new_secret(rand::random()).split_off(KEY_PREFIX.len())
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

async fn record(app: &App, address: Option<IpAddr>, holder: &SessionHolder, action: &'static str) {
    let (chain, key_id, subject) = match holder {
        SessionHolder::Operator(_) => (SERVER_CHAIN, None, "operator".to_owned()),
        SessionHolder::Key { tenant_id, id } => (*tenant_id, Some(*id), id.to_string()),
    };
    let actor = Actor { user_id: None, key_id, operator: key_id.is_none() };
    let author = Author { actor, address: address.map(|address| address.to_string()) };
    app.record(chain, author, Act::new(action, subject)).await;
}
