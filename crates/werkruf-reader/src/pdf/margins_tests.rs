//! Whole documents: every line of a body is kept, and headers and footers appear once.

use super::super::pages::read;
use super::super::sample::{drawn, pdf};

type Cell = (i32, i32, String);

fn text(pages: &[Vec<Cell>]) -> String {
    let draw = |cells: &Vec<Cell>| drawn(&cells.iter().map(|(left, bottom, text)| (*left, *bottom, text.as_str())).collect::<Vec<_>>());
    read(pdf(&pages.iter().map(draw).collect::<Vec<_>>())).unwrap().1
}

fn cell(left: i32, bottom: i32, text: impl Into<String>) -> Cell {
    (left, bottom, text.into())
}

/// Rows from the top of a page, each with its cells at these distances from the left.
fn table(top: i32, lefts: &[i32], rows: impl Iterator<Item = Vec<String>>) -> Vec<Cell> {
    let at = |(row, cells): (usize, Vec<String>)| {
        let bottom = top - 14 * i32::try_from(row).unwrap();
        cells.into_iter().zip(lefts).map(move |(text, left)| (*left, bottom, text)).collect::<Vec<_>>()
    };
    rows.enumerate().flat_map(at).collect()
}

#[test]
fn a_price_list_keeps_every_line() {
    // Six pages of ten lines that differ only in digits, and a closing line: the earlier reader kept 11 of 61.
    let line = |page: i32, at: i32| format!("Artikel {} zu {},{:02} EUR", 1_000 + page * 10 + at, 3 + at, page * 7 + at);
    let mut pages: Vec<Vec<Cell>> = (0..6).map(|page| (0..10).map(|at| cell(72, 800 - 70 * at, line(page, at))).collect()).collect();
    pages[5].push(cell(72, 60, "Alle Preise ohne Gewähr."));
    let mut expected: Vec<String> = (0..6).flat_map(|page| (0..10).map(move |at| line(page, at))).collect();
    expected.push("Alle Preise ohne Gewähr.".to_owned());
    assert_eq!(text(&pages).split("\n\n").collect::<Vec<_>>(), expected);
}

