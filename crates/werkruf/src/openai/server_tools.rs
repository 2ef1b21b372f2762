//! The header `X-Werkruf-Tools`, which limits the server's tools for one request.

use http::HeaderMap;

const HEADER: &str = "x-werkruf-tools";

/// The tools that may be used: `none`, or names separated by commas; several lines of the header are one list. Without the header all tools may be
/// used.
pub(crate) fn server_tools(headers: &HeaderMap) -> Option<Vec<String>> {
    if !headers.contains_key(HEADER) {
        return None;
    }
    // A line that is not text names no tool.
    let lines = headers.get_all(HEADER).iter().map(|line| line.to_str().unwrap_or_default());
    let names = lines.flat_map(|line| line.split(',')).map(str::trim);
    Some(names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::server_tools;

    #[test]
    fn the_header_selects_all_some_or_no_server_tools() {
        let parse = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-werkruf-tools", HeaderValue::from_static(line));
            }
            server_tools(&headers).map(|names| names.join(" "))
        };
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&["none"]).as_deref(), Some(""));
        assert_eq!(parse(&["a, b"]).as_deref(), Some("a b"));
        assert_eq!(parse(&["a", "b, c"]).as_deref(), Some("a b c"));
        assert_eq!(parse(&["none", "none"]).as_deref(), Some(""));
    }
}
