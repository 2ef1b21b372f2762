//! Detects messages that mean only "yes", in German, English and Spanish. Case, accents and punctuation do not matter.

/// The message must contain one of these words.
const YES: &[&str] = &[
    "ja",
    "jo",
    "jep",
    "jawohl",
    "gern",
    "gerne",
    "klar",
    "ok",
    "okay",
    "okey",
    "einverstanden",
    "unbedingt",
    "natuerlich",
    "naturlich",
    "sicher",
    "bitte",
    "yes",
    "yeah",
    "yep",
    "yup",
    "sure",
    "please",
    "absolutely",
    "definitely",
    "fine",
    "si",
    "claro",
    "vale",
    "adelante",
    "hazlo",
    "bueno",
    "perfecto",
    "dale",
    "oki",
    "go",
    "machs",
];
/// The message may also contain these words.
const FILLERS: &[&str] = &[
    "mach", "das", "mal", "na", "doch", "sehr", "tu", "es", "in", "ordnung", "danke", "of", "course", "ahead", "do", "it", "that",
    "thanks", "thank", "you", "por", "favor", "que", "de", "acuerdo", "gracias", "supuesto", "seguro", "such", "suche", "search", "busca",
];
/// Whole messages that mean "yes" without a word from `YES`.
const WHOLE_MESSAGES: &[&str] =
    &["in ordnung", "of course", "do it", "de acuerdo", "por favor", "por supuesto", "mach das", "mach mal", "mach es"];
/// A longer message means more than "yes".
const MAX_WORDS: usize = 7;

pub(super) fn is_assent(message: &str) -> bool {
    let words = words(message);
    if words.is_empty() || words.len() > MAX_WORDS {
        return false;
    }
    let known = |word: &String| YES.contains(&word.as_str()) || FILLERS.contains(&word.as_str());
    WHOLE_MESSAGES.contains(&words.join(" ").as_str()) || (words.iter().all(known) && words.iter().any(|word| YES.contains(&word.as_str())))
}

fn words(message: &str) -> Vec<String> {
    let folded: String = message
        .to_lowercase()
        .chars()
        .map(|letter| match letter {
            'í' => 'i',
            'ü' => 'u',
            'á' => 'a',
            'é' => 'e',
            'ó' => 'o',
            other => other,
        })
        .collect();
    folded.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::is_assent;

    #[test]
    fn a_yes_in_three_languages() {
        for yes in [
            "ja",
            "Ja!",
            "gerne",
            "Ja, gerne.",
            "ok",
            "Okay 👍",
            "ja bitte mach das",
            "klar",
            "In Ordnung",
            "yes please",
            "Yes",
            "sure!",
            "go ahead",
            "please do",
            "of course",
            "sí",
            "Si, por favor",
            "claro que sí",
            "vale",
            "de acuerdo",
            "adelante",
        ] {
            assert!(is_assent(yes), "{yes}");
        }
    }

    #[test]
    fn other_messages_are_not_a_yes() {
        for other in [
            "",
            "?",
            "nein",
            "nein danke",
            "no",
            "no, gracias",
            "ja, aber suche lieber in Wien",
            "yes or no?",
            "das",
            "danke",
            "okay was sind meine Anfragen",
            "Welche Aufgaben habe ich?",
            "klar ist das nicht",
            "claro que no",
        ] {
            assert!(!is_assent(other), "{other}");
        }
    }
}
