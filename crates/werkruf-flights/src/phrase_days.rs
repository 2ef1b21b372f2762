//! Dates in a sentence: `15. März`, `March 15th, 2027`, `15 de marzo`, `2027-03-15`, `15.3.`, `tomorrow`.

use jiff::civil::Date;
use werkruf_contract::Language;

use super::propose::words;

/// Folded names and abbreviations of the months.
const MONTHS: [&[&str]; 12] = [
    &["januar", "january", "enero", "jan"],
    &["februar", "february", "febrero", "feb"],
    &["marz", "maerz", "march", "marzo", "mar"],
    &["april", "abril", "apr"],
    &["mai", "may", "mayo"],
    &["juni", "june", "junio", "jun"],
    &["juli", "july", "julio", "jul"],
    &["august", "agosto", "aug"],
    &["september", "septiembre", "sep", "sept"],
    &["oktober", "october", "octubre", "okt", "oct"],
    &["november", "noviembre", "nov"],
    &["dezember", "december", "diciembre", "dez", "dec", "dic"],
];

/// The dates in the order of the sentence. A date without a year is the next such date.
pub(super) fn days(folded: &str, language: Language, locale: &str, today: Date) -> Vec<Date> {
    let mut found: Vec<(usize, Date)> = Vec::new();
    let tokens = words_with_positions(folded);
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        let read = numeric(rest[0].1, language, locale, today)
            .map(|day| (day, 1))
            .or_else(|| spelled(rest, today))
            .or_else(|| relative(rest, today));
        match read {
            Some((day, used)) => {
                found.push((rest[0].0, day));
                at += used;
            }
            None => at += 1,
        }
    }
    found.into_iter().map(|(_, day)| day).collect()
}

/// The words between spaces with their positions, without punctuation around them.
fn words_with_positions(folded: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let mut at = 0;
    for piece in folded.split_inclusive(char::is_whitespace) {
        let word = piece.trim().trim_matches(|c: char| matches!(c, ',' | ';' | '?' | '!' | '(' | ')' | ':' | '¿' | '¡'));
        if !word.is_empty() {
            out.push((at, word));
        }
        at += piece.len();
    }
    out
}

fn month(word: &str) -> Option<i8> {
    let word = word.trim_end_matches('.');
    let at = MONTHS.iter().position(|names| names.contains(&word))?;
    i8::try_from(at + 1).ok()
}

fn day_number(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches('.');
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|end| digits.strip_suffix(end)).unwrap_or(digits);
    digits.parse().ok().filter(|day| (1..=31).contains(day))
}

fn year(word: &str) -> Option<i16> {
    let word = word.trim_end_matches('.');
    (word.len() == 4).then(|| word.parse().ok()).flatten().filter(|year| (2000..2100).contains(year))
}

/// `15. märz 2027`, `15 de marzo de 2027`, `march 15, 2027`, `15th of march`.
fn spelled(rest: &[(usize, &str)], today: Date) -> Option<(Date, usize)> {
    let word = |at: usize| rest.get(at).map(|(_, word)| *word);
    let small = |at: usize| word(at).is_some_and(|word| matches!(word, "de" | "of" | "del"));
    if let Some(day) = word(0).and_then(day_number) {
        let at = if small(1) { 2 } else { 1 };
        let month = word(at).and_then(month)?;
        let next = if small(at + 1) { at + 2 } else { at + 1 };
        return Some(match word(next).and_then(year) {
            Some(year) => (Date::new(year, month, day).ok()?, next + 1),
            None => (upcoming(month, day, today)?, at + 1),
        });
    }
    let month = word(0).and_then(month)?;
    let day = word(1).and_then(day_number)?;
    Some(match word(2).and_then(year) {
        Some(year) => (Date::new(year, month, day).ok()?, 3),
        None => (upcoming(month, day, today)?, 2),
    })
}

/// `2027-03-15`, `15.3.`, `15.03.2027`, `15/3/2027`, and American `3/15/2027`.
fn numeric(word: &str, language: Language, locale: &str, today: Date) -> Option<Date> {
    if let Ok(day) = word.trim_end_matches('.').parse::<Date>()
        && word.len() >= 10
        && word.as_bytes().get(4) == Some(&b'-')
    {
        return Some(day);
    }
    let mark = if word.contains('/') { '/' } else { '.' };
    let parts: Vec<&str> = word.split(mark).collect();
    let (first, second, third) = match parts.as_slice() {
        [first, second] if mark == '/' => (first, second, ""),
        [first, second, third] => (first, second, *third),
        _ => return None,
    };
    let (first, second): (i8, i8) = (first.parse().ok()?, second.parse().ok()?);
    let american = mark == '/' && language == Language::English && !locale.to_ascii_uppercase().ends_with("-GB");
    let (day, month) = if american { (second, first) } else { (first, second) };
    if third.is_empty() {
        return upcoming(month, day, today);
    }
    let year: i16 = third.parse().ok()?;
    Date::new(if year < 100 { 2000 + year } else { year }, month, day).ok()
}

fn relative(rest: &[(usize, &str)], today: Date) -> Option<(Date, usize)> {
    let first = words(rest.first()?.1).first().copied().unwrap_or_default();
    let second = rest.get(1).map(|(_, word)| *word).unwrap_or_default();
    let (ahead, used) = match (first, second) {
        ("heute" | "today" | "hoy", _) => (0, 1),
        ("ubermorgen", _) => (2, 1),
        ("pasado", "manana") => (2, 2),
        ("morgen" | "tomorrow" | "manana", _) => (1, 1),
        _ => return None,
    };
    Some((today.checked_add(jiff::Span::new().days(ahead)).ok()?, used))
}

fn upcoming(month: i8, day: i8, today: Date) -> Option<Date> {
    (0..5).filter_map(|years| Date::new(today.year() + years, month, day).ok()).find(|date| *date >= today)
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};
    use werkruf_contract::{Language, fold};

    use super::days;

    fn read(text: &str, language: Language) -> Vec<Date> {
        days(&fold(text), language, language.locale(), date(2026, 11, 15))
    }

    #[test]
    fn days_are_read_in_three_languages() {
        let march = [date(2027, 3, 15)];
        for (text, language) in [
            ("am 15. März", Language::German),
            ("am 15.3.", Language::German),
            ("am 15.03.2027, bitte", Language::German),
            ("on March 15th", Language::English),
            ("on the 15th of March 2027?", Language::English),
            ("on 3/15/2027", Language::English),
            ("el 15 de marzo de 2027", Language::Spanish),
            ("el 15/3", Language::Spanish),
            ("2027-03-15", Language::English),
        ] {
            assert_eq!(read(text, language), march, "{text}");
        }
        assert_eq!(read("vom 1. Dezember bis 12. Januar", Language::German), [date(2026, 12, 1), date(2027, 1, 12)]);
        assert_eq!(read("mañana", Language::Spanish), [date(2026, 11, 16)]);
        assert_eq!(read("am 15. März 2025", Language::German), [date(2025, 3, 15)], "an explicit year counts");
        assert_eq!(read("2 Personen, 31.2.", Language::German), []);
    }
}
