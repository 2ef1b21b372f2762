//! `WWW-Authenticate` of a server that refuses a request.

/// What the server says about the credential that it wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mcp) struct Challenge {
    pub(in crate::mcp) resource_metadata: Option<String>,
    pub(in crate::mcp) scope: Option<String>,
    pub(in crate::mcp) error: Option<String>,
    /// Whether the server asks for a token at all.
    pub(in crate::mcp) wants_token: bool,
}

impl Challenge {
    /// Reads the parameters of a `Bearer` challenge. Anything else in the header is passed over.
    pub(in crate::mcp) fn read(header: &str) -> Self {
        let mut challenge = Self::default();
        let Some(start) = bearer(header) else { return challenge };
        challenge.wants_token = true;
        for (name, value) in Parameters(&header[start..]) {
            let slot = match name.to_ascii_lowercase().as_str() {
                "resource_metadata" => &mut challenge.resource_metadata,
                "scope" => &mut challenge.scope,
                "error" => &mut challenge.error,
                _ => continue,
            };
            if slot.is_none() && !value.is_empty() {
                *slot = Some(value);
            }
        }
        challenge
    }
}

/// Where the parameters of the scheme begin.
fn bearer(header: &str) -> Option<usize> {
    let lower = header.to_ascii_lowercase();
    let mut from = 0;
    while let Some(found) = lower[from..].find("bearer") {
        let (start, end) = (from + found, from + found + "bearer".len());
        let starts = lower[..start].trim_end().is_empty() || lower[..start].trim_end().ends_with(',');
        if starts && (lower[end..].is_empty() || lower[end..].starts_with([' ', '\t', ','])) {
            return Some(end);
        }
        from = end;
    }
    None
}

/// `name=value` and `name="value"`, separated by commas, up to the next scheme.
struct Parameters<'a>(&'a str);

impl Iterator for Parameters<'_> {
    type Item = (String, String);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_start_matches([' ', '\t', ',']);
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        // A space inside is another scheme.
        if name.is_empty() || name.contains(char::is_whitespace) {
            return None;
        }
        let after = after.trim_start();
        let Some(quoted) = after.strip_prefix('"') else {
            let end = after.find([',', ' ']).unwrap_or(after.len());
            self.0 = &after[end..];
            return Some((name.to_owned(), after[..end].to_owned()));
        };
        let (mut value, mut escaped) = (String::new(), false);
        for (at, sign) in quoted.char_indices() {
            match sign {
                _ if escaped => {
                    value.push(sign);
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some((name.to_owned(), value));
                }
                _ => value.push(sign),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Challenge;

    #[test]
    fn parameters_of_bearer_are_read_in_any_form() {
        let whole = Challenge::read(
            r#"Bearer error="insufficient_scope", scope="a b",resource_metadata="https://x.example/.well-known/x", error_description="say \"a\"""#,
        );
        assert_eq!(
            whole,
            Challenge {
                resource_metadata: Some("https://x.example/.well-known/x".to_owned()),
                scope: Some("a b".to_owned()),
                error: Some("insufficient_scope".to_owned()),
                wants_token: true,
            }
        );
        assert_eq!(Challenge::read(r#"Basic realm="x", bearer scope=read"#).scope.as_deref(), Some("read"));
        for bare in ["Bearer", "Basic realm=x, Bearer", "Bearer scope=\"a", "Bearer ="] {
            assert_eq!(Challenge::read(bare), Challenge { wants_token: true, ..Challenge::default() }, "{bare}");
        }
        for none in ["", "Basic scope=\"a\"", "NotBearer scope=a"] {
            assert_eq!(Challenge::read(none), Challenge::default(), "{none}");
        }
    }
}
