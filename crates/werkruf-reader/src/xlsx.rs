//! Reads XLSX files: each sheet as a heading and a table, with readable dates.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use calamine::{DataRef, ExcelDateTime, Reader, SheetType, Style, Xlsx};

use crate::archive::Archive;
use crate::table::{MAX_EMPTY, push_row};
use crate::{MAX_TEXT_BYTES, ReadError};

const KIND: &str = "XLSX";

/// The title and the text.
pub(crate) fn read(bytes: &[u8]) -> Result<(Option<String>, String), ReadError> {
    let title = Archive::open(bytes, KIND)?.title();
    // calamine panics at some references to cells that no sheet has.
    let text = catch_unwind(AssertUnwindSafe(|| text(bytes))).unwrap_or(Err(ReadError::BrokenOffice(KIND)))?;
    Ok((title, text))
}

fn text(bytes: &[u8]) -> Result<String, ReadError> {
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).map_err(|_| ReadError::BrokenOffice(KIND))?;
    let sheets: Vec<String> =
        book.sheets_metadata().iter().filter(|sheet| sheet.typ == SheetType::WorkSheet).map(|sheet| sheet.name.clone()).collect();
    let mut out = String::new();
    for sheet in sheets {
        let before = out.len();
        out.push_str(&format!("## {}\n\n", sheet.split_whitespace().collect::<Vec<_>>().join(" ")));
        let rows = out.len();
        push_sheet(&mut out, &mut book, &sheet)?;
        if out.len() == rows {
            // An empty sheet.
            out.truncate(before);
        } else {
            out.push('\n');
        }
    }
    Ok(out.trim_end().to_owned())
}

/// Appends the rows of a sheet. Cells arrive one by one, so the size of the sheet does not matter.
fn push_sheet(out: &mut String, book: &mut Xlsx<Cursor<&[u8]>>, sheet: &str) -> Result<(), ReadError> {
    let broken = |_| ReadError::BrokenOffice(KIND);
    let mut cells = book.worksheet_cells_reader(sheet).map_err(broken)?;
    let (mut row, mut row_bytes, mut at): (Vec<String>, _, _) = (Vec::new(), 0, 0);
    let mut next_column = 0;
    let percent: Vec<bool> = cells.styles().iter().map(is_percent).collect();
    while let Some((cell, style)) = cells.next_cell_with_style_id().map_err(broken)? {
        let (row_of_cell, column) = cell.get_position();
        if row_of_cell != at {
            push_row(out, &row);
            row.clear();
            (row_bytes, at, next_column) = (0, row_of_cell, 0);
        }
        // The columns between two cells are empty; a long run of them is written as one.
        let empty = usize::try_from(column.saturating_sub(next_column)).unwrap_or(0).min(MAX_EMPTY + 1);
        row.extend(std::iter::repeat_n(String::new(), empty));
        row.push(value(cell.get_value(), percent.get(style).is_some_and(|percent| *percent)));
        next_column = column.saturating_add(1);
        // Many cells may refer to one long text.
        row_bytes += row.last().map_or(0, String::len);
        if out.len() + row_bytes > MAX_TEXT_BYTES {
            return Err(ReadError::TooMuchText);
        }
    }
    push_row(out, &row);
    Ok(())
}

/// Whether cells of this style show hundredths: `0.19` as `19%`.
fn is_percent(style: &Style) -> bool {
    style.number_format.as_ref().is_some_and(|format| format.format_code.ends_with('%'))
}

/// A value as a person reads it.
fn value(value: &DataRef<'_>, is_percent: bool) -> String {
    match value {
        DataRef::Int(number) if is_percent => format!("{}%", number.saturating_mul(100)),
        DataRef::Float(number) if is_percent => format!("{}%", number_text(number * 100.0)),
        DataRef::Int(number) => number.to_string(),
        DataRef::Float(number) => number_text(*number),
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.clone(),
        DataRef::SharedString(text) => (*text).to_owned(),
        DataRef::Bool(value) => value.to_string(),
        DataRef::DateTime(time) => time_text(time),
        DataRef::Error(error) => error.to_string(),
        DataRef::Empty => String::new(),
    }
}

/// Excel shows 15 digits; the file has 17, as in 19.989999999999998.
fn number_text(number: f64) -> String {
    format!("{number:.14e}").parse::<f64>().unwrap_or(number).to_string()
}

/// `2025-03-01`, `2025-03-01 12:30`, `12:30` or a duration `36:00:00`.
fn time_text(time: &ExcelDateTime) -> String {
    if time.is_duration() {
        let seconds = (time.as_f64() * 86_400.0).round().max(0.0) as u64;
        return format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    }
    let (year, month, day, hour, minute, second, milli) = time.to_ymd_hms_milli();
    // A time may be a fraction below a whole second.
    let second = second + u8::from(milli >= 500 && second < 59);
    let clock = if second == 0 { format!("{hour:02}:{minute:02}") } else { format!("{hour:02}:{minute:02}:{second:02}") };
    match (time.as_f64() < 1.0, clock == "00:00") {
        (true, _) => clock,
        (false, true) => format!("{year:04}-{month:02}-{day:02}"),
        (false, false) => format!("{year:04}-{month:02}-{day:02} {clock}"),
    }
}

#[cfg(test)]
#[path = "xlsx_tests.rs"]
mod tests;
