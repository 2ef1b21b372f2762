//! Whose credential a request has, whatever its other headers say.

use std::net::IpAddr;

use http::StatusCode;
use werkruf_runtime::{Rate, RateSubject};
use werkruf_store::{KeyDigest, KeyRow, StoreError};

use super::claims::TokenUser;
use super::jwt::{self, TokenFault};
use super::secret::KEY_PREFIX;
use super::{access, is_operator};
use crate::api::ApiError;
use crate::app::App;
use crate::config::TokenIssuer;

/// The owner of a credential.
pub(super) enum Bearer<'a> {
    Operator,
    Key(Box<KeyRow>),
    Token(Box<TokenUser>, &'a TokenIssuer),
}

/// Why a credential names nobody.
pub(super) enum NoBearer {
    /// It is wrong, and may be a guess.
    Wrong(ApiError),
    /// It was right once, or could not be checked.
    Other(ApiError),
}

impl From<StoreError> for NoBearer {
    fn from(error: StoreError) -> Self {
        Self::Other(error.into())
    }
}

/// Finds the owner of a credential. `address` is `None` where it is not known.
pub(super) async fn find<'a>(app: &'a App, address: Option<IpAddr>, credential: &str) -> Result<Bearer<'a>, NoBearer> {
    if is_operator(app, credential) {
        return Ok(Bearer::Operator);
    }
    if !jwt::looks_like_token(credential) {
        return Ok(Bearer::Key(Box::new(find_key(app, address, credential).await?)));
    }
    if app.tokens.is_empty() {
        return Err(NoBearer::Wrong(ApiError::unauthorized(
            "No issuer of tokens is trusted here; the operator sets SUPABASE_URL, SUPABASE_JWT_SECRET or [auth.jwt].",
        )));
    }
    match app.tokens.verify(credential).await {
        Ok((token, issuer)) => Ok(Bearer::Token(Box::new(token), issuer)),
        Err(fault @ TokenFault::Refused(_)) => Err(NoBearer::Wrong(refused_token(fault))),
        Err(fault @ (TokenFault::Expired | TokenFault::KeysUnavailable)) => Err(NoBearer::Other(refused_token(fault))),
    }
}

async fn find_key(app: &App, address: Option<IpAddr>, credential: &str) -> Result<KeyRow, NoBearer> {
    let refused = || NoBearer::Wrong(ApiError::unauthorized("This key is unknown, deleted, expired or not for this address."));
    if !credential.starts_with(KEY_PREFIX) {
        return Err(refused());
    }
    let key = app.store.key_by_digest(KeyDigest::of(credential)).await?.ok_or_else(refused)?;
    if !access::allows(&key, address) {
        tracing::info!(key_id = %key.id, ?address, "a key was refused: its allow_ips do not name the address");
        return Err(refused());
    }
    match app.config.auth.key_ends(&key) {
        Some(end) if end <= app.clock.now() => Err(refused()),
        Some(_) | None => Ok(key),
    }
}

/// The error for a token that is not accepted.
pub(super) fn refused_token(fault: TokenFault) -> ApiError {
    match fault {
        TokenFault::Refused(reason) => ApiError::unauthorized(format!("The token is refused: {reason}.")),
        TokenFault::Expired => ApiError::unauthorized("The token is refused: it has expired."),
        TokenFault::KeysUnavailable => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "token_keys_unavailable",
            "The keys of the token's issuer cannot be read right now; try again.",
        )
        .retry_after_ms(2000),
    }
}

/// Counts one request of a credential, at most once.
pub(super) struct RequestCount<'a> {
    app: &'a App,
    /// `None` for the operator, who is not limited.
    subject: Option<(werkruf_contract::Uuid, RateSubject)>,
    rate: Rate,
    taken: bool,
}

impl<'a> RequestCount<'a> {
    pub(super) fn of(app: &'a App, bearer: &Bearer<'_>) -> Self {
        let limits = app.config.requests;
        let (subject, per_minute) = match bearer {
            Bearer::Operator => (None, 0),
            Bearer::Key(key) => (Some((key.tenant_id, RateSubject::Key(key.id))), limits.per_minute_key),
            // No tenant: the one that the token names may not exist.
            Bearer::Token(token, _) => {
                (Some((werkruf_contract::Uuid::nil(), RateSubject::User(token.subject.clone()))), limits.per_minute_user)
            }
        };
        Self { app, subject, rate: Rate::of_requests(per_minute), taken: false }
    }

    /// Refuses a credential that is over its limit, before anything is looked up for it.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        let Some((tenant_id, subject)) = &self.subject else { return Ok(()) };
        self.app.access.rates.check(*tenant_id, subject.clone(), self.rate).map_err(access::too_many)
    }

    pub(super) async fn take(&mut self) -> Result<(), ApiError> {
        let Some((tenant_id, subject)) = self.subject.as_ref().filter(|_| !self.taken) else { return Ok(()) };
        self.taken = true;
        self.app.access.rates.take(*tenant_id, subject.clone(), self.rate).await.map_err(access::too_many)
    }
}
