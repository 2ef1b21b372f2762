//! Which requests are for the OpenAI-compatible API. Errors, limits and connections all treat them differently.

/// Whether this path is under `/v1`.
pub(crate) fn is_openai_path(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

#[cfg(test)]
mod tests {
    use super::is_openai_path;

    #[test]
    fn only_paths_under_v1_are_openai_paths() {
        assert!(is_openai_path("/v1") && is_openai_path("/v1/models"));
        assert!(!is_openai_path("/v1x") && !is_openai_path("/functions/v1/chat-rag"));
    }
}
