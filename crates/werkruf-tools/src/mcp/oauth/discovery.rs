//! Finds the authorization server of an MCP server: RFC 9728, then RFC 8414 or OpenID Connect, and what the protocol said before them.

use reqwest::Url;
use serde_json::Value;

use super::addresses::{Addresses, LONGEST_URL};
use super::challenge::Challenge;
use super::fault::ConnectFault;
use super::http::{Answer, Http};

/// Most rights that are asked for, in bytes.
const LONGEST_SCOPE: usize = 4_096;

/// What is known about the authorization server.
#[derive(Debug, Clone)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorize: Url,
    pub(super) token: Url,
    pub(super) register: Option<Url>,
    pub(super) revoke: Option<Url>,
    /// How a client says who it is; empty where the server does not say.
    pub(super) auth_methods: Vec<String>,
    /// Whether every answer names its issuer (RFC 9207).
    pub(super) names_issuer: bool,
    /// Whether it gives tokens that outlive the presence of the person only with a right of that name.
    pub(super) has_offline_access: bool,
}

/// Where a person logs in, for what, and which rights are asked for.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    pub(super) server: AuthorizationServer,
    /// What the token is for (RFC 8707).
    pub(super) resource: String,
    /// The rights that the server names; `None` where it names none.
    pub(super) scope: Option<String>,
}

/// Asks the server who issues its tokens. With `wanted`, only that issuer is used: a server could name endpoints of its own beside the login page of
/// another issuer, and would get the codes of people.
pub(super) async fn discover(http: &Http, addresses: &Addresses, server: &Url, wanted: Option<&str>) -> Result<Discovered, ConnectFault> {
    let challenge = http.challenge(server).await?;
    let Some(resource) = resource_metadata(http, addresses, server, &challenge).await? else {
        let found = match wanted {
            Some(wanted) => of_issuer(http, addresses, wanted).await?,
            None => of_server_itself(http, addresses, server).await?,
        };
        return Ok(Discovered { server: found, resource: server.to_string(), scope: bounded(challenge.scope) });
    };
    let issuers = words(resource.get("authorization_servers"));
    let issuer = match wanted {
        Some(wanted) if issuers.iter().any(|issuer| is_same_issuer(issuer, wanted)) => wanted,
        Some(_) => return Err(ConnectFault::refused("The server does not name the authorization server of the configuration.")),
        None => {
            let first =
                issuers.first().ok_or_else(|| ConnectFault::refused("The metadata of the server names no authorization server."))?;
            first.as_str()
        }
    };
    let found = of_issuer(http, addresses, issuer).await?;
    let supported = words(resource.get("scopes_supported"));
    let named = resource.get("resource").and_then(Value::as_str).unwrap_or_default();
    Ok(Discovered {
        server: found,
        resource: named.to_owned(),
        scope: bounded(challenge.scope.or_else(|| (!supported.is_empty()).then(|| supported.join(" ")))),
    })
}

/// The protocol of 2025-03-26: the server is its own authorization server.
async fn of_server_itself(http: &Http, addresses: &Addresses, server: &Url) -> Result<AuthorizationServer, ConnectFault> {
    let base = at(server, "/")?;
    let issuer = base.as_str().trim_end_matches('/').to_owned();
    match metadata(http, addresses, &base, &issuer).await? {
        Some(found) => Ok(found),
        None => by_default(&base, issuer),
    }
}

async fn of_issuer(http: &Http, addresses: &Addresses, issuer: &str) -> Result<AuthorizationServer, ConnectFault> {
    let found = metadata(http, addresses, &addresses.check(issuer)?, issuer).await?;
    found.ok_or_else(|| ConnectFault::refused("The authorization server has no metadata."))
}

/// Whether two texts name one issuer. A slash at the end makes no difference: many servers write it in one place and leave it out in another, and the
/// metadata of both is at one address.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    let bare = |issuer: &str| issuer.strip_suffix('/').unwrap_or(issuer).to_owned();
    bare(one) == bare(other)
}

fn bounded(scope: Option<String>) -> Option<String> {
    scope.filter(|scope| scope.len() <= LONGEST_SCOPE && !scope.trim().is_empty())
}

/// The metadata of the protected resource, or `None` where the server has none.
async fn resource_metadata(http: &Http, addresses: &Addresses, server: &Url, challenge: &Challenge) -> Result<Option<Value>, ConnectFault> {
    let candidates = match &challenge.resource_metadata {
        Some(address) => vec![addresses.check(address)?],
        None => well_known(server, "oauth-protected-resource")?,
    };
    for candidate in candidates {
        let Some(found) = document(http.get(candidate).await?) else { continue };
        let named = found.get("resource").and_then(Value::as_str).filter(|text| text.len() <= LONGEST_URL);
        let named = named.and_then(|text| Url::parse(text).ok());
        if !named.is_some_and(|named| covers(&named, server)) {
            return Err(ConnectFault::refused("The metadata that the server names is that of another resource."));
        }
        return Ok(Some(found));
    }
    Ok(None)
}

