use super::read;
use crate::ReadError;
use crate::office_sample::{archive, docx, paragraph};

fn text(body: &str) -> String {
    read(&docx(body, &[])).unwrap().1
}

fn row(cells: &[&str]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<w:tc>{}</w:tc>", paragraph("", cell))).collect();
    format!("<w:tr>{cells}</w:tr>")
}

#[test]
fn paragraphs_headings_lists_and_tables_in_order() {
    let list = |depth: u8, text: &str| {
        format!("<w:p><w:pPr><w:numPr><w:ilvl w:val='{depth}'/><w:numId w:val='1'/></w:numPr></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
    };
    let table = format!("<w:tbl><w:tblPr/>{}{}</w:tbl>", row(&["Stufe", "Punkte"]), row(&["Gold", "35.000"]));
    let body = [
        paragraph("berschrift1", "Verfall"),
        "<w:p><w:r><w:t>Meilen ver</w:t></w:r><w:r><w:t>fallen &lt; 36 Monate</w:t><w:tab/><w:t>&#8364;</w:t><w:br/><w:t>Zweite Zeile</w:t></w:r></w:p>".to_owned(),
        paragraph("Eigene", "Stufen"),
        list(0, "Gold"),
        list(1, "innen"),
        paragraph("Aufzhlung", "Silber"),
        table,
        paragraph("", ""),
        paragraph("Heading3", "Ende"),
        paragraph("", "Schluss."),
    ]
    .concat();
    let (title, text) =
        read(&docx(&body, &[("word/footnotes.xml", &format!("<w:footnotes>{}</w:footnotes>", paragraph("", "Eine Fußnote.")))])).unwrap();
    assert_eq!(title.as_deref(), Some("Regeln & mehr"));
    let expected = "# Verfall\n\nMeilen verfallen < 36 Monate €\nZweite Zeile\n\n## Stufen\n\n- Gold\n  - innen\n- Silber\n\n\
        | Stufe | Punkte |\n| Gold | 35.000 |\n\n### Ende\n\nSchluss.\n\nEine Fußnote.";
    assert_eq!(text, expected);
}

#[test]
fn text_that_is_not_shown_is_left_out_and_boxes_are_read_once() {
    let body = "<w:p><w:del><w:r><w:delText>alt</w:delText></w:r></w:del><w:ins><w:r><w:t>neu</w:t></w:r></w:ins>\
        <w:moveFrom><w:r><w:t>hier</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>\
        <w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>Kasten</w:t></w:r></w:p></w:txbxContent></mc:Choice>\
        <mc:Fallback><w:p><w:r><w:t>Kasten</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent><w:t>Umgebung</w:t></w:r></w:p>";
    assert_eq!(text(body), "neu\n\nKasten\n\nUmgebung");
}

#[test]
fn a_table_in_a_cell_stays_in_its_cell() {
    let inner = format!("<w:tbl>{}{}</w:tbl>", row(&["a", "b"]), row(&["c", "d"]));
    let body =
        format!("<w:tbl><w:tr><w:tc>{}{inner}</w:tc><w:tc>{}</w:tc></w:tr></w:tbl>", paragraph("", "außen"), paragraph("", "rechts"));
    assert_eq!(text(&body), "| außen a b c d | rechts |");
}

#[test]
fn tables_nested_beyond_the_limit_lose_no_text() {
    let (open, close) = ("<w:tbl><w:tr><w:tc>".repeat(12), "</w:tc></w:tr></w:tbl>".repeat(12));
    let body = format!("{}{open}{}{close}{}", paragraph("", "davor"), paragraph("", "innen"), paragraph("", "danach"));
    let text = text(&body);
    let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} is missing: {text}"));
    assert!(at("davor") < at("innen") && at("innen") < at("danach"));
}

#[test]
fn a_long_table_keeps_every_row() {
    let rows: String = (0..3_000).map(|at| row(&[&format!("Artikel {at}"), &format!("{at},50 €")])).collect();
    let expected: Vec<String> = (0..3_000).map(|at| format!("| Artikel {at} | {at},50 € |")).collect();
    assert_eq!(text(&format!("<w:tbl>{rows}</w:tbl>")), expected.join("\n"));
}

#[test]
fn the_text_may_be_in_a_part_with_another_name() {
    let relations = "<Relationships><Relationship Id='r1' Type='http://x/officeDocument' Target='/word/document2.xml'/></Relationships>";
    let document = format!("<w:document>{}</w:document>", paragraph("", "Text"));
    assert_eq!(read(&archive(&[("_rels/.rels", relations), ("word/document2.xml", &document)])).unwrap().1, "Text");
}

#[test]
fn damaged_hostile_and_other_files_are_refused() {
    let whole = docx(&paragraph("", "Text"), &[]);
    let broken = ReadError::BrokenOffice("DOCX");
    let deep = format!("{}{}", "<w:sdt>".repeat(5_000), "</w:sdt>".repeat(5_000));
    for (bytes, expected) in [
        (whole[..whole.len() / 2].to_vec(), broken),
        (b"PK\x03\x04".to_vec(), broken),
        (archive(&[("other.xml", "<a/>")]), broken),
        (archive(&[("word/document.xml", "<w:document><w:p>")]), broken),
        (docx(&deep, &[]), broken),
        (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1".to_vec(), ReadError::EncryptedOffice("DOCX")),
    ] {
        assert_eq!(read(&bytes).unwrap_err(), expected);
    }
}

#[test]
fn a_small_file_that_expands_far_is_refused() {
    // 200 MiB of spaces are 200 KiB in the file.
    let blank = " ".repeat(200 << 20);
    let bomb = docx(&blank, &[]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(read(&bomb).unwrap_err(), ReadError::Expands);
    let words = paragraph("", &"wort ".repeat(3 << 20));
    assert_eq!(read(&docx(&words, &[])).unwrap_err(), ReadError::TooMuchText);
}
