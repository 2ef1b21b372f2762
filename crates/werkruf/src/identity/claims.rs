//! Checks the claims of a token, and reads the user from them. No I/O.
//!
//! Tenant and roles are read only from claims that the configuration names. For Supabase these claims are in `app_metadata`, because
//! users can write `user_metadata` themselves.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;
use werkruf_store::TokenRoles;

use super::jwt::TokenFault;
use crate::config::{IssuerKind, TokenIssuer};

/// Tolerance for clocks that differ, in seconds.
const LEEWAY_S: f64 = 30.0;
const MAX_SUBJECT_BYTES: usize = 255;

/// The user that a token names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// `users.external_id`.
    pub subject: String,
    /// Slug or id; `None` if the claim is missing.
    pub tenant: Option<String>,
    /// `None` if the token has no claim for roles.
    pub roles: Option<TokenRoles>,
    /// The token is rejected from this time on.
    pub until: Timestamp,
}

type Claims = Map<String, Value>;

/// Whether the claim `iss` names this issuer.
pub(super) fn is_from(issuer: &TokenIssuer, claims: &Claims) -> bool {
    let Some(named) = claims.get("iss").and_then(Value::as_str) else { return false };
    match &issuer.issuer {
        Some(expected) => named == expected,
        // Only the secret is configured. It belongs to one Supabase project, whose URL is not known here.
        None => named.ends_with("/auth/v1"),
    }
}

/// Checks all claims except the issuer.
pub(super) fn check(issuer: &TokenIssuer, claims: &Claims, now: Timestamp) -> Result<(), TokenFault> {
    let refused = |reason| Err(TokenFault::Refused(reason));
    if now >= end(claims)? {
        return Err(TokenFault::Expired);
    }
    let now_s = now.as_duration().as_secs_f64();
    match claims.get("nbf") {
        None | Some(Value::Null) => {}
        Some(begins) if begins.as_f64().is_some_and(|begins| now_s >= begins - LEEWAY_S) => {}
        Some(_) => return refused("it is not valid yet"),
    }
    let audience = match claims.get("aud") {
        Some(Value::String(one)) => *one == issuer.audience,
        Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(&issuer.audience)),
        _ => false,
    };
    let role = claims.get("role").and_then(Value::as_str);
    if matches!(role, Some("anon" | "service_role")) {
        return refused("anon and service_role keys stand for no user");
    }
    if !audience {
        return refused("it is meant for another audience");
    }
    if issuer.kind == IssuerKind::Supabase && role != Some("authenticated") {
        return refused("its role is not `authenticated`");
    }
    subject(issuer, claims).map(|_| ())
}

/// When the token expires, leeway included. Its roles are valid exactly as long as the token is accepted.
fn end(claims: &Claims) -> Result<Timestamp, TokenFault> {
    let expires = claims.get("exp").and_then(Value::as_f64).ok_or(TokenFault::Refused("it has no time of expiry"))?;
    let end = SignedDuration::try_from_secs_f64(expires + LEEWAY_S).ok().and_then(|end| Timestamp::from_duration(end).ok());
    // Whole milliseconds, as in the clock and the tables.
    let end = end.and_then(|end| Timestamp::from_millisecond(end.as_millisecond()).ok());
    Ok(end.unwrap_or(if expires > 0.0 { Timestamp::MAX } else { Timestamp::MIN }))
}

fn subject(issuer: &TokenIssuer, claims: &Claims) -> Result<String, TokenFault> {
    let refused = TokenFault::Refused("it names no user");
    let subject = claims.get("sub").and_then(Value::as_str).ok_or(refused)?;
    let fits = match issuer.kind {
        IssuerKind::Supabase => Uuid::try_parse(subject).is_ok(),
        IssuerKind::Other => !subject.is_empty() && subject.len() <= MAX_SUBJECT_BYTES,
    };
    if fits { Ok(subject.to_owned()) } else { Err(refused) }
}

/// The user of a checked token.
pub(super) fn token_user(issuer: &TokenIssuer, claims: &Claims, guest_role: &str) -> Result<TokenUser, TokenFault> {
    let until = end(claims)?;
    // A tenant claim of the wrong type is an error. Only a missing one means the default tenant.
    let tenant = match issuer.tenant_claims.iter().find_map(|name| claim(claims, name)) {
        Some(value) => Some(text(value).ok_or(TokenFault::Refused("its claim for the tenant is not the name of one"))?),
        None => None,
    };
    let anonymous = claims.get("is_anonymous").and_then(Value::as_bool) == Some(true);
    let roles = if anonymous {
        // An anonymous sign-in never gets more than the guest role, whatever the token or the table says.
        Some(TokenRoles { names: vec![guest_role.to_owned()], only: true, until })
    } else {
        let value = issuer.roles_claims.iter().find_map(|name| claim(claims, name)).map(names).transpose()?;
        // An empty list means no roles at all; it also overrides the roles in the table.
        value.map(|names| TokenRoles { only: names.is_empty(), names, until })
    };
    Ok(TokenUser { subject: subject(issuer, claims)?, tenant, roles, until })
}

/// A claim by its name or by its path, such as `app_metadata.tenant_id`. Some issuers use names with dots, so the name is tried first.
fn claim<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    let found = match claims.get(name) {
        Some(found) => Some(found),
        None => {
            let (outer, inner) = name.split_once('.')?;
            claim(claims.get(outer)?.as_object()?, inner)
        }
    };
    found.filter(|value| !value.is_null())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

/// Parses a list of names, or one text with names separated by commas.
fn names(value: &Value) -> Result<Vec<String>, TokenFault> {
    let mut names: Vec<String> = match value {
        Value::Array(many) => many.iter().filter_map(text).collect(),
        Value::String(text) => text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        _ => return Err(TokenFault::Refused("its claim for roles is neither a list nor a text")),
    };
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
