//! Manners on the wire: gzip in both directions, preflight requests of browsers, and errors that are always JSON.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use werkruf_bench::fake_model::Reply;

use crate::support::{ADMIN, TestServer, refusal};

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// A client that shows what was sent; the usual one decompresses it.
#[expect(clippy::disallowed_methods, reason = "the client of a test may follow nothing anyway")]
fn client() -> Client {
    werkruf_llm::install_tls();
    Client::builder().no_proxy().no_gzip().build().unwrap()
}

fn as_user(server: &TestServer, method: Method, path: &str, accepted: &str) -> RequestBuilder {
    let request = client().request(method, format!("http://{}{path}", server.address()));
    request.bearer_auth(ADMIN).header("x-user-id", 1).header("accept-encoding", accepted)
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn json_over_one_kibibyte_is_compressed_on_request() {
    let server = TestServer::open().await;
    let get = async |path: &str, accepted: &str| as_user(&server, Method::GET, path, accepted).send().await.unwrap();
    let plain = get("/openapi.json", "identity").await;
    assert_eq!(header(&plain, "content-encoding"), None);
    let varies = plain.headers().get_all("vary").iter().any(|value| value.to_str().unwrap().contains("accept-encoding"));
    assert!(varies, "caches keep both forms");
    let plain = plain.bytes().await.unwrap();
    let compressed = get("/openapi.json", "br, gzip").await;
    assert_eq!((header(&compressed, "content-encoding"), header(&compressed, "content-type")), (Some("gzip"), Some("application/json")));
    let compressed = compressed.bytes().await.unwrap();
    assert!(compressed.len() < plain.len() / 4);
    let mut unpacked = Vec::new();
    GzDecoder::new(&compressed[..]).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain, "the same document");
    let tools = get("/api/tools", "gzip").await;
    assert_eq!(header(&tools, "content-encoding"), Some("gzip"));
    let small = get("/api/turns/00000000-0000-7000-8000-0000000000ff", "gzip").await;
    assert_eq!(header(&small, "content-encoding"), None);
    assert_eq!(refusal(small).await.0, 404);
}

#[tokio::test]
async fn event_streams_are_never_compressed() {
    let server = TestServer::open().await;
    server.model.script(vec![Reply::text(&"many words ".repeat(400))]);
    let chat = as_user(&server, Method::POST, "/api/chat", "gzip").json(&json!({"message": "hello"}));
    let response = chat.send().await.unwrap();
    assert_eq!((header(&response, "content-type"), header(&response, "content-encoding")), (Some("text/event-stream"), None));
    assert!(response.text().await.unwrap().contains("event: final"));
}

#[tokio::test]
async fn a_compressed_body_is_read_within_the_limits_of_a_plain_one() {
    let server = TestServer::open().await;
    let echo = || server.as_user(1, Method::POST, "/api/tools/test_echo/invoke").header("content-encoding", "gzip");
    let send = async |request: RequestBuilder, body: Vec<u8>| request.body(body).send().await.unwrap();
    let wanted = json!({"input": {"value": "tea ".repeat(1000)}});
    let answered = send(echo(), gzip(wanted.to_string().as_bytes())).await;
    assert_eq!(answered.status(), 200);
    let answer: Value = serde_json::from_slice(&answered.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["data"]["value"], wanted["input"]["value"]);

    let bomb = gzip(&vec![b' '; 32 * 1024 * 1024]);
    assert!(bomb.len() < 1024 * 1024, "the bomb itself is within the limit");
    assert_eq!(refusal(send(echo(), bomb.clone()).await).await, (400, "invalid_request".to_owned()));
    let completion = server.as_user(1, Method::POST, "/v1/chat/completions").header("content-encoding", "gzip");
    assert_eq!(refusal(send(completion, bomb).await).await, (413, "body_too_large".to_owned()));

    let whole = gzip(b"{\"input\": {\"value\": 1}}");
    for broken in [b"{\"input\": {}}".to_vec(), whole[..whole.len() - 3].to_vec(), [whole.clone(), b"more".to_vec()].concat()] {
        assert_eq!(refusal(send(echo(), broken).await).await, (400, "invalid_request".to_owned()));
    }
    let other = server.as_user(1, Method::POST, "/api/tools/test_echo/invoke").header("content-encoding", "br");
    assert_eq!(refusal(send(other, whole).await).await, (415, "unsupported_encoding".to_owned()));
}

