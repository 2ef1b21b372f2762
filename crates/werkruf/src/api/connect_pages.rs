//! The pages that a link of `connect` leads through: what is asked, the way to the login, and the answer.
//!
//! Nobody needs a credential here. The link says for whom it is; the browser that opened it is the only one that can finish it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT_LANGUAGE, CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use werkruf_contract::{Principal, Texts};
use werkruf_store::{Actor, Author, ConnectionKey, KeyDigest};
use werkruf_tools::{ConnectFault, FaultKind, LoginAnswer, PersonalServer};

use super::{ApiError, ApiState, pages};
use crate::app::App;
use crate::listen::client_address;

/// A cookie of these pages.
struct Cookie {
    name: &'static str,
    path: &'static str,
    same_site: &'static str,
}

/// Says which browser opened a link. `Lax`: the browser comes back from another server.
const BROWSER_COOKIE: Cookie = Cookie { name: "werkruf_connect", path: "/oauth/callback", same_site: "Lax" };
/// Says that this browser has shown the page of a link. `Strict`: a link of another site to the next page does not have it.
const PAGE_COOKIE: Cookie = Cookie { name: "werkruf_connect_page", path: "/connect", same_site: "Strict" };
/// As long as a link.
const COOKIE_SECONDS: u32 = 600;
/// A token has 43 characters.
const LONGEST_TOKEN: usize = 100;
/// A longer code or issuer is none.
const LONGEST_FIELD: usize = 4_096;

pub(crate) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/connect/{token}", get(ask)).route("/connect/{token}/open", get(open)).route("/oauth/callback", get(finish))
}

/// The person and the server of a link that waits.
struct Waiting {
    person: Arc<Principal>,
    server: Arc<PersonalServer>,
}

async fn waiting(app: &App, token: &str) -> Result<Option<Waiting>, ApiError> {
    if token.len() > LONGEST_TOKEN {
        return Ok(None);
    }
    let request = app.database.connections().connection_link(KeyDigest::of(token), app.clock.now()).await?;
    let Some(request) = request else { return Ok(None) };
    Ok(known(app, &request.key).await?.map(|(person, server)| Waiting { person, server }))
}

/// The person and the server of a key, if both still exist.
async fn known(app: &App, key: &ConnectionKey) -> Result<Option<(Arc<Principal>, Arc<PersonalServer>)>, ApiError> {
    let person = app.people().principal(key.tenant_id, key.user_id.clone()).await?;
    let server = app.modules.mcp.personal(&key.server);
    Ok(person.zip(server).filter(|(person, server)| server.serves(person)))
}

/// `GET /connect/{token}`: says who connects what. Programs that look at links do not use them up.
async fn ask(State(api): State<Arc<ApiState>>, Path(token): Path<String>, request: Request) -> Response {
    match waiting(&api.app, &token).await {
        Ok(Some(Waiting { person, server })) => {
            let texts = Texts::of(&person.locale);
            let values = [("server", server.name().into()), ("host", server.host().into()), ("person", person.name.as_str().into())];
            let lines = ["connect-ask", "connect-warning"].map(|key| texts.text(key, &values));
            let mut response = page(StatusCode::OK, &texts, &lines, Some(&format!("/connect/{}/open", escaped(&token))));
            if let Ok(shown) = cookie(&api.app, &PAGE_COOKIE, &shown_mark(&token), COOKIE_SECONDS) {
                response.headers_mut().insert(SET_COOKIE, shown);
            }
            response
        }
        Ok(None) => gone(request.headers()),
        Err(error) => error.into_response(),
    }
}

/// `GET /connect/{token}/open`: uses the link, and sends the browser to the login. A browser that has not shown the page of the link is sent to
/// that page: it says whose account is connected, and a stranger who sends a link must not be able to skip it.
async fn open(State(api): State<Arc<ApiState>>, Path(token): Path<String>, request: Request) -> Response {
    let opens_page = request.headers().get("sec-fetch-dest").is_none_or(|kind| kind == "document");
    if *request.method() == Method::HEAD || !opens_page {
        return gone(request.headers());
    }
    let found = match waiting(&api.app, &token).await {
        Ok(Some(found)) => found,
        Ok(None) => return gone(request.headers()),
        Err(error) => return error.into_response(),
    };
    if cookie_of(&api.app, request.headers(), &PAGE_COOKIE) != Some(shown_mark(&token)) {
        let Ok(location) = HeaderValue::from_str(&format!("/connect/{token}")) else { return gone(request.headers()) };
        return pages::guarded((StatusCode::SEE_OTHER, [(LOCATION, location), no_store()]).into_response());
    }
    let Waiting { person, server } = found;
    let (texts, name) = (Texts::of(&person.locale), server.name().to_owned());
    // A try is counted, so it goes on when the browser leaves.
    let opened = match api.run_detached(async move { server.open_link(&token).await }).await {
        Ok(opened) => opened,
        Err(error) => return error.into_response(),
    };
    match opened {
        Ok(login) => {
            let (Ok(location), Ok(cookie)) =
                (HeaderValue::from_str(&login.location), cookie(&api.app, &BROWSER_COOKIE, &login.browser, COOKIE_SECONDS))
            else {
                return ApiError::internal().into_response();
            };
            let headers = [(LOCATION, location), (SET_COOKIE, cookie), no_store()];
            pages::guarded((StatusCode::SEE_OTHER, headers).into_response())
        }
        Err(fault) => failed(&texts, &name, &fault),
    }
}

