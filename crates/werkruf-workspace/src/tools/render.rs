//! Parts of the `message`: the filter in brackets, and one line per row.

use crate::store::Target;
use werkruf_contract::{TextArg, Texts};

use super::days::Days;

/// Longest excerpt of a text in one line, in characters.
const EXCERPT_CHARS: usize = 280;

/// " (a, b)", or an empty string.
pub(super) fn brackets(parts: &[String]) -> String {
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The owner of the rows; `None` for the caller's own rows.
pub(super) fn owner(texts: &Texts, target: Target) -> Option<String> {
    match target {
        Target::Own => None,
        Target::User(id) => Some(texts.text("filter-user", &[("id", id.to_string().into())])),
        Target::Branch(id) => Some(texts.text("filter-branch", &[("id", id.to_string().into())])),
    }
}

/// Renders the text `<key>-day` for one day, `<key>-span` for several.
pub(super) fn days(texts: &Texts, key: &str, days: Days, more: &[(&str, TextArg<'_>)]) -> String {
    let (from, to) = (texts.date(days.from), texts.date(days.to));
    let mut parts: Vec<(&str, TextArg<'_>)> = more.to_vec();
    if days.from == days.to {
        parts.push(("day", from.into()));
        return texts.text(&format!("{key}-day"), &parts);
    }
    parts.extend([("from", from.into()), ("to", to.into())]);
    texts.text(&format!("{key}-span"), &parts)
}

/// A row's text on one line.
pub(super) fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of a long text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let line = line(text);
    match line.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// A headline, one bullet per line, and an optional last line.
pub(super) fn list(headline: String, lines: impl IntoIterator<Item = String>, tail: Option<String>) -> String {
    let mut text = headline;
    for line in lines {
        text.push_str("\n• ");
        text.push_str(&line);
    }
    if let Some(tail) = tail {
        text.push('\n');
        text.push_str(&tail);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{brackets, excerpt, list};

    #[test]
    fn long_texts_are_cut_and_put_on_one_line() {
        assert_eq!(excerpt("a\n\n  b"), "a b");
        let long = excerpt(&"ä".repeat(1000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (281, true));
        assert_eq!(brackets(&["a".into(), "b".into()]), " (a, b)");
        assert_eq!(list("h:".into(), ["x".into()], Some("t".into())), "h:\n• x\nt");
    }
}
