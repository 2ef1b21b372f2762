//! Phone numbers in a canonical form, so that a number as people write it and the one that a channel delivers are found to be the same.

/// The fewest and most digits of a number with its country code.
const DIGITS: std::ops::RangeInclusive<usize> = 5..=15;

/// The digits of a number with its country code; `None` for a text that is no phone number. Channels deliver some mobile numbers with
/// or without a digit that belongs to no country code: Argentina's 9 after 54, Mexico's 1 after 52, Brazil's 9 before eight digits. It
/// is left out.
pub fn canonical_phone(text: &str) -> Option<String> {
    let text = text.trim();
    let international = text.starts_with('+') || text.starts_with("00");
    // +49 (0)171 …: the zero in parentheses is dialed only without the country code.
    let dialed = if international { text.replace("(0)", "") } else { text.to_owned() };
    let is_separator = |c: char| c.is_whitespace() || matches!(c, '-' | '(' | ')' | '.' | '/' | '\u{2011}' | '\u{2013}');
    let number = dialed.strip_prefix('+').unwrap_or(&dialed);
    if number.chars().any(|c| !c.is_ascii_digit() && !is_separator(c)) {
        return None;
    }
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.strip_prefix("00").unwrap_or(&digits);
    // No country code begins with a zero: that number is dialed inside a country.
    if !DIGITS.contains(&digits.len()) || digits.starts_with('0') {
        return None;
    }
    Some(match (digits.get(..2), digits.get(2..)) {
        (Some("54"), Some(rest)) if rest.len() == 11 => format!("54{}", rest.strip_prefix('9').unwrap_or(rest)),
        (Some("52"), Some(rest)) if rest.len() == 11 => format!("52{}", rest.strip_prefix('1').unwrap_or(rest)),
        // Two digits of the area code, then the number.
        (Some("55"), Some(rest)) if rest.len() == 11 => format!("55{}{}", &rest[..2], &rest[3..]),
        _ => digits.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::canonical_phone;

    #[test]
    fn one_number_has_one_form() {
        for (written, expected) in [
            ("+34 600 111 222", "34600111222"),
            ("0034-600.111/222", "34600111222"),
            ("34600111222", "34600111222"),
            (" +49 (0)171 234 56 78 ", "491712345678"),
            ("+5491112345678", "541112345678"),
            ("54 11 1234 5678", "541112345678"),
            ("+52 1 55 1234 5678", "525512345678"),
            ("525512345678", "525512345678"),
            ("+55 11 91234 5678", "551112345678"),
            ("55 11 1234 5678", "551112345678"),
            // The same digits in another country stay.
            ("+49 1 5512345678", "4915512345678"),
        ] {
            assert_eq!(canonical_phone(written).as_deref(), Some(expected), "{written}");
        }
        for other in ["", "+", "call me", "1234", "+1234567890123456", "12+345", "１２３４５６", "0171 2345678", "+0171 2345678"] {
            assert_eq!(canonical_phone(other), None, "{other}");
        }
    }
}