#[test]
fn a_dense_price_list_has_one_line_per_article() {
    let row =
        |page: i32, at: i32| vec![format!("Schraube M{}", page * 40 + at), format!("{}", 4_000 + at), format!("{},{:02} €", at, page)];
    let pages: Vec<Vec<Cell>> = (0..5).map(|page| table(800, &[72, 250, 450], (0..40).map(|at| row(page, at)))).collect();
    let page = |page: i32| (0..40).map(|at| row(page, at).join(" ")).collect::<Vec<_>>().join("\n");
    assert_eq!(text(&pages), (0..5).map(page).collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn a_bank_statement_keeps_every_booking() {
    // The bookings start and end at the same places of each page; headings and page numbers repeat.
    let booking = |page: i32, at: i32| {
        vec![format!("{:02}.{:02}.", 1 + at, 1 + page), "Lastschrift".to_owned(), format!("-{},{:02}", 10 * at + page, at)]
    };
    let pages: Vec<Vec<Cell>> = (0..5)
        .map(|page| {
            let mut cells = vec![cell(72, 800, "Kontoauszug DE12 3456"), cell(450, 800, format!("Seite {} von 5", page + 1))];
            cells.push(cell(72, 760, format!("Alter Saldo {},00", 100 * page)));
            cells.extend(table(730, &[72, 150, 450], (0..20).map(|at| booking(page, at))));
            cells.push(cell(72, 730 - 14 * 22, format!("Neuer Saldo {},00", 100 * (page + 1))));
            cells
        })
        .collect();
    let page = |page: i32| {
        let rows: Vec<String> = (0..20).map(|at| booking(page, at).join(" ")).collect();
        format!("Alter Saldo {},00\n\n{}\n\nNeuer Saldo {},00", 100 * page, rows.join("\n"), 100 * (page + 1))
    };
    let expected = format!("Kontoauszug DE12 3456 Seite 1 von 5\n\n{}", (0..5).map(page).collect::<Vec<_>>().join("\n\n"));
    assert_eq!(text(&pages), expected);
}

#[test]
fn a_timetable_keeps_equal_rows_of_every_day() {
    // Only the day differs: equal rows at the same places are not footers.
    let days = ["Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"];
    let row = |at: i32| vec![format!("{:02}:00", 5 + at), "Köln Hbf".to_owned(), format!("Gleis {}", 1 + at % 4)];
    let pages: Vec<Vec<Cell>> = days
        .iter()
        .map(|day| {
            let mut cells = vec![cell(72, 780, *day)];
            // Groups of rows with gaps between them, down to the end of the page.
            for group in 0..3 {
                let rows = (0..6).map(|at| row(group * 6 + at));
                cells.extend(table(750 - 240 * group, &[72, 150, 300], rows));
            }
            cells
        })
        .collect();
    let group = |group: i32| (0..6).map(|at| row(group * 6 + at).join(" ")).collect::<Vec<_>>().join("\n");
    let day = |day: &&str| format!("{day}\n\n{}\n\n{}\n\n{}", group(0), group(1), group(2));
    assert_eq!(text(&pages), days.iter().map(day).collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn titles_with_numbers_stay_and_page_numbers_do_not() {
    let pages: Vec<Vec<Cell>> = (1..=4)
        .map(|page| {
            vec![
                cell(72, 800, format!("Linie {page}")),
                cell(72, 700, format!("Fahrplan der Linie mit dem Namen {}.", ["A", "B", "C", "D"][page - 1])),
                cell(if page == 4 { 293 } else { 296 }, 40, format!("- {} -", page + 6)),
            ]
        })
        .collect();
    let page = |page: usize| format!("Linie {page}\n\nFahrplan der Linie mit dem Namen {}.", ["A", "B", "C", "D"][page - 1]);
    let expected = format!("{}\n\n- 7 -\n\n{}\n\n{}\n\n{}", page(1), page(2), page(3), page(4));
    assert_eq!(text(&pages), expected);
}

#[test]
fn numbers_that_do_not_count_pages_stay() {
    let pages: Vec<Vec<Cell>> = [120, 95, 310, 87]
        .iter()
        .map(|sum| vec![cell(72, 700, format!("Posten zu {sum} Euro.")), cell(72, 40, format!("Summe {sum}"))])
        .collect();
    let page = |sum: i32| format!("Posten zu {sum} Euro.\n\nSumme {sum}");
    assert_eq!(text(&pages), [120, 95, 310, 87].map(page).join("\n\n"));
}

#[test]
fn two_columns_are_read_one_after_the_other() {
    let column =
        |left: i32, from: i32| (0..5).map(move |at| cell(left, 700 - 14 * at, format!("Zeile {} der Spalte geht weiter", from + at)));
    let pages: Vec<Vec<Cell>> = (0..3)
        .map(|page| {
            let mut cells = vec![cell(72, 800, "Zeitung für alle")];
            cells.extend(column(72, page * 10).chain(column(330, page * 10 + 5)));
            cells.push(cell(280, 40, format!("{}", page + 1)));
            cells
        })
        .collect();
    let column = |from: i32| (from..from + 5).map(|at| format!("Zeile {at} der Spalte geht weiter")).collect::<Vec<_>>().join(" ");
    let page = |page: i32| format!("{}\n\n{}", column(page * 10), column(page * 10 + 5));
    assert_eq!(text(&pages), format!("Zeitung für alle\n\n{}\n\n1\n\n{}\n\n{}", page(0), page(1), page(2)));
}

#[test]
fn a_header_without_a_gap_stays() {
    let pages: Vec<Vec<Cell>> = (0..4)
        .map(|page| {
            table(
                800,
                &[72, 300],
                [
                    vec!["Artikel".to_owned(), "Preis".to_owned()],
                    vec![format!("Nagel {page}"), "3,00".to_owned()],
                    vec!["Haken".to_owned(), format!("{page},00")],
                ]
                .into_iter(),
            )
        })
        .collect();
    let page = |page: i32| format!("Artikel Preis\nNagel {page} 3,00\nHaken {page},00");
    assert_eq!(text(&pages), (0..4).map(page).collect::<Vec<_>>().join("\n\n"));
}

#[test]
fn pages_that_are_equal_stay() {
    let pages: Vec<Vec<Cell>> = (0..4).map(|_| table(800, &[72], (0..3).map(|_| vec!["Summe 100".to_owned()]))).collect();
    assert_eq!(text(&pages), ["Summe 100\nSumme 100\nSumme 100"; 4].join("\n\n"));
    let spaced: Vec<Vec<Cell>> = (0..4).map(|_| (0..3).map(|at| cell(72, 815 - 40 * at, format!("Satz {at}"))).collect()).collect();
    assert_eq!(text(&spaced), ["Satz 0\n\nSatz 1\n\nSatz 2"; 4].join("\n\n"));
}

#[test]
fn two_pages_are_too_few() {
    let pages: Vec<Vec<Cell>> =
        (1..=2).map(|page| vec![cell(72, 800, "Kopf"), cell(72, 700, "Text."), cell(72, 40, format!("Seite {page}"))]).collect();
    assert_eq!(text(&pages), "Kopf\n\nText.\n\nSeite 1\n\nKopf\n\nText.\n\nSeite 2");
}
