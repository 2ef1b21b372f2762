//! The issuers whose tokens are accepted: Supabase by its two variables, any other issuer by `[auth.jwt]`.

use secrecy::{ExposeSecret, SecretString};

use super::environment::{Environment, Variable};
use super::file::Document;
use super::model::address_fault;
use super::violation::ConfigViolation;

const SECRET_CHARACTERS: usize = 16;
/// The suffix of every Supabase issuer.
const AUTH_PATH: &str = "/auth/v1";
/// Claims that only the issuer can write, not the users.
const TENANT_CLAIMS: [&str; 2] = ["app_metadata.tenant_id", "app_metadata.tenant"];
const ROLES_CLAIMS: [&str; 2] = ["app_metadata.roles", "app_metadata.role"];
const DEFAULT_TENANT: &str = "demo";
/// Claims that users of Supabase can write themselves.
const SELF_WRITTEN: [&str; 2] = ["user_metadata", "raw_user_meta_data"];

/// Which extra rules apply to the tokens of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuerKind {
    /// `role` is `authenticated`, `sub` a UUID.
    Supabase,
    Other,
}

/// An issuer of tokens.
#[derive(Debug, Clone)]
pub struct TokenIssuer {
    pub kind: IssuerKind,
    /// `None`: only a secret is known, and every issuer `…/auth/v1` that signs with the secret is accepted.
    pub issuer: Option<String>,
    pub audience: String,
    /// The HS256 secret.
    pub secret: Option<SecretString>,
    /// Where the public keys are.
    pub jwks_url: Option<String>,
    /// The first claim that is present is used. A dot separates the names of nested objects.
    pub tenant_claims: Vec<String>,
    pub roles_claims: Vec<String>,
    /// The tenant of a token that names none.
    pub tenant: String,
    pub unknown_roles: UnknownRoles,
}

/// What to do with a token that names a role which its tenant does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownRoles {
    /// 403 `unknown_role`.
    #[default]
    Deny,
    /// The other roles count.
    Ignore,
}

pub(super) fn merge(document: &Document, environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Vec<TokenIssuer> {
    match (supabase(environment, violations), other(document, violations)) {
        (Some(project), Some(other)) if is_project(&project, &other) => vec![with_section(document, project, other)],
        (project, other) => project.into_iter().chain(other).collect(),
    }
}

/// Whether `[auth.jwt]` describes the Supabase project itself.
fn is_project(project: &TokenIssuer, other: &TokenIssuer) -> bool {
    match (&project.issuer, &other.issuer) {
        (Some(project), Some(other)) => project == other,
        (None, Some(other)) => other.ends_with(AUTH_PATH),
        (_, None) => false,
    }
}

/// The project with the settings of `[auth.jwt]`, such as another key address or other claims.
fn with_section(document: &Document, mut project: TokenIssuer, other: TokenIssuer) -> TokenIssuer {
    if let Some(section) = &document.file.auth.jwt {
        if section.tenant_claim.is_some() {
            project.tenant_claims = other.tenant_claims;
        }
        if section.roles_claim.is_some() {
            project.roles_claims = other.roles_claims;
        }
    }
    project.issuer = other.issuer;
    project.jwks_url = other.jwks_url;
    project.audience = other.audience;
    project.tenant = other.tenant;
    project.unknown_roles = other.unknown_roles;
    project
}

fn supabase(environment: &Environment, violations: &mut Vec<ConfigViolation>) -> Option<TokenIssuer> {
    let url = environment.get(Variable::SUPABASE_URL).map(|url| url.trim().trim_end_matches('/'));
    let secret = environment.get(Variable::SUPABASE_JWT_SECRET).map(SecretString::from);
    if let Some(url) = url
        && address_fault(url).is_some()
    {
        let message = "must start with http:// or https:// and name a host, such as https://abcdefgh.supabase.co";
        violations.push(ConfigViolation::new(Variable::SUPABASE_URL.name(), message));
    }
    if secret.as_ref().is_some_and(|secret| secret.expose_secret().chars().count() < SECRET_CHARACTERS) {
        let message = format!("is shorter than {SECRET_CHARACTERS} characters; copy the JWT secret of the project, not one of its keys");
        violations.push(ConfigViolation::new(Variable::SUPABASE_JWT_SECRET.name(), message));
    }
    if url.is_none() && secret.is_none() {
        return None;
    }
    let issuer = url.map(|url| format!("{url}{AUTH_PATH}"));
    Some(TokenIssuer {
        kind: IssuerKind::Supabase,
        jwks_url: issuer.as_ref().map(|issuer| format!("{issuer}/.well-known/jwks.json")),
        issuer,
        audience: "authenticated".to_owned(),
        secret,
        tenant_claims: TENANT_CLAIMS.map(str::to_owned).to_vec(),
        roles_claims: ROLES_CLAIMS.map(str::to_owned).to_vec(),
        tenant: DEFAULT_TENANT.to_owned(),
        unknown_roles: UnknownRoles::Deny,
    })
}

fn other(document: &Document, violations: &mut Vec<ConfigViolation>) -> Option<TokenIssuer> {
    let section = document.file.auth.jwt.as_ref()?;
    let mut required = |name: &str, value: &Option<String>, example: &str| {
        let value = value.as_deref().map(str::trim).filter(|value| !value.is_empty());
        if value.is_none() {
            violations.push(document.violation(&format!("/auth/jwt/{name}"), format!("is missing; write {name} = \"{example}\"")));
        }
        value.unwrap_or_default().to_owned()
    };
    let issuer = required("issuer", &section.issuer, "https://login.example.org");
    let audience = required("audience", &section.audience, "werkruf");
    let jwks_url = section.jwks_url.clone().unwrap_or_else(|| format!("{}/.well-known/jwks.json", issuer.trim_end_matches('/')));
    if !issuer.is_empty() && address_fault(&jwks_url).is_some() {
        violations.push(document.violation("/auth/jwt/jwks_url", "must start with http:// or https:// and name a host"));
    }
    let mut claims = |name: &str, value: &Option<String>, default: &str, also: [&str; 2]| {
        let Some(claim) = value.clone() else {
            return [default].into_iter().chain(also).map(str::to_owned).collect();
        };
        if SELF_WRITTEN.contains(&claim.split('.').next().unwrap_or_default()) {
            let message = "is written by the users themselves; name a claim only the issuer writes, such as app_metadata.tenant_id";
            violations.push(document.violation(&format!("/auth/jwt/{name}"), message));
        }
        if claim.is_empty() { Vec::new() } else { vec![claim] }
    };
    let (tenant_claims, roles_claims) = (
        claims("tenant_claim", &section.tenant_claim, "tenant_id", TENANT_CLAIMS),
        claims("roles_claim", &section.roles_claim, "roles", ROLES_CLAIMS),
    );
    let unknown_roles = match section.unknown_roles.as_deref() {
        None | Some("deny") => UnknownRoles::Deny,
        Some("ignore") => UnknownRoles::Ignore,
        Some(word) => {
            let message = format!("`{word}` is unknown; write \"deny\" or \"ignore\"");
            violations.push(document.violation("/auth/jwt/unknown_roles", message));
            UnknownRoles::Deny
        }
    };
    Some(TokenIssuer {
        kind: IssuerKind::Other,
        tenant_claims,
        roles_claims,
        unknown_roles,
        issuer: Some(issuer),
        audience,
        secret: None,
        jwks_url: Some(jwks_url),
        tenant: section.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
    })
}
