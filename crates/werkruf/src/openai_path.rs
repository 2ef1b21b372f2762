//! Which requests are for the OpenAI-compatible API. Errors, limits and connections all treat them differently.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::Uri;

/// Whether this path is under `/v1`.
pub(crate) fn is_openai_path(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

/// Forgives slashes at the end of a path under `/v1`: some clients join addresses carelessly.
pub(crate) async fn forgive_slashes(mut request: Request, next: Next) -> Response {
    if let Some(uri) = without_slashes(request.uri()) {
        *request.uri_mut() = uri;
    }
    next.run(request).await
}

/// The address without slashes at the end; `None` where nothing changes.
fn without_slashes(uri: &Uri) -> Option<Uri> {
    let path = uri.path().trim_end_matches('/');
    if path.len() == uri.path().len() || !is_openai_path(path) {
        return None;
    }
    let target = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::{is_openai_path, without_slashes};

    #[test]
    fn only_paths_under_v1_are_openai_paths() {
        assert!(is_openai_path("/v1") && is_openai_path("/v1/models"));
        assert!(!is_openai_path("/v1x") && !is_openai_path("/functions/v1/chat-rag"));
    }

    #[test]
    fn slashes_at_the_end_are_removed_under_v1_only() {
        let changed = |uri: &str| without_slashes(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(changed("/v1/models/").as_deref(), Some("/v1/models"));
        assert_eq!(changed("/v1/responses//?stream=true").as_deref(), Some("/v1/responses?stream=true"));
        assert_eq!(changed("http://host/v1/models/").as_deref(), Some("http://host/v1/models"));
        for same in ["/v1/models", "/api/chat/", "/", "/v1x/"] {
            assert_eq!(changed(same), None, "{same}");
        }
    }
}
