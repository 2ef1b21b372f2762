//! An MCP server with accounts of people, and its authorization server.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

/// What the server has seen, and how it answers.
#[derive(Default)]
pub struct Accounts {
    /// Who logs in next.
    pub next: String,
    /// Tokens that are accepted, with their account and scope.
    pub tokens: HashMap<String, (String, String)>,
    refresh_tokens: HashMap<String, (String, String)>,
    codes: HashMap<String, (String, HashMap<String, String>)>,
    pub lifetime_s: i64,
    pub refuse_renewal: bool,
    pub decline: bool,
    pub renewals: usize,
    pub registrations: usize,
    pub revoked: Vec<String>,
    /// The tokens that calls came with.
    pub callers: Vec<String>,
    /// Answers with metadata or tokens, and to revocations, wait for as long as this is true; the request itself has had its effect.
    pub hold: bool,
    /// Requests whose answer waits.
    pub held: usize,
    /// How often somebody has asked for the metadata of the authorization server.
    pub discoveries: usize,
    /// Codes that came to the token endpoint of the false authorization server.
    pub stolen: usize,
    /// Whether a session of one account was used with a token of another one.
    pub mixed: bool,
    sessions: HashMap<String, String>,
    /// Fields of the metadata that differ.
    pub resource_metadata: Value,
    pub server_metadata: Value,
    issued: usize,
}

#[derive(Clone)]
struct Shared {
    url: String,
    accounts: Arc<Mutex<Accounts>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap()
    }

    /// Waits while answers are held.
    async fn answer(&self) {
        let holds = |shared: &Self| shared.lock().hold;
        if holds(self) {
            self.lock().held += 1;
            while holds(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.lock().held -= 1;
        }
    }
}

pub struct AccountServer(Shared);

