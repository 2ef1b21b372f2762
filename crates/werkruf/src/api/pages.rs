//! The pages of the console and of the API reference. Their files are part of the program (`build.rs`), and no page runs a script that is not.

use std::borrow::Cow;
use std::io::Read;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use super::{ApiError, ApiState, body, console};

/// A file that is part of the program, compressed where that is smaller.
struct EmbeddedFile {
    path: &'static str,
    stored: &'static [u8],
    is_gzip: bool,
    /// Of the content.
    digest: &'static str,
    /// The content for clients that do not take gzip.
    inflated: OnceLock<Vec<u8>>,
}

impl EmbeddedFile {
    const fn new(path: &'static str, stored: &'static [u8], is_gzip: bool, digest: &'static str) -> Self {
        Self { path, stored, is_gzip, digest, inflated: OnceLock::new() }
    }

    fn plain(&'static self) -> &'static [u8] {
        let inflate = || {
            let mut content = Vec::new();
            // The file was compressed by the build of this program.
            let _ = GzDecoder::new(self.stored).read_to_end(&mut content);
            content
        };
        if self.is_gzip { self.inflated.get_or_init(inflate) } else { self.stored }
    }
}

include!(concat!(env!("OUT_DIR"), "/embedded_files.rs"));

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'",
);
/// Vite puts the digest of a file of this folder into its name.
const HASHED: &str = "assets/";
/// The views of the console, by the first part of their paths.
const VIEWS: [&str; 10] = ["approvals", "audit", "calls", "chat", "knowledge", "outbox", "people", "tools", "turns", "usage"];

/// The OpenAPI document. It describes the routes of every module that is compiled in, also of those that are off.
pub(super) fn openapi() -> Cow<'static, str> {
    OPENAPI.first().map_or(Cow::Borrowed("{}"), |file| String::from_utf8_lossy(file.plain()))
}

/// Whether this program has the console.
pub(crate) fn has_console() -> bool {
    !CONSOLE.is_empty()
}

pub(crate) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/console", get(to_console))
        .route("/console/", get(console_file))
        .route("/console/signin", get(console::follow_link))
        .route("/console/{*path}", get(console_file))
        .route("/docs", get(docs_file))
        .route("/docs/", get(docs_file))
        .route("/docs/{*path}", get(docs_file))
}

/// Sends a browser that opens the server's address to the console. Everybody else gets what they got before.
pub(crate) async fn lead_to_console(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads && request.uri().path() == "/" && body::accepts(request.headers(), "text/html") {
        return to_console().await;
    }
    next.run(request).await
}

async fn to_console() -> Response {
    guarded((StatusCode::SEE_OTHER, [(LOCATION, HeaderValue::from_static("/console/"))]).into_response())
}

/// A file of the console, or its page: the page of a view reads the path itself.
async fn console_file(request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/console/").unwrap_or_default();
    match CONSOLE.iter().find(|file| file.path == path && !path.is_empty()) {
        Some(file) => serve(file, request.headers(), StatusCode::OK),
        None if path.is_empty() || VIEWS.contains(&path.split('/').next().unwrap_or_default()) => console_page(&request, StatusCode::OK),
        None => missing(),
    }
}

/// The page of the console.
pub(crate) fn console_page(request: &Request, status: StatusCode) -> Response {
    let built = CONSOLE.iter().find(|file| file.path == "index.html");
    let page = built.or_else(|| OWN_PAGES.iter().find(|file| file.path == "not_built.html"));
    page.map_or_else(missing, |page| serve(page, request.headers(), status))
}

async fn docs_file(request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/docs/").unwrap_or_default();
    let path = if path.is_empty() { "docs.html" } else { path };
    match OWN_PAGES.iter().chain(&SWAGGER_UI).find(|file| file.path == path) {
        Some(file) => serve(file, request.headers(), StatusCode::OK),
        None => missing(),
    }
}

fn missing() -> Response {
    guarded(ApiError::not_found("file").into_response())
}

fn serve(file: &'static EmbeddedFile, headers: &HeaderMap, status: StatusCode) -> Response {
    let (content, encoding) = if file.is_gzip && takes_gzip(headers) { (file.stored, "gzip") } else { (file.plain(), "plain") };
    let tag = format!("\"{}-{encoding}\"", file.digest);
    let known = headers.get_all(IF_NONE_MATCH).iter().any(|tags| tags.to_str().is_ok_and(|tags| tags.contains(&tag)));
    let mut response = if known && status == StatusCode::OK {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (status, [(CONTENT_TYPE, HeaderValue::from_static(content_type(file.path)))], content).into_response()
    };
    let fields = response.headers_mut();
    if encoding == "gzip" {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if file.is_gzip {
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        fields.insert(ETAG, tag);
    }
    let kept = if file.path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    fields.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    guarded(response)
}

/// Adds what keeps a page from running or sending anything else than this server's own files and requests.
pub(crate) fn guarded(mut response: Response) -> Response {
    let fields = response.headers_mut();
    fields.insert(CONTENT_SECURITY_POLICY, POLICY);
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    fields.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    fields.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    fields.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    response
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|part| {
        let mut fields = part.split(';').map(str::trim);
        fields.next() == Some("gzip")
            && !fields.any(|field| matches!(field.replace(' ', "").as_str(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map" | "webmanifest") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt" | "LICENSE") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