/// Whether a token for the resource is one for the server: the same origin, and a path that is the beginning of the server's. RFC 8707 has no fragment.
fn covers(resource: &Url, server: &Url) -> bool {
    let folder = |url: &Url| format!("{}/", url.path().trim_end_matches('/'));
    resource.fragment().is_none() && resource.origin() == server.origin() && folder(server).starts_with(&folder(resource))
}

/// The metadata of an authorization server, where it has any. Its issuer must be the one that was asked for (RFC 8414): anybody else could answer with
/// endpoints of another issuer.
async fn metadata(http: &Http, addresses: &Addresses, base: &Url, issuer: &str) -> Result<Option<AuthorizationServer>, ConnectFault> {
    let mut candidates = well_known_of_issuer(base)?;
    candidates.dedup();
    for candidate in candidates {
        let Some(found) = document(http.get(candidate).await?) else { continue };
        let named = found.get("issuer").and_then(Value::as_str).unwrap_or_default();
        if !is_same_issuer(named, issuer) {
            return Err(ConnectFault::refused("The metadata of the authorization server names another issuer."));
        }
        // As it calls itself: so its answers call it too.
        return read(&found, addresses, named).map(Some);
    }
    Ok(None)
}

fn read(found: &Value, addresses: &Addresses, issuer: &str) -> Result<AuthorizationServer, ConnectFault> {
    let address = |name: &str| found.get(name).and_then(Value::as_str).map(|text| addresses.check(text)).transpose();
    let needed = |name: &str| address(name)?.ok_or_else(|| ConnectFault::refused(format!("The authorization server has no {name}.")));
    if !words(found.get("code_challenge_methods_supported")).iter().any(|method| method == "S256") {
        return Err(ConnectFault::refused("The authorization server does not protect codes (PKCE with S256)."));
    }
    Ok(AuthorizationServer {
        issuer: issuer.to_owned(),
        authorize: needed("authorization_endpoint")?,
        token: needed("token_endpoint")?,
        register: address("registration_endpoint")?,
        revoke: address("revocation_endpoint")?,
        auth_methods: words(found.get("token_endpoint_auth_methods_supported")),
        names_issuer: found.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
        has_offline_access: words(found.get("scopes_supported")).iter().any(|scope| scope == "offline_access"),
    })
}

/// The endpoints of a server without metadata, as the protocol of 2025-03-26 has them.
fn by_default(base: &Url, issuer: String) -> Result<AuthorizationServer, ConnectFault> {
    Ok(AuthorizationServer {
        issuer,
        authorize: at(base, "/authorize")?,
        token: at(base, "/token")?,
        register: Some(at(base, "/register")?),
        revoke: None,
        auth_methods: Vec::new(),
        names_issuer: false,
        has_offline_access: false,
    })
}

fn document(answer: Answer) -> Option<Value> {
    answer.body.filter(|body| answer.status.is_success() && body.is_object())
}

fn words(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn at(url: &Url, path: &str) -> Result<Url, ConnectFault> {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.join(path).map_err(|_| ConnectFault::refused("The address of the server has no path."))
}

/// With the path of the address behind the name, then without it.
fn well_known(url: &Url, name: &str) -> Result<Vec<Url>, ConnectFault> {
    let path = url.path().trim_end_matches('/');
    let mut found = vec![at(url, &format!("/.well-known/{name}{path}"))?];
    if !path.is_empty() {
        found.push(at(url, &format!("/.well-known/{name}"))?);
    }
    Ok(found)
}

/// RFC 8414 with the path behind, then OpenID Connect with the path behind and before.
fn well_known_of_issuer(issuer: &Url) -> Result<Vec<Url>, ConnectFault> {
    let path = issuer.path().trim_end_matches('/');
    let mut found = vec![
        at(issuer, &format!("/.well-known/oauth-authorization-server{path}"))?,
        at(issuer, &format!("/.well-known/openid-configuration{path}"))?,
    ];
    if !path.is_empty() {
        found.push(at(issuer, &format!("{path}/.well-known/openid-configuration"))?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{covers, well_known, well_known_of_issuer};

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn metadata_is_looked_for_in_the_order_of_the_protocol() {
        let texts = |found: Vec<Url>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts(well_known(&url("https://a.example/b/mcp?x=1"), "oauth-protected-resource").unwrap()),
            ["https://a.example/.well-known/oauth-protected-resource/b/mcp", "https://a.example/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            texts(well_known_of_issuer(&url("https://a.example/t")).unwrap()),
            [
                "https://a.example/.well-known/oauth-authorization-server/t",
                "https://a.example/.well-known/openid-configuration/t",
                "https://a.example/t/.well-known/openid-configuration"
            ]
        );
        assert_eq!(well_known_of_issuer(&url("https://a.example")).unwrap().len(), 2);
    }

    #[test]
    fn a_resource_covers_what_is_below_it() {
        let server = url("https://a.example/b/mcp");
        for resource in ["https://a.example", "https://a.example/b", "https://a.example/b/mcp/"] {
            assert!(covers(&url(resource), &server), "{resource}");
        }
        for other in
            ["https://b.example", "https://a.example/b#x", "http://a.example/b", "https://a.example/b/m", "https://a.example/b/mcp/x"]
        {
            assert!(!covers(&url(other), &server), "{other}");
        }
    }
}
