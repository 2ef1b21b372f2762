//! Joins the lines of a paragraph and undoes hyphenation.

/// Words before which a hyphen is kept: "Hin- und Rückflug", "pre- and postpaid".
const PAIRING: [&str; 12] = ["und", "oder", "bzw.", "beziehungsweise", "sowie", "bis", "and", "or", "to", "y", "o", "u"];

/// Appends a line to a paragraph and rejoins a hyphenated word.
pub(super) fn join(paragraph: &mut String, line: &str) {
    let before = paragraph.strip_suffix('-').and_then(|word| word.chars().next_back()).filter(|letter| letter.is_alphanumeric());
    let begins = line.chars().next().filter(|letter| letter.is_alphanumeric());
    match (before, begins) {
        (Some(_), Some(_)) if PAIRING.contains(&line.split(' ').next().unwrap_or_default()) => paragraph.push(' '),
        (Some(end), Some(begin)) if end.is_alphabetic() && begin.is_lowercase() => {
            paragraph.pop();
        }
        // "Nord-Süd", "LH-441": the hyphen is part of the word.
        (Some(_), Some(_)) => {}
        _ => paragraph.push(' '),
    }
    paragraph.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn hyphenated_words_are_rejoined() {
        for (lines, whole) in [
            (["Die Meilen ver-", "fallen bald."], "Die Meilen verfallen bald."),
            (["Hin-", "und Rückflug"], "Hin- und Rückflug"),
            (["der Nord-", "Süd-Verkehr"], "der Nord-Süd-Verkehr"),
            (["eine", "Zeile"], "eine Zeile"),
            (["von 3 -", "so steht es"], "von 3 - so steht es"),
            (["LH-", "441"], "LH-441"),
            (["2025-", "2026"], "2025-2026"),
        ] {
            let mut paragraph = lines[0].to_owned();
            join(&mut paragraph, lines[1]);
            assert_eq!(paragraph, whole);
        }
    }
}
