use hayro_interpret::kurbo::Vec2;

use super::*;

/// Lines of 10 points, each with its left and right end and its baseline.
fn lines(given: &[(f64, f64, f64, &str)]) -> Vec<Line> {
    let line = |(left, right, baseline, text): &(f64, f64, f64, &str)| Line {
        text: (*text).to_owned(),
        left: *left,
        right: *right,
        baseline: *baseline,
        size: 10.0,
        direction: Vec2::new(1.0, 0.0),
    };
    given.iter().map(line).collect()
}

#[test]
fn distance_indents_and_short_last_lines() {
    let page = lines(&[
        (50.0, 350.0, 100.0, "Eine volle Zeile, die"),
        (50.0, 348.0, 112.0, "noch eine hat und endet."),
        (62.0, 350.0, 124.0, "Eingerückt beginnt"),
        (50.0, 200.0, 136.0, "der nächste und ist kurz."),
        (50.0, 350.0, 148.0, "Ohne Einzug geht es"),
        (50.0, 350.0, 160.0, "weiter"),
        (50.0, 350.0, 190.0, "und nach einer Lücke auch"),
    ]);
    let expected = [
        "Eine volle Zeile, die noch eine hat und endet.",
        "Eingerückt beginnt der nächste und ist kurz.",
        "Ohne Einzug geht es weiter",
        "und nach einer Lücke auch",
    ];
    assert_eq!(paragraphs(&page), expected);
}

#[test]
fn lists_rows_and_columns() {
    let list = lines(&[
        (50.0, 350.0, 100.0, "Drei Stufen gibt es, und jede"),
        (50.0, 350.0, 112.0, "hat ihre eigenen Vorteile"),
        (50.0, 350.0, 124.0, "• Silber, wofür man im Jahr zehn-"),
        (60.0, 350.0, 136.0, "tausend Punkte sammelt"),
        (50.0, 350.0, 148.0, "• Gold, wofür man mehr sammelt"),
    ]);
    let expected = "Drei Stufen gibt es, und jede hat ihre eigenen Vorteile\n• Silber, wofür man im Jahr zehntausend Punkte sammelt\n• Gold, wofür man \
        mehr sammelt";
    assert_eq!(paragraphs(&list), [expected]);
    let table = lines(&[
        (50.0, 350.0, 88.0, "Eine Zeile über die ganze Breite"),
        (50.0, 90.0, 100.0, "Stufe"),
        (150.0, 190.0, 100.0, "Punkte"),
        (50.0, 90.0, 112.0, "Gold"),
        (150.0, 190.0, 112.0, "35000"),
    ]);
    assert_eq!(paragraphs(&table), ["Eine Zeile über die ganze Breite Stufe Punkte\nGold 35000"]);
    let columns = lines(&[
        (50.0, 200.0, 100.0, "Links unten steht der"),
        (50.0, 200.0, 112.0, "Anfang des Satzes, der"),
        (250.0, 400.0, 100.0, "rechts oben weitergeht."),
        (250.0, 400.0, 124.0, "Danach kommt etwas anderes"),
        (50.0, 200.0, 60.0, "Oben ein Kasten"),
    ]);
    let expected =
        ["Links unten steht der Anfang des Satzes, der rechts oben weitergeht.", "Danach kommt etwas anderes", "Oben ein Kasten"];
    assert_eq!(paragraphs(&columns), expected);
}

#[test]
fn another_font_size_begins_a_paragraph_and_no_lines_give_none() {
    let mut page = lines(&[(50.0, 200.0, 100.0, "Überschrift"), (50.0, 350.0, 114.0, "Der Text darunter.")]);
    page[0].size = 14.0;
    assert_eq!(paragraphs(&page), ["Überschrift", "Der Text darunter."]);
    assert!(paragraphs(&[]).is_empty());
}

#[test]
fn rows_that_begin_or_end_with_numbers_stay_lines() {
    let row = |at: usize, text: &'static str| (50.0, 350.0, 100.0 + 12.0 * at as f64, text);
    let times = lines(&[row(0, "08:05 Köln Hbf nach Bonn"), row(1, "08:25 Köln Hbf nach Aachen"), row(2, "09:05 Köln Hbf nach Bonn")]);
    assert_eq!(paragraphs(&times), ["08:05 Köln Hbf nach Bonn\n08:25 Köln Hbf nach Aachen\n09:05 Köln Hbf nach Bonn"]);
    let prices =
        lines(&[row(0, "Schraube M4 zu 1,20 €"), row(1, "Schraube M5 zu 1,40 €"), row(2, "Mutter zu 3,00 EUR"), row(3, "und Porto")]);
    assert_eq!(paragraphs(&prices), ["Schraube M4 zu 1,20 €\nSchraube M5 zu 1,40 €\nMutter zu 3,00 EUR und Porto"]);
    let prose = lines(&[row(0, "Im Jahr kamen mehr als"), row(1, "35000 Menschen dazu")]);
    assert_eq!(paragraphs(&prose), ["Im Jahr kamen mehr als 35000 Menschen dazu"]);
}
