//! Sign-in to the console, what its cookie is worth, and the pages.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{ADMIN, Stream, TestServer, body, refusal};

const SESSION: &str = "/api/console/session";

fn origin(server: &TestServer) -> String {
    format!("http://{}", server.address())
}

fn cookie(response: &Response) -> String {
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    for wanted in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.split("; ").any(|part| part == wanted), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

async fn sign_in(server: &TestServer, key: &str) -> String {
    let request = server.bare(Method::POST, "/api/console/sessions").header("origin", origin(server));
    let response = request.header("sec-fetch-site", "same-origin").json(&json!({"key": key})).send().await.unwrap();
    assert_eq!(response.status(), 204);
    cookie(&response)
}

/// A request as a page of this server sends it.
fn own(server: &TestServer, cookie: &str, method: Method, path: &str) -> RequestBuilder {
    let reads = method == Method::GET;
    let request = server.bare(method, path).header("cookie", format!("theme=dark; {cookie}")).header("sec-fetch-site", "same-origin");
    if reads { request } else { request.header("origin", origin(server)) }
}

async fn status(request: RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

async fn link(server: &TestServer, request: RequestBuilder) -> String {
    let url = body(request.send().await.unwrap()).await["url"].as_str().unwrap().to_owned();
    url.strip_prefix(&origin(server)).unwrap().to_owned()
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let server = TestServer::open().await;
    let path = link(&server, server.operator(Method::POST, "/api/console/links")).await;
    assert_eq!(status(server.bare(Method::HEAD, &path)).await, 200, "a look at the link does not use it");
    assert_eq!(status(server.bare(Method::GET, &path).header("sec-fetch-dest", "image")).await, 200, "neither does a page that embeds it");
    let opened = server.bare(Method::GET, &path).send().await.unwrap();
    let headers = opened.headers();
    let seen = (opened.status().as_u16(), &headers["location"], &headers["cache-control"], &headers["referrer-policy"]);
    assert_eq!(seen, (303, &"/console/".parse().unwrap(), &"no-store".parse().unwrap(), &"no-referrer".parse().unwrap()));
    let cookie = cookie(&opened);
    let session = body(own(&server, &cookie, Method::GET, SESSION).send().await.unwrap()).await;
    let expected = json!({"operator": true, "tenant_id": werkruf::sample::DEMO_ID, "user_id": null, "name": null,
        "scopes": ["admin", "chat", "tools", "read", "act_as", "approve"], "acting_user_id": null, "expires_at": session["expires_at"]});
    assert_eq!(session, expected);
    assert!(session["expires_at"].is_string());

    let again = server.bare(Method::GET, &path).send().await.unwrap();
    assert_eq!((again.status().as_u16(), again.headers().get("set-cookie")), (401, None));
    assert!(again.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    let token = path.split('=').nth(1).unwrap();
    assert_eq!(status(server.with_key(token, Method::GET, SESSION)).await, 401, "the token of a link is no key");
    let raw = std::fs::read(server.folder.path().join("werkruf.db")).unwrap();
    assert!(!raw.windows(token.len()).any(|window| window == token.as_bytes()), "only digests are stored");
}

#[tokio::test]
async fn the_operators_session_acts_for_a_person() {
    let server = TestServer::open().await;
    let cookie = sign_in(&server, ADMIN).await;
    let as_clara = |method, path: &str| own(&server, &cookie, method, path).header("x-user-id", "3");
    let session = body(as_clara(Method::GET, SESSION).send().await.unwrap()).await;
    assert_eq!((&session["operator"], &session["user_id"], &session["acting_user_id"]), (&json!(true), &json!(null), &json!("3")));
    let chat = as_clara(Method::POST, "/api/chat").header("accept", "application/json").json(&json!({"message": "hello"}));
    let answer = body(chat.send().await.unwrap()).await;
    let path = format!("/api/conversations/{}", answer["conversation_id"].as_str().unwrap());
    assert_eq!(body(server.as_user(3, Method::GET, &path).send().await.unwrap()).await["user_id"], "3");
    assert_eq!(
        refusal(own(&server, &cookie, Method::GET, SESSION).header("x-user-id", "999").send().await.unwrap()).await.1,
        "unknown_user"
    );
    let elsewhere = own(&server, &cookie, Method::GET, SESSION).header("x-tenant-id", "none-such").send().await.unwrap();
    assert_eq!(refusal(elsewhere).await, (404, "unknown_tenant".to_owned()));
}

#[tokio::test]
async fn a_session_is_worth_what_its_key_is_worth() {
    let server = TestServer::open().await;
    let made =
        body(server.operator(Method::POST, "/api/keys").json(&json!({"user_id": 3, "scopes": ["chat", "read"]})).send().await.unwrap())
            .await;
    let cookie = sign_in(&server, made["key"].as_str().unwrap()).await;
    let get = |path: &str| own(&server, &cookie, Method::GET, path);
    let session = body(get(SESSION).send().await.unwrap()).await;
    let seen = (&session["operator"], &session["user_id"], &session["scopes"], &session["acting_user_id"]);
    assert_eq!(seen, (&json!(false), &json!("3"), &json!(["chat", "read"]), &json!(null)));
    assert!(session["name"].as_str().unwrap().contains("Clara"), "{session}");
    assert_eq!(status(get("/api/conversations")).await, 200);
    assert_eq!(status(get("/api/keys")).await, 403, "no more than the key");
    assert_eq!(
        refusal(own(&server, &cookie, Method::POST, "/api/console/links").send().await.unwrap()).await,
        (403, "forbidden".to_owned())
    );
    assert_eq!(status(get("/api/conversations").header("x-user-id", "1")).await, 403);
    let foreign = server.conversation(1).await;
    assert_eq!(status(get(&format!("/api/conversations/{foreign}"))).await, 404);

    let mut stream = Stream::new(get("/api/stream").send().await.unwrap());
    let path = format!("/api/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(status(server.operator(Method::DELETE, &path)).await, 204);
    assert_eq!(refusal(get(SESSION).send().await.unwrap()).await, (401, "unauthorized".to_owned()), "the key was revoked");
    let ended = async { while stream.response.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.unwrap();
}

#[tokio::test]
async fn signing_out_ends_the_session_and_its_streams() {
    let server = TestServer::open().await;
    let (one, other) = (sign_in(&server, ADMIN).await, sign_in(&server, ADMIN).await);
    let mut stream = Stream::new(own(&server, &one, Method::GET, "/api/stream").send().await.unwrap());
    let gone = own(&server, &one, Method::DELETE, SESSION).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert!(gone.headers()["set-cookie"].to_str().unwrap().starts_with("werkruf_session=; "));
    assert_eq!(status(own(&server, &one, Method::GET, SESSION)).await, 401);
    assert_eq!(status(own(&server, &other, Method::GET, SESSION)).await, 200);
    let ended = async { while stream.response.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.unwrap();
}

#[tokio::test]
async fn a_cookie_from_another_origin_is_refused() {
    let server = TestServer::open().await;
    let cookie = sign_in(&server, ADMIN).await;
    let send = async |method: Method, headers: &[(&str, &str)]| {
        let path = if method == Method::GET { "/api/keys" } else { "/api/console/links" };
        let mut request = server.bare(method, path).header("cookie", &cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        if response.status().is_success() { (response.status().as_u16(), String::new()) } else { refusal(response).await }
    };
    let foreign = || (403, "foreign_origin".to_owned());
    let own = origin(&server);
    let other_port = format!("http://{}:1", server.address().ip());
    for headers in [
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
        vec![("origin", "https://app.example")],
        vec![("origin", other_port.as_str())],
        vec![("sec-fetch-site", "cross-site")],
        vec![("sec-fetch-site", "same-site")],
        vec![("origin", own.as_str()), ("sec-fetch-site", "cross-site")],
        vec![("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
    ] {
        for method in [Method::GET, Method::POST] {
            assert_eq!(send(method.clone(), &headers).await, foreign(), "{method} {headers:?}");
        }
    }
    assert_eq!(send(Method::POST, &[]).await, foreign(), "a change needs the origin");
    assert_eq!(send(Method::POST, &[("sec-fetch-site", "same-origin")]).await, foreign(), "a change needs the origin");
    assert_eq!(send(Method::POST, &[("origin", &own), ("sec-fetch-site", "none")]).await, foreign());
    assert_eq!(send(Method::POST, &[("origin", &own)]).await, (200, String::new()));
    assert_eq!(send(Method::GET, &[]).await, (200, String::new()), "the page of a plain address");
    assert_eq!(send(Method::GET, &[("sec-fetch-site", "none")]).await, (200, String::new()), "the person opened it");

    let login = server.bare(Method::POST, "/api/console/sessions").header("origin", "https://evil.example").json(&json!({"key": ADMIN}));
    assert_eq!(refusal(login.send().await.unwrap()).await, foreign(), "nobody is signed in by another page");
    let key = server.operator(Method::GET, "/api/keys").header("cookie", &cookie).header("origin", "https://app.example");
    assert_eq!(status(key).await, 200, "a key counts from everywhere, and the cookie beside it does not");
    let wrong = server.with_key("wk_wrong", Method::GET, "/api/keys").header("cookie", &cookie);
    assert_eq!(status(wrong).await, 401, "a wrong key is not replaced by the cookie");
    let metrics = server.bare(Method::GET, "/metrics").header("cookie", &cookie);
    assert_eq!(status(metrics).await, 401, "only the APIs take the cookie");
}

#[tokio::test]
async fn a_public_address_is_an_origin_and_makes_the_cookie_secure() {
    let server = TestServer::open_in("public_url = 'https://chat.example.org/'", &[]).await;
    let request =
        server.bare(Method::POST, "/api/console/sessions").header("origin", "https://chat.example.org").json(&json!({"key": ADMIN}));
    let response = request.send().await.unwrap();
    assert!(response.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    let cookie = cookie(&response);
    let links = server.bare(Method::POST, "/api/console/links").header("cookie", &cookie);
    let made = body(links.header("origin", "https://chat.example.org").send().await.unwrap()).await;
    assert!(made["url"].as_str().unwrap().starts_with("https://chat.example.org/console/signin?token="), "{made}");
}

#[tokio::test]
async fn wrong_keys_do_not_sign_in_and_are_counted() {
    let server = TestServer::open().await;
    let attempt = |key: Value| server.bare(Method::POST, "/api/console/sessions").json(&json!({"key": key}));
    for (wrong, expected) in [(json!("wk_wrong"), (401, "unauthorized")), (json!(7), (400, "invalid_request"))] {
        let (status, code) = refusal(attempt(wrong).send().await.unwrap()).await;
        assert_eq!((status, code.as_str()), expected);
    }
    assert_eq!(status(server.bare(Method::POST, "/api/console/sessions")).await, 401, "no credential at all");
    let mut refused = 0;
    for number in 0..40 {
        refused = attempt(json!(format!("wk_{number}"))).send().await.unwrap().status().as_u16();
    }
    assert_eq!(refused, 429);
    assert_eq!(status(attempt(json!(ADMIN))).await, 204, "a right key never waits");
}

#[tokio::test]
async fn pages_need_no_credential_and_are_guarded() {
    let server = TestServer::open().await;
    let browser = |path: &str| server.bare(Method::GET, path).header("accept", "text/html,application/xhtml+xml");
    let root = browser("/").send().await.unwrap();
    assert_eq!((root.status().as_u16(), root.headers()["location"].to_str().unwrap()), (303, "/console/"));
    assert_eq!(refusal(server.bare(Method::GET, "/").send().await.unwrap()).await, (401, "unauthorized".to_owned()), "programs as before");
    assert_eq!(refusal(server.operator(Method::GET, "/").send().await.unwrap()).await, (404, "unknown_route".to_owned()));
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
                  base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    for path in ["/console/", "/console/calls/0190c0de", "/console/signin", "/docs"] {
        let page = browser(path).send().await.unwrap();
        let headers = page.headers().clone();
        assert_eq!((page.status().as_u16(), headers["content-type"].to_str().unwrap()), (200, "text/html; charset=utf-8"), "{path}");
        assert_eq!(headers["content-security-policy"], policy, "{path}");
        assert_eq!(
            (&headers["x-content-type-options"], &headers["referrer-policy"]),
            (&"nosniff".parse().unwrap(), &"no-referrer".parse().unwrap())
        );
        assert_eq!(headers["cache-control"], "no-cache");
        let text = page.text().await.unwrap();
        assert!(!text.contains("<script>") && !text.contains("<style") && !text.contains(" style="), "nothing inline: {path}");
        let known = browser(path).header("if-none-match", &headers["etag"]).send().await.unwrap();
        assert_eq!((known.status().as_u16(), known.text().await.unwrap().len()), (304, 0), "{path}");
    }
    for path in ["/console/assets/none-such.js", "/console/none-such.png", "/console/none-such", "/docs/none-such.js"] {
        assert_eq!(status(browser(path)).await, 404, "{path}: a missing file is no page");
    }
}

#[tokio::test]
async fn the_api_reference_needs_nothing_from_elsewhere() {
    let server = TestServer::open().await;
    let page = server.bare(Method::GET, "/docs").send().await.unwrap().text().await.unwrap();
    let named = |attribute: &str| -> Vec<String> {
        page.split(&format!(" {attribute}=\"")).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let files: Vec<String> = named("src").into_iter().chain(named("href")).filter(|path| path.contains('.')).collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for path in files {
        assert!(path.starts_with('/'), "{path}");
        let plain = server.bare(Method::GET, &path).send().await.unwrap();
        assert_eq!(plain.status(), 200, "{path}");
        let text = plain.bytes().await.unwrap();
        assert!(text.len() > 100, "{path}");
    }
    // As a raw request: a client that decodes would hide the encoding.
    let gzip = server.bare(Method::GET, "/docs/swagger-ui-bundle.js").header("accept-encoding", "br, gzip").send().await.unwrap();
    let headers = gzip.headers().clone();
    let content = gzip.bytes().await.unwrap();
    if let Some(encoding) = headers.get("content-encoding") {
        assert_eq!(encoding, "gzip");
        let mut decoded = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&content[..]), &mut decoded).unwrap();
        assert!(decoded.contains("SwaggerUIBundle"));
    }
    assert_eq!(headers["vary"], "accept-encoding");
}
