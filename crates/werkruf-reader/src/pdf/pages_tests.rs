use proptest::prelude::*;

use super::super::sample::{drawn, pdf, with_trailer};
use super::*;

fn text(pages: &[Vec<u8>]) -> String {
    read(pdf(pages)).unwrap().1
}

#[test]
fn paragraphs_lines_and_hyphenated_words() {
    let page = drawn(&[
        (72, 780, "Verfall der Prämien"),
        (72, 740, "Meilen verfallen, wenn sie nicht in sechs-"),
        (72, 726, "unddreißig Monaten genutzt werden; die Hin-"),
        (72, 712, "und Rückflüge zählen."),
        (72, 680, "Gebühren: 5 € (Köln–Düsseldorf)"),
    ]);
    let (title, text) = read(pdf(&[page])).unwrap();
    assert_eq!(title.as_deref(), Some("Bonusmeilen"));
    let expected = "Verfall der Prämien\n\nMeilen verfallen, wenn sie nicht in sechsunddreißig Monaten genutzt werden; die Hin- und Rückflüge \
        zählen.\n\nGebühren: 5 € (Köln–Düsseldorf)";
    assert_eq!(text, expected);
}

#[test]
fn a_page_ends_a_paragraph_and_headers_are_kept_once() {
    let page = |number: usize, words: &str| {
        drawn(&[(72, 800, "Handbuch der Bonuspunkte"), (72, 700, words), (280, 40, &format!("Seite {number} von 4"))])
    };
    let words = ["Der erste Absatz endet hier", "geht aber weiter.", "Drittens.", "Viertens."];
    let two = text(&[page(1, words[0]), page(2, words[1])]);
    assert!(two.contains("endet hier\n\nSeite 1 von 4\n\nHandbuch der Bonuspunkte\n\ngeht aber"), "{two}");
    let four = text(&[page(1, words[0]), page(2, words[1]), page(3, words[2]), page(4, words[3])]);
    assert_eq!(
        four,
        "Handbuch der Bonuspunkte\n\nDer erste Absatz endet hier\n\nSeite 1 von 4\n\ngeht aber weiter.\n\nDrittens.\n\nViertens."
    );
}

#[test]
fn words_are_separated_by_their_distance() {
    // The first gap is kerning, the second is wide enough for a space. Then the same text is drawn again, slightly moved, as fake bold.
    let page = b"BT /F 12 Tf 72 700 Td [(Bo) 20 (nus) -300 (punkte)] TJ 0.3 0 Td [(Bo) 20 (nus) -300 (punkte)] TJ ET".to_vec();
    assert_eq!(text(&[page]), "Bonus punkte");
}

#[test]
fn a_rotated_page_is_read_like_others() {
    let page = b"BT /F 12 Tf 0 1 -1 0 300 100 Tm (Quer gesetzt,) Tj 0 1 -1 0 314 100 Tm (zwei Zeilen.) Tj ET".to_vec();
    let read = text(&[page]);
    assert!(["Quer gesetzt, zwei Zeilen.", "Quer gesetzt,\nzwei Zeilen."].contains(&read.as_str()), "{read:?}");
}

#[test]
fn unreadable_files_have_a_reason() {
    let whole = pdf(&[drawn(&[(72, 700, "Ein Satz.")])]);
    let picture = pdf(&[b"q 100 0 0 100 0 0 cm Q".to_vec()]);
    let locked = with_trailer(
        &[drawn(&[(72, 700, "Geheim.")])],
        "",
        &format!(
            "/ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <{}> /U <{}> >>",
            "41".repeat(32),
            "42".repeat(32)
        ),
    );
    let mut junk = b"%PDF-1.7\n".to_vec();
    junk.extend(b"not a document %%EOF");
    for (bytes, fault) in [
        (picture, ReadError::PicturePdf),
        (locked, ReadError::EncryptedPdf),
        (whole[..whole.len() / 2].to_vec(), ReadError::CutOff),
        (whole[..whole.len() - 8].to_vec(), ReadError::CutOff),
        (junk, ReadError::BrokenPdf),
        (Vec::new(), ReadError::BrokenPdf),
        (b"MZ is no PDF".to_vec(), ReadError::BrokenPdf),
    ] {
        assert_eq!(read(bytes).unwrap_err(), fault);
    }
}

