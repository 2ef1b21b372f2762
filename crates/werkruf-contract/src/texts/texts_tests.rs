use jiff::civil::date;

use super::{Language, TextSet, Texts};

/// The texts of a module. Spanish lacks one.
static CUPS: TextSet = TextSet::new(
    "cups = { $count ->\n    [one] Eine Tasse{ $where }\n   *[other] { $count } Tassen{ $where }\n}\nsaucer = Untertasse von { $name }",
    "cups = { $count ->\n    [one] One cup{ $where }\n   *[other] { $count } cups{ $where }\n}\nsaucer = saucer of { $name }",
    "cups = { $count ->\n    [one] Una taza{ $where }\n   *[other] { $count } tazas{ $where }\n}",
);

#[test]
fn texts_select_the_plural_and_insert_variables() {
    let cups = |locale: &str, count: i64| Texts::of(locale).with(&CUPS).text("cups", &[("count", count.into()), ("where", "".into())]);
    assert_eq!(cups("de-DE", 1), "Eine Tasse");
    assert_eq!(cups("de", 20_000), "20.000 Tassen");
    assert_eq!(cups("en-GB", 2), "2 cups");
    assert_eq!(cups("es-MX", 1), "Una taza");
    assert_eq!(cups("fr-FR", 1), "One cup");
    let german = Texts::of("de").with(&CUPS);
    assert_eq!(german.text("saucer", &[("name", "a@b.c".into())]), "Untertasse von a@b.c", "no direction marks");
}

#[test]
fn a_module_adds_its_texts_to_those_of_the_kernel() {
    let (kernel, both) = (Texts::of("es"), Texts::of("es").with(&CUPS));
    assert_eq!((kernel.knows("cups"), both.knows("cups")), (false, true));
    assert!(kernel.knows("error-canceled"));
    assert_eq!(both.text("error-canceled", &[]), kernel.text("error-canceled", &[]));
    assert_eq!(both.text("saucer", &[("name", "Ana".into())]), "saucer of Ana", "English where the language lacks the text");
    assert!(!both.knows("saucer"));
}

#[test]
fn a_missing_text_is_visible_and_does_not_fail() {
    let texts = Texts::of("es");
    assert_eq!(texts.text("no-such-key", &[]), "no-such-key");
    assert_eq!(texts.text("", &[]), "");
    assert!(!texts.knows("no-such-key"));
    assert!(texts.text("call-other", &[]).contains("code"), "the variable's name remains");
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