impl AccountServer {
    #[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let accounts = Accounts { lifetime_s: 3600, next: "ada".to_owned(), ..Accounts::default() };
        let shared = Shared { url, accounts: Arc::new(Mutex::new(accounts)) };
        let router = Router::new()
            .route("/mcp", post(mcp))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server/login", get(server_metadata))
            .route("/.well-known/oauth-authorization-server/false", get(false_metadata))
            .route("/steal", post(steal))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self(shared)
    }

    /// Its declaration, with further lines.
    pub fn tool(&self, more: &str) -> String {
        format!(
            "[[tools]]\nkind = 'mcp'\nname = 'calendar'\nurl = '{}/mcp'\nauth = 'oauth'\npermission = 'none'\neffect = 'once'\n{more}\n",
            self.0.url
        )
    }

    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Waits until the answers of so many requests wait.
    pub async fn holds(&self, requests: usize) {
        tokio::time::timeout(Duration::from_secs(20), async {
            while self.0.lock().held < requests {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the requests have come");
    }

    pub fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock()
    }
}

fn merged(mut whole: Value, other: &Value) -> Json<Value> {
    for (name, value) in other.as_object().into_iter().flatten() {
        whole[name] = value.clone();
    }
    Json(whole)
}

/// A form is written like a query.
fn form(body: &str) -> HashMap<String, String> {
    Query::try_from_uri(&format!("/?{body}").parse().unwrap()).unwrap().0
}

async fn resource_metadata(State(shared): State<Shared>) -> Json<Value> {
    let url = &shared.url;
    let whole = json!({"resource": format!("{url}/mcp"), "authorization_servers": [format!("{url}/login")], "scopes_supported": ["read"]});
    merged(whole, &shared.lock().resource_metadata)
}

async fn server_metadata(State(shared): State<Shared>) -> Json<Value> {
    let url = &shared.url;
    shared.lock().discoveries += 1;
    shared.answer().await;
    let whole = json!({"issuer": format!("{url}/login"), "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"), "revocation_endpoint": format!("{url}/revoke"),
        "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "authorization_response_iss_parameter_supported": true});
    merged(whole, &shared.lock().server_metadata)
}

/// An authorization server that people do not know: its login page is the one they know, and it gets their codes.
async fn false_metadata(State(shared): State<Shared>) -> Json<Value> {
    let url = &shared.url;
    Json(
        json!({"issuer": format!("{url}/false"), "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/steal"),
        "registration_endpoint": format!("{url}/register"), "code_challenge_methods_supported": ["S256"]}),
    )
}

async fn steal(State(shared): State<Shared>) -> StatusCode {
    shared.lock().stolen += 1;
    StatusCode::BAD_REQUEST
}

async fn register(State(shared): State<Shared>, Json(body): Json<Value>) -> Response {
    shared.lock().registrations += 1;
    let known = json!({"client_id": "client-1", "client_secret": "client-secret-1", "redirect_uris": body["redirect_uris"],
        "token_endpoint_auth_method": body["token_endpoint_auth_method"]});
    (StatusCode::CREATED, Json(known)).into_response()
}

/// The person agrees at once.
async fn authorize(State(shared): State<Shared>, Query(query): Query<HashMap<String, String>>) -> Response {
    let mut accounts = shared.lock();
    assert_eq!((query["response_type"].as_str(), query["code_challenge_method"].as_str()), ("code", "S256"));
    assert_eq!((query["client_id"].as_str(), query["resource"].clone()), ("client-1", format!("{}/mcp", shared.url)));
    let issuer = accounts.server_metadata["issuer"].as_str().map_or_else(|| format!("{}/login", shared.url), str::to_owned);
    let issuer = issuer.replace(':', "%3A").replace('/', "%2F");
    let back = format!("{}?state={}&iss={issuer}", query["redirect_uri"], query["state"]);
    if accounts.decline {
        return (StatusCode::FOUND, [("location", format!("{back}&error=access_denied"))]).into_response();
    }
    accounts.issued += 1;
    let (code, account) = (format!("code-{}", accounts.issued), accounts.next.clone());
    accounts.codes.insert(code.clone(), (account, query));
    (StatusCode::FOUND, [("location", format!("{back}&code={code}"))]).into_response()
}

async fn token(State(shared): State<Shared>, body: String) -> Response {
    let answer = issue(&shared, &form(&body));
    shared.answer().await;
    answer
}

fn issue(shared: &Shared, form: &HashMap<String, String>) -> Response {
    let mut accounts = shared.lock();
    let refused = || (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    assert_eq!((form["client_id"].as_str(), form["client_secret"].as_str()), ("client-1", "client-secret-1"));
    assert_eq!(form["resource"], format!("{}/mcp", shared.url));
    let (account, scope) = if form["grant_type"] == "refresh_token" {
        accounts.renewals += 1;
        match accounts.refresh_tokens.remove(&form["refresh_token"]) {
            Some(known) if !accounts.refuse_renewal => known,
            _ => return refused(),
        }
    } else {
        let Some((account, query)) = accounts.codes.remove(&form["code"]) else { return refused() };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"]));
        if challenge != query["code_challenge"] || form["redirect_uri"] != query["redirect_uri"] {
            return refused();
        }
        (account, query.get("scope").cloned().unwrap_or_default())
    };
    accounts.issued += 1;
    let (access, refresh) = (format!("access-{account}-{}", accounts.issued), format!("refresh-{account}-{}", accounts.issued));
    accounts.tokens.insert(access.clone(), (account.clone(), scope.clone()));
    accounts.refresh_tokens.insert(refresh.clone(), (account, scope.clone()));
    let answer = json!({"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": accounts.lifetime_s, "scope": scope});
    Json(answer).into_response()
}

async fn revoke(State(shared): State<Shared>, body: String) -> StatusCode {
    let form = form(&body);
    shared.lock().revoked.push(form["token"].clone());
    shared.answer().await;
    StatusCode::OK
}

/// A server of the older protocol. A session belongs to an account.
async fn mcp(State(shared): State<Shared>, request: Request) -> Response {
    let bearer = request.headers().get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).map(str::to_owned);
    let session = request.headers().get("mcp-session-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&bytes).unwrap();
    let known = bearer.and_then(|token| shared.lock().tokens.get(&token).cloned().map(|known| (token, known)));
    let metadata = format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", shared.url);
    let Some((token, (account, scope))) = known else {
        return (StatusCode::UNAUTHORIZED, [("www-authenticate", format!("Bearer {metadata}"))]).into_response();
    };
    if let Some(owner) = session.and_then(|id| shared.lock().sessions.get(&id).cloned()) {
        let mut accounts = shared.lock();
        accounts.mixed |= owner != account;
    }
    let result = match message["method"].as_str().unwrap() {
        "initialize" => {
            let info =
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "calendar", "version": "1"}});
            let mut accounts = shared.lock();
            let id = format!("session-{}", accounts.sessions.len());
            accounts.sessions.insert(id.clone(), account);
            return ([("mcp-session-id", id)], Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": info}))).into_response();
        }
        "tools/list" => {
            let tool = |name: &str| json!({"name": name, "description": "Does something.", "inputSchema": {"type": "object"}});
            json!({"tools": [tool("owner"), tool("write")]})
        }
        "tools/call" => {
            let scopes: HashSet<&str> = scope.split(' ').collect();
            if message["params"]["name"] == "write" && !scopes.contains("write") {
                let header = format!("Bearer error=\"insufficient_scope\", scope=\"write\", {metadata}");
                return (StatusCode::FORBIDDEN, [("www-authenticate", header)]).into_response();
            }
            shared.lock().callers.push(token);
            json!({"content": [{"type": "text", "text": account}]})
        }
        method if message.get("id").is_none() => {
            assert!(method.starts_with("notifications/"));
            return StatusCode::ACCEPTED.into_response();
        }
        _ => {
            let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}});
            return Json(error).into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}
