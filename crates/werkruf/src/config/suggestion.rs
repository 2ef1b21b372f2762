//! The name that was probably meant, where a name is unknown.

/// Names that are less alike are not suggested.
const ALIKE: f64 = 0.8;

/// The known name that is most like a misspelt one.
pub(crate) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let likeness = |name: &'a str| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name);
    let best = known.into_iter().map(likeness).max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, name)| name)
}

/// Asks whether the most similar name was meant; without one, `otherwise`.
pub(crate) fn advice<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    nearest(wrong, known).map_or_else(|| otherwise.to_owned(), |name| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_a_similar_name_is_suggested() {
        let known = ["listen", "database", "limits", "assistants", "WERKRUF_DATABASE"];
        for (wrong, expected) in [
            ("lisen", Some("listen")),
            ("Databse", Some("database")),
            ("limit", Some("limits")),
            ("WERKRUF_DATABSE", Some("WERKRUF_DATABASE")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(wrong, known), expected, "{wrong}");
        }
    }
}
