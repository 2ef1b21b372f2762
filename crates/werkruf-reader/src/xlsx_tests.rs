use super::{number_text, read};
use crate::ReadError;
use crate::office_sample::{archive, xlsx};

#[test]
fn sheets_are_headings_and_rows_are_lines() {
    let rows = "<row r='1'><c r='A1' t='s'><v>0</v></c><c r='B1' t='inlineStr'><is><t>Preis</t></is></c><c r='C1' t='s'><v>1</v></c></row>\
        <row r='2'><c r='A2' t='s'><v>2</v></c><c r='B2'><v>19.989999999999998</v></c><c r='C2' s='1'><v>45717</v></c></row>\
        <row r='4'><c r='B4'><f>SUM(B2:B3)</f><v>20</v></c><c r='D4' s='4'><v>45717.5</v></c><c r='E4' s='2'><v>0.3541666667</v></c>\
        <c r='F4' s='3'><v>1.5</v></c><c r='G4' t='b'><v>1</v></c><c r='H4' t='e'><v>#DIV/0!</v></c>\
        <c r='I4' s='5'><v>0.19</v></c></row>";
    let shared = "<si><t>Artikel</t></si><si><r><t xml:space='preserve'>Gültig </t></r><r><t>ab</t></r></si><si><t>Schraube &amp; Mutter\nlang</t></si>";
    let (title, text) = read(&xlsx(rows, shared)).unwrap();
    assert_eq!(title.as_deref(), Some("Regeln & mehr"));
    let expected = "## Preise 2025\n\n| Artikel | Preis | Gültig ab |\n| Schraube & Mutter lang | 19.99 | 2025-03-01 |\n\
        |  | 20 |  | 2025-03-01 12:00 | 08:30 | 36:00:00 | true | #DIV/0! | 19% |";
    assert_eq!(text, expected);
}

#[test]
fn numbers_as_excel_shows_them() {
    for (number, text) in [(0.1 + 0.2, "0.3"), (1_234_567.0, "1234567"), (-2.5, "-2.5"), (12.0, "12"), (0.19, "0.19")] {
        assert_eq!(number_text(number), text);
    }
}

#[test]
fn a_sparse_sheet_is_small() {
    let rows = "<row r='1'><c r='A1'><v>1</v></c></row><row r='1048576'><c r='XFD1048576'><v>2</v></c></row>";
    assert_eq!(read(&xlsx(rows, "")).unwrap().1, "## Preise 2025\n\n| 1 |\n|  | 2 |");
}

#[test]
fn every_row_of_a_price_list_is_kept() {
    let rows: String = (1..=2_000)
        .map(|at| format!("<row r='{at}'><c r='A{at}' t='inlineStr'><is><t>Artikel {at}</t></is></c><c r='B{at}'><v>{at}.25</v></c></row>"))
        .collect();
    let expected: Vec<String> = (1..=2_000).map(|at| format!("| Artikel {at} | {at}.25 |")).collect();
    assert_eq!(read(&xlsx(&rows, "")).unwrap().1, format!("## Preise 2025\n\n{}", expected.join("\n")));
}

#[test]
fn hostile_and_other_files_are_refused() {
    let long = format!("<si><t>{}</t></si>", "x".repeat(1 << 20));
    let row: String = (0..100).map(|_| "<c t='s'><v>0</v></c>").collect();
    assert_eq!(read(&xlsx(&format!("<row>{row}</row>"), &long)).unwrap_err(), ReadError::TooMuchText);
    let blank = format!("<si><t>{}</t></si>", " ".repeat(200 << 20));
    assert_eq!(read(&xlsx("", &blank)).unwrap_err(), ReadError::Expands);
    let nowhere = "<row r='99999999999'><c r='ZZZZZZZ9'><v>1</v></c></row>";
    // Whether the number overflows depends on the build; neither may panic.
    assert!(matches!(read(&xlsx(nowhere, "")), Ok(_) | Err(ReadError::BrokenOffice("XLSX"))));
    assert_eq!(read(b"PK").unwrap_err(), ReadError::BrokenOffice("XLSX"));
    assert_eq!(read(&archive(&[("a.xml", "<a/>")])).unwrap_err(), ReadError::BrokenOffice("XLSX"));
}
