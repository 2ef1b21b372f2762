//! Extracts the text of an HTML page as simple Markdown: headings, paragraphs, lists.
//!
//! This is not a full HTML parser: it collects the text between tags. A malformed page loses some of its text.

/// Tags whose content is not text for readers.
const SKIPPED: [&str; 7] = ["script", "style", "noscript", "template", "svg", "nav", "head"];
/// Tags that end a paragraph.
const BLOCKS: [&str; 22] = [
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "aside",
    "ul",
    "ol",
    "table",
    "tr",
    "blockquote",
    "pre",
    "figure",
    "dl",
    "dt",
    "dd",
    "form",
    "hr",
    "details",
    "summary",
];

/// The title and the text.
pub(super) fn text(page: &str) -> (Option<String>, String) {
    let title = between(page, "<title", "</title").map(|title| decode(&title).split_whitespace().collect::<Vec<_>>().join(" "));
    let mut out = String::with_capacity(page.len() / 2);
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        push_words(&mut out, &decode(&rest[..at]));
        rest = &rest[at..];
        if rest.starts_with("<!--") {
            rest = rest.find("-->").map_or("", |end| &rest[end + 3..]);
            continue;
        }
        let Some(end) = rest.find('>') else { break };
        let (name, closing) = tag(&rest[1..end]);
        let self_closed = rest[..end].ends_with('/');
        rest = &rest[end + 1..];
        if SKIPPED.contains(&name.as_str()) && !closing && !self_closed {
            rest = after_close(rest, &name);
            continue;
        }
        push_tag(&mut out, &name, closing);
    }
    push_words(&mut out, &decode(rest));
    (title.filter(|title| !title.is_empty()), tidy(&out))
}

fn push_tag(out: &mut String, name: &str, closing: bool) {
    let level = name.strip_prefix('h').and_then(|level| level.parse::<usize>().ok()).filter(|level| (1..=6).contains(level));
    match (name, level, closing) {
        (_, Some(level), false) => {
            out.push_str("\n\n");
            out.push_str(&"#".repeat(level));
            out.push(' ');
        }
        (_, Some(_), true) => out.push_str("\n\n"),
        ("li", _, false) => out.push_str("\n- "),
        ("br", ..) => out.push('\n'),
        ("td" | "th", _, true) => out.push_str(" | "),
        _ if BLOCKS.contains(&name) => out.push_str("\n\n"),
        _ => {}
    }
}

/// The name of a tag, in lower case, and whether it closes.
fn tag(inside: &str) -> (String, bool) {
    let closing = inside.starts_with('/');
    let name = inside.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
    (name.to_ascii_lowercase(), closing)
}

fn after_close<'a>(rest: &'a str, name: &str) -> &'a str {
    let end_tag = format!("</{name}");
    let lower = rest.to_ascii_lowercase();
    lower.find(&end_tag).and_then(|at| rest[at..].find('>').map(|end| &rest[at + end + 1..])).unwrap_or("")
}

fn between(page: &str, open: &str, close: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let start = lower.find(open)?;
    let start = start + lower[start..].find('>')? + 1;
    let end = start + lower[start..].find(close)?;
    Some(page[start..end].to_owned())
}

/// Appends words with one space between them, as a browser shows them.
fn push_words(out: &mut String, text: &str) {
    let leads = text.starts_with(char::is_whitespace);
    for (nth, word) in text.split_whitespace().enumerate() {
        if (nth > 0 || leads) && !out.is_empty() && !out.ends_with(char::is_whitespace) {
            out.push(' ');
        }
        out.push_str(word);
    }
    if text.ends_with(char::is_whitespace) && !out.ends_with(char::is_whitespace) {
        out.push(' ');
    }
}

fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines().map(str::trim).map(|line| line.trim_end_matches(" |")) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.trim().to_owned()
}

/// Replaces the common entities; others stay unchanged.
fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let entity = rest.find(';').filter(|end| *end <= 10).and_then(|end| Some((letter(&rest[1..end])?, end)));
        match entity {
            Some((letter, end)) => {
                out.push(letter);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn letter(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "aacute" => 'á',
        "iacute" => 'í',
        "oacute" => 'ó',
        "uacute" => 'ú',
        "ntilde" => 'ñ',
        "euro" => '€',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "bdquo" => '„',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_page_becomes_markdown() {
        let page = "<!doctype html><html><head><title>Meilen &amp; mehr</title><style>p{}</style></head><body><script>var x = '<p>no</p>';</script>\
            <h1>Verfall</h1><p>Meilen verfallen\n nach <b>36</b> Monaten.</p><!-- <p>hidden</p> --><ul><li>Gold</li><li>Silber</li></ul>\
            <table><tr><td>A</td><td>B</td></tr></table>Gr&uuml;&szlig;e &unknown; &#8364;</body></html>";
        let (title, text) = text(page);
        assert_eq!(title.as_deref(), Some("Meilen & mehr"));
        assert_eq!(text, "# Verfall\n\nMeilen verfallen nach 36 Monaten.\n\n- Gold\n- Silber\n\nA | B\n\nGrüße &unknown; €");
    }

    #[test]
    fn a_malformed_page_does_not_panic() {
        for page in ["<", "<p", "a < b", "<script>never closed", "</", "&", "<title>", "<!-- x"] {
            let _ = text(page);
        }
        assert_eq!(text("1 &lt; 2").1, "1 < 2");
    }
}
