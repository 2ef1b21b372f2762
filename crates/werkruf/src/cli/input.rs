//! What the command line and files say, as commands need it.

use super::error::CliError;

/// A base address without a slash at the end; a bare `host:port` is taken as HTTP.
pub(super) fn address(text: &str) -> String {
    let text = text.trim_end_matches('/');
    if text.contains("://") { text.to_owned() } else { format!("http://{text}") }
}

/// A file, or stdin for `-`.
pub(super) fn read_input(file: &str) -> Result<Vec<u8>, CliError> {
    use std::io::Read;
    let read = if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    read.map_err(|error| CliError::refused("unreadable", format!("cannot read {file}: {error}")))
}

/// The error of input that is not text.
pub(super) fn not_utf8(name: &str) -> CliError {
    let message = format!("{name} is not UTF-8 text, so nothing was sent; convert it, such as with `iconv -f latin1 -t utf-8`");
    CliError::refused("unreadable", message)
}

/// Percent-encodes text for a path or query.
pub(super) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