/// `GET /oauth/callback`: the answer of the login. The person is the one of the link.
async fn finish(State(api): State<Arc<ApiState>>, request: Request) -> Response {
    let address = client_address(request.extensions(), request.headers(), &api.proxies);
    let query = AnswerQuery::read(request.uri());
    let (Some(state), Some(browser)) = (query.state, cookie_of(&api.app, request.headers(), &BROWSER_COOKIE)) else {
        return gone(request.headers());
    };
    if *request.method() == Method::HEAD {
        return gone(request.headers());
    }
    let app = Arc::clone(&api.app);
    let taken = app.database.connections().take_connection_request(KeyDigest::of(&state), KeyDigest::of(&browser), app.clock.now()).await;
    let link = match taken {
        Ok(Some(link)) => link,
        Ok(None) => return gone(request.headers()),
        Err(error) => return ApiError::from(error).into_response(),
    };
    let (person, server) = match known(&app, &link.key).await {
        Ok(Some(known)) => known,
        Ok(None) => return gone(request.headers()),
        Err(error) => return error.into_response(),
    };
    let actor = Actor { user_id: Some(person.user_id.clone()), key_id: None, operator: false };
    let author = Author { actor, address: address.map(|address| address.to_string()) };
    let (texts, name) = (Texts::of(&person.locale), server.name().to_owned());
    // A code works once, so the exchange goes on when the browser leaves.
    let finished = api.run_detached(async move { server.finish(link, query.answer, author).await }).await;
    let mut response = match finished {
        Ok(Ok(())) => page(StatusCode::OK, &texts, &[texts.text("connect-done", &[("server", name.as_str().into())])], None),
        Ok(Err(fault)) => failed(&texts, &name, &fault),
        Err(error) => error.into_response(),
    };
    if let Ok(ended) = cookie(&app, &BROWSER_COOKIE, "", 0) {
        response.headers_mut().insert(SET_COOKIE, ended);
    }
    response
}

/// The fields of an answer.
#[derive(Default)]
struct AnswerQuery {
    state: Option<String>,
    answer: LoginAnswer,
}

impl AnswerQuery {
    /// Reads the fields that are known. A field that comes twice makes the answer unusable.
    fn read(uri: &Uri) -> Self {
        let mut read = Self::default();
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        for (name, value) in pairs {
            let slot = match name.as_str() {
                "state" => &mut read.state,
                "code" => &mut read.answer.code,
                "error" => &mut read.answer.error,
                "iss" => &mut read.answer.issuer,
                _ => continue,
            };
            if slot.is_some() || value.len() > LONGEST_FIELD {
                return Self::default();
            }
            *slot = Some(value);
        }
        read
    }
}

fn shown_mark(token: &str) -> String {
    KeyDigest::of(&format!("page {token}")).0
}

fn is_encrypted(app: &App) -> bool {
    app.base_url().starts_with("https://")
}

/// With the prefix a browser takes the cookie from this very host only: a page on another name of the same domain could set one otherwise.
fn cookie_name(app: &App, cookie: &Cookie) -> String {
    format!("{}{}", if is_encrypted(app) { "__Host-" } else { "" }, cookie.name)
}

fn cookie_of(app: &App, headers: &HeaderMap, cookie: &Cookie) -> Option<String> {
    let wanted = cookie_name(app, cookie);
    let lists = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lists.flat_map(|list| list.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == wanted && !value.is_empty()).then(|| value.to_owned()))
}

fn cookie(app: &App, cookie: &Cookie, value: &str, seconds: u32) -> Result<HeaderValue, ApiError> {
    // The prefix demands this path.
    let (path, secure) = if is_encrypted(app) { ("/", "; Secure") } else { (cookie.path, "") };
    let (name, same_site) = (cookie_name(app, cookie), cookie.same_site);
    let text = format!("{name}={value}; Path={path}; SameSite={same_site}; HttpOnly; Max-Age={seconds}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(|_| ApiError::internal())?;
    value.set_sensitive(true);
    Ok(value)
}

fn failed(texts: &Texts, server: &str, fault: &ConnectFault) -> Response {
    let (status, key) = match fault.kind {
        FaultKind::Gone | FaultKind::NeedsConnection => (StatusCode::GONE, "connect-gone"),
        FaultKind::Busy => (StatusCode::CONFLICT, "connect-busy"),
        FaultKind::Declined => (StatusCode::OK, "connect-declined"),
        FaultKind::Refused => (StatusCode::BAD_GATEWAY, "connect-failed"),
        FaultKind::Installation => (StatusCode::BAD_GATEWAY, "connect-unready"),
        FaultKind::Store => (StatusCode::SERVICE_UNAVAILABLE, "connect-failed"),
    };
    tracing::warn!(server, "an account could not be connected: {fault}");
    page(status, texts, &[texts.text(key, &[])], None)
}

/// For a link or an answer that nobody waits for: its person is not known.
fn gone(headers: &HeaderMap) -> Response {
    let language = headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let texts = Texts::of(language.split([',', ';']).next().unwrap_or_default());
    page(StatusCode::GONE, &texts, &[texts.text("connect-gone", &[])], None)
}

fn no_store() -> (http::HeaderName, HeaderValue) {
    (CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// A page of a few lines, with a link to go on.
fn page(status: StatusCode, texts: &Texts, lines: &[String], next: Option<&str>) -> Response {
    let (language, title) = (texts.language(), escaped(&texts.text("connect-title", &[])));
    let mut body: String = lines.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
    if let Some(next) = next {
        body.push_str(&format!("<p><a href=\"{next}\">{}</a></p>\n", escaped(&texts.text("connect-go", &[]))));
    }
    let html = format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    );
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    pages::guarded((status, [kind, no_store()], html).into_response())
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(sign),
        }
    }
    out
}
