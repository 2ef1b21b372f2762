//! Text that PostgreSQL cannot store or returns differently: U+0000 becomes U+FFFD when it is written, and `jsonb` loses its blanks
//! when it is read.

use std::borrow::Cow;
use std::error::Error;

use tokio_postgres::types::{FromSql, Type};

/// Text without U+0000, which no column can hold.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The same for JSON, where U+0000 may also be an escape; half a surrogate pair is replaced too.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    if !json.contains('\0') && !json.contains("\\u") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find(['\\', '\0']) {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let (kept, length) = match (escape(tail), tail.as_bytes().first()) {
            (_, Some(0)) => ("\u{fffd}", 1),
            (Some(0), _) => ("\\ufffd", 6),
            (Some(0xD800..=0xDBFF), _) if matches!(tail.get(6..).and_then(escape), Some(0xDC00..=0xDFFF)) => (&tail[..12], 12),
            (Some(0xD800..=0xDFFF), _) => ("\\ufffd", 6),
            (Some(_), _) => (&tail[..6], 6),
            // A backslash and the character that it escapes.
            (None, _) => {
                let length = tail.chars().take(2).map(char::len_utf8).sum();
                (&tail[..length], length)
            }
        };
        out.push_str(kept);
        rest = &tail[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The code unit of a `\uXXXX` at the beginning.
fn escape(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// JSON without blanks between its tokens, as this program writes it.
pub(super) fn compact(json: &str) -> String {
    let (mut out, mut inside, mut escaped) = (String::with_capacity(json.len()), false, false);
    for letter in json.chars() {
        if inside {
            inside = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
        } else if letter == '"' {
            inside = true;
        } else if letter.is_ascii_whitespace() {
            continue;
        }
        out.push(letter);
    }
    out
}

/// A name as an SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Text of a column of any text or JSON type.
pub(super) struct Text(pub(super) String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if *kind != Type::JSONB {
            return Ok(Self(std::str::from_utf8(raw)?.to_owned()));
        }
        match raw.split_first() {
            Some((1, json)) => Ok(Self(compact(std::str::from_utf8(json)?))),
            _ => Err("jsonb of an unknown version".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::JSON, Type::JSONB].contains(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{clean, clean_json, compact};

    #[test]
    fn text_that_cannot_be_stored_is_replaced() {
        assert_eq!(clean("a\0b"), "a\u{fffd}b");
        assert_eq!(clean_json("{\"a\":\"x\\u0000y\"}"), "{\"a\":\"x\\ufffdy\"}");
        assert_eq!(
            clean_json(r#"["\\u0000","\ud83d\ude00","\ud83d","\ude00x","\u00e4"]"#),
            r#"["\\u0000","\ud83d\ude00","\ufffd","\ufffdx","\u00e4"]"#
        );
        assert_eq!(clean_json("\"\\u00\""), "\"\\u00\"", "what is no JSON is left to the database to refuse");
    }

    #[test]
    fn blanks_are_removed_and_strings_kept() {
        assert_eq!(compact(r#"{"a b": [1, "x, \" y", {}], "c": null}"#), r#"{"a b":[1,"x, \" y",{}],"c":null}"#);
        assert_eq!(compact(r#"["\\", " "]"#), r#"["\\"," "]"#);
    }
}
