//! Identifiers that are written in several ways: "LH 441", "LH441", "lh-441"; "M&M"; "E-4021".

use super::words::Token;

/// The identifiers of a normalised text, each in its joined spelling, sorted, without duplicates.
pub(super) fn identifiers(text: &str, tokens: &[Token<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut end = at;
        while end + 1 < tokens.len() && joined(text, tokens[end], tokens[end + 1]) {
            end += 1;
        }
        let run = &tokens[at..=end];
        if run.len() > 1 {
            let whole: String = run.iter().map(|token| token.word).collect();
            if has_digit(&whole) || whole.chars().count() <= 4 {
                found.push(whole);
            }
        }
        found.extend(run.iter().map(|token| token.word).filter(|word| has_digit(word) && has_letter(word)).map(str::to_owned));
        at = end + 1;
    }
    for pair in tokens.windows(2) {
        if pair[1].start - pair[0].end <= 1 && belong_together(pair[0].word, pair[1].word) {
            found.push(format!("{}{}", pair[0].word, pair[1].word));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether only one of `& + / . - '` is between two tokens.
fn joined(text: &str, left: Token<'_>, right: Token<'_>) -> bool {
    let between = &text[left.end..right.start];
    let mut signs = between.chars();
    matches!((signs.next(), signs.next()), (Some(sign), None) if "&+/.-'’".contains(sign))
}

/// Whether two tokens form an identifier: a short word and a number ("LH 441", "17 a"), or two numbers of which the second has
/// letters ("777 300er").
fn belong_together(left: &str, right: &str) -> bool {
    let starts_with_digit = right.starts_with(|letter: char| letter.is_numeric());
    let few_letters = |word: &str, most: usize| word.chars().all(char::is_alphabetic) && word.chars().count() <= most;
    let number = left.chars().all(char::is_numeric);
    (few_letters(left, 3) && starts_with_digit)
        || (number && few_letters(right, 2))
        || (number && starts_with_digit && has_letter(right) && !right.trim_start_matches(char::is_numeric).contains(char::is_numeric))
}

fn has_digit(word: &str) -> bool {
    word.chars().any(char::is_numeric)
}

fn has_letter(word: &str) -> bool {
    word.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::super::words::{normal, tokens};
    use super::identifiers;

    fn of(text: &str) -> Vec<String> {
        let text = normal(text);
        identifiers(&text, &tokens(&text))
    }

    #[test]
    fn all_spellings_of_a_flight_number_are_equal() {
        for text in ["LH 441", "LH441", "lh-441", "LH/441"] {
            assert!(of(text).contains(&"lh441".to_owned()), "{text}: {:?}", of(text));
        }
    }

    #[test]
    fn identifiers_with_signs_are_joined() {
        assert_eq!(of("M&M"), ["mm"]);
        assert!(of("Fehler E-4021").contains(&"e4021".to_owned()));
        assert!(of("Boeing 777 300ER").contains(&"777300er".to_owned()));
        assert!(of("Absatz 17 a").contains(&"17a".to_owned()));
    }

    #[test]
    fn plain_words_are_not_identifiers() {
        assert_eq!(of("Die Meilen verfallen nach drei Jahren."), Vec::<String>::new());
        assert_eq!(of("well-known"), Vec::<String>::new());
    }
}