#[test]
fn a_scan_with_page_numbers_is_a_scan() {
    let page = |text: &str| drawn(&[(280, 30, text)]);
    for pages in [
        vec![page("1"), page("2"), page("3")],
        vec![page("Seite 1 von 2"), page("Seite 2 von 2")],
        vec![page("- iv -"), Vec::new(), page("Page 6")],
        vec![drawn(&[(280, 800, "7"), (280, 30, "p. 7/12")])],
    ] {
        assert_eq!(read(pdf(&pages)).unwrap_err(), ReadError::PicturePdf);
    }
    // A single word, and a table of numbers, are text.
    assert_eq!(text(&[page("1"), page("Ende")]), "1\n\nEnde");
    let table: Vec<(i32, i32, String)> = (0..6).map(|at| (72, 700 - 14 * at, format!("{at} 17"))).collect();
    let rows: Vec<(i32, i32, &str)> = table.iter().map(|(left, bottom, text)| (*left, *bottom, text.as_str())).collect();
    assert!(text(&[drawn(&rows)]).contains("5 17"));
}

#[test]
fn fonts_without_character_names() {
    let nameless =
        "/ToUnicode 9 0 R /Encoding << /Differences [65 /g1 /g2 /g3 /g4] >> /FirstChar 65 /LastChar 68 /Widths [500 500 500 500]";
    let bytes = with_trailer(&[drawn(&[(72, 700, "ABCDABCD")])], nameless, "");
    // Some readers use the first of two encodings, some the second. Without the first, only the one without names is left.
    let bytes = String::from_utf8(bytes).unwrap().replacen("/Encoding /WinAnsiEncoding ", "", 1).into_bytes();
    assert_eq!(read(bytes).unwrap_err(), ReadError::NamelessFonts);
}

#[test]
fn titles() {
    for (bytes, expected) in [
        (&b"Meilen"[..], Some("Meilen")),
        (b"\xFE\xFF\x00\xDC\x00b", Some("Üb")),
        (b"\xDCber", Some("Über")),
        (b"Microsoft Word - Regeln", Some("Regeln")),
        (b"Microsoft Word - Regeln.docx", None),
        (b"(anonymous)", None),
        (b"  ", None),
        (b"\xFE\xFF\x00", None),
        (b"\xFE", Some("þ")),
    ] {
        assert_eq!(title(bytes).as_deref(), expected);
    }
}

/// A file with random damage.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let lines = [(72, 700, "Ein Satz mit Umlauten: äöü."), (72, 686, "Noch einer.")];
    let whole = with_trailer(&[drawn(&lines), drawn(&lines)], "", "/Info << /Title (T) >>");
    let faults = proptest::collection::vec((0..whole.len(), any::<u8>()), 0..40);
    (faults, 0..whole.len()).prop_map(move |(faults, cut)| {
        let mut bytes = whole.clone();
        for (at, byte) in faults {
            bytes[at] = byte;
        }
        // Half of the files lack a piece in the middle.
        if cut % 2 == 0 {
            bytes.drain(cut / 2..cut);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_panic(inside in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let mut framed = b"%PDF-1.5\n".to_vec();
        framed.extend(&inside);
        framed.extend(b"\n%%EOF\n");
        let _ = read(inside.clone());
        let _ = read(framed);
        // The bytes as the drawing operations of a page.
        let _ = read(pdf(&[inside]));
    }

    #[test]
    fn damaged_files_do_not_panic(bytes in damaged()) {
        let _ = read(bytes);
    }
}