#[tokio::test]
async fn a_compressed_body_takes_its_place_in_the_byte_budget() {
    let server = TestServer::open_in("", &[("WERKRUF_LIMIT_BYTES_IN_FLIGHT", "1048576")]).await;
    let key = server.key(Some(1), &["tools"]).await;
    let body = json!({"input": {"value": "x".repeat(400 * 1024)}}).to_string();
    let echo = || server.with_key(&key, Method::POST, "/api/tools/test_echo/invoke");
    let busy = (503, "memory_busy".to_owned());
    assert_eq!(refusal(echo().body(body.clone()).send().await.unwrap()).await, busy);
    let compressed = gzip(body.as_bytes());
    assert_eq!(refusal(echo().header("content-encoding", "gzip").body(compressed).send().await.unwrap()).await, busy);
    let small = gzip(br#"{"input": {"value": 1}}"#);
    assert_eq!(echo().header("content-encoding", "gzip").body(small).send().await.unwrap().status(), 200, "the memory is free again");
}

#[tokio::test]
async fn a_page_may_send_the_headers_of_openais_library_and_no_others() {
    let server = TestServer::open().await;
    let preflight = async |origin: &str, headers: &str| {
        let request = server.bare(Method::OPTIONS, "/v1/chat/completions").header("origin", origin);
        let request = request.header("access-control-request-method", "POST").header("access-control-request-headers", headers);
        let response = request.send().await.unwrap();
        let allowed = response.headers().get_all("access-control-allow-headers").iter();
        let allowed: Vec<String> =
            allowed.flat_map(|value| value.to_str().unwrap().split(',').map(|name| name.trim().to_owned())).collect();
        (header(&response, "access-control-allow-origin").map(str::to_owned), allowed)
    };
    let sent = "authorization,content-type,openai-organization,x-evil,x-stainless-arch,x-stainless-new-in-2030";
    let (origin, allowed) = preflight("https://app.example", sent).await;
    assert_eq!(origin.as_deref(), Some("https://app.example"));
    for name in sent.split(',') {
        assert_eq!(allowed.iter().any(|allowed| allowed == name), name != "x-evil", "{name}");
    }
    assert_eq!(preflight("https://other.example", sent).await.0, None);
}

#[tokio::test]
async fn every_refusal_is_json() {
    let server = TestServer::open().await;
    for (method, path, status) in [
        (Method::GET, "/api/knowledge/documents?limit=many", 400),
        (Method::GET, "/api/knowledge/documents?collection=a&collection=b", 400),
        (Method::GET, "/api/knowledge/documents/%FF", 400),
        (Method::DELETE, "/api/knowledge/documents/%ff%fe", 400),
        (Method::GET, "/api/knowledge/collections/%FF", 400),
        (Method::GET, "/api/knowledge/nothing", 404),
        (Method::PATCH, "/api/knowledge/search", 405),
        (Method::POST, "/api/knowledge/search", 400),
        (Method::GET, "/api/people/users/%FF/may/%FF", 400),
        (Method::GET, "/api/usage?from=yesterday", 400),
        (Method::GET, "/v1/nothing", 404),
        (Method::GET, "/v1/models/%FF", 400),
        (Method::PUT, "/v1/models", 405),
        (Method::POST, "/healthz", 405),
        (Method::POST, "/webhooks/whatsapp", 401),
        (Method::PUT, "/webhooks/whatsapp", 405),
    ] {
        let response = server.as_user(1, method.clone(), path).send().await.unwrap();
        assert_eq!(refusal(response).await.0, status, "{method} {path}");
    }
}
