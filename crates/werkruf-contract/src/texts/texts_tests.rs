use std::collections::{BTreeMap, BTreeSet};

use fluent_bundle::FluentResource;
use jiff::civil::date;

use super::bundle::source;
use super::{Language, Texts};

const LANGUAGES: [Language; 3] = [Language::German, Language::English, Language::Spanish];

/// The variables of each text, by key.
fn keys(language: Language) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut current = "";
    for line in source(language).lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            current = line.split_once(" =").unwrap().0;
            assert!(keys.insert(current, BTreeSet::new()).is_none(), "{current} is defined twice in {language}");
        }
        for (at, _) in line.match_indices('$') {
            let name = line[at + 1..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next().unwrap();
            keys.get_mut(current).unwrap().insert(name);
        }
    }
    keys
}

#[test]
fn the_three_files_have_the_same_keys_and_variables() {
    let english = keys(Language::English);
    assert!(english.len() > 50);
    for language in LANGUAGES {
        assert!(FluentResource::try_new(source(language).to_owned()).is_ok(), "{language} does not parse");
        assert_eq!(keys(language), english, "{language} and en differ");
        let texts = Texts::of(language.as_str());
        for key in english.keys() {
            assert!(texts.knows(key), "{key} is missing in {language}");
        }
    }
}

#[test]
fn texts_select_the_plural_and_insert_variables() {
    let args = |count: i64| [("count", count.into()), ("filter", "".into())];
    assert_eq!(Texts::of("de-DE").text("requests-found", &args(1)), "Eine Anfrage:");
    assert_eq!(Texts::of("de").text("requests-found", &args(20_000)), "20.000 Anfragen:");
    assert_eq!(Texts::of("en-GB").text("requests-found", &args(2)), "2 requests:");
    assert_eq!(Texts::of("es-MX").text("todos-found", &args(1)), "Una tarea:");
    assert_eq!(Texts::of("fr-FR").text("status-open", &[]), "open");
    assert_eq!(Texts::of("de").text("person-email", &[("email", "a@b.c".into())]), "E-Mail: a@b.c", "no direction marks");
}

#[test]
fn a_missing_text_is_visible_and_does_not_fail() {
    let texts = Texts::of("es");
    assert_eq!(texts.text("no-such-key", &[]), "no-such-key");
    assert_eq!(texts.text("", &[]), "");
    assert!(!texts.knows("no-such-key"));
    assert!(texts.text("person-email", &[]).contains("email"), "the variable's name remains");
    assert_eq!(Texts::of("").language(), Language::English);
}

#[test]
fn numbers_follow_the_locale() {
    let number = |locale: &str, value: i64| Texts::of(locale).number(value);
    assert_eq!(
        (number("de-DE", 85_000), number("en-US", 85_000), number("es-ES", 85_000)),
        ("85.000".into(), "85,000".into(), "85.000".into())
    );
    assert_eq!((number("es-ES", 8_500), number("de", 8_500), number("en", -8_500)), ("8500".into(), "8.500".into(), "-8,500".into()));
    assert_eq!(number("de-CH", 85_000), "85'000");
    assert_eq!(number("klingon", 85_000), "85,000");
    assert_eq!(Texts::of("de").decimal("1234.50"), "1.234,50");
    assert_eq!(Texts::of("en").decimal("1234.50"), "1,234.50");
    assert_eq!(Texts::of("en").decimal("a lot"), "a lot");
}

#[test]
fn dates_and_times_follow_the_locale() {
    let day = date(2026, 11, 5);
    let shown: Vec<String> = ["de-DE", "en-US", "en-GB", "es-ES", "en"].map(|locale| Texts::of(locale).date(day)).into();
    assert_eq!(shown, ["05.11.2026", "Nov 5, 2026", "5 Nov 2026", "05/11/2026", "Nov 5, 2026"]);
    let at = day.at(14, 5, 0, 0).in_tz("Europe/Berlin").unwrap();
    let shown: Vec<String> = ["de-DE", "en-US", "en-GB", "es-ES"].map(|locale| Texts::of(locale).time(&at)).into();
    assert_eq!(shown, ["14:05", "2:05 PM", "14:05", "14:05"]);
}

#[test]
fn durations_are_short() {
    let duration = |locale: &str, minutes: i64| Texts::of(locale).duration_minutes(minutes);
    assert_eq!(duration("de", 125), "2 Std. 5 Min.");
    assert_eq!(duration("en", 60), "1 h");
    assert_eq!(duration("es", 0), "0 min");
}
