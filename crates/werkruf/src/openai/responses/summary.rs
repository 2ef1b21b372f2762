//! The content of a compaction item: a summary that only this server reads. No I/O.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use werkruf_runtime::SUMMARY_QUESTION;

/// The message before a summary.
pub(crate) const QUESTION: &str = SUMMARY_QUESTION;
/// Marks the content as made by this server.
const PREFIX: &str = "wk1.";

/// The content of a compaction item. It holds only what its client has sent or received, so it is encoded and not encrypted.
pub(crate) fn sealed(summary: &str) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(summary))
}

/// The summary in a compaction item; `None` for content of another server.
pub(crate) fn opened(content: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(content.strip_prefix(PREFIX)?).ok()?).ok().filter(|summary| !summary.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{opened, sealed};

    #[test]
    fn only_content_of_this_server_is_opened() {
        assert_eq!(opened(&sealed("Grüße")).as_deref(), Some("Grüße"));
        for other in ["", "wk1.", "wk1.*", "gAAAAB", "wk1.gA"] {
            assert_eq!(opened(other), None, "{other}");
        }
    }
}
