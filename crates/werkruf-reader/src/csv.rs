//! Reads CSV files as rows of a table. The delimiter is detected.

use ::csv::{ReaderBuilder, StringRecord};

use crate::table::push_row;
use crate::{MAX_TEXT_BYTES, ReadError};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// The delimiter is detected on this many records.
const SAMPLE: usize = 50;

/// The records as rows of a table.
pub(crate) fn read(text: &str) -> Result<String, ReadError> {
    let (separator_line, body) = separator(text);
    let delimiter = separator_line.unwrap_or_else(|| detect(body));
    let mut out = String::new();
    for record in records(body, delimiter) {
        push_row(&mut out, &record);
        if out.len() > MAX_TEXT_BYTES {
            return Err(ReadError::TooMuchText);
        }
    }
    Ok(out.trim_end().to_owned())
}

/// Excel writes the delimiter into a first line `sep=;`.
fn separator(text: &str) -> (Option<u8>, &str) {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match first.trim().strip_prefix("sep=").map(str::as_bytes) {
        Some([delimiter]) => (Some(*delimiter), rest),
        _ => (None, text),
    }
}

fn records(text: &str, delimiter: u8) -> impl Iterator<Item = StringRecord> {
    let reader = ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
    // The text is UTF-8 and the number of fields may vary, so no record has an error.
    reader.into_records().map_while(Result::ok)
}

/// The delimiter with which most records have the same number of fields, more than one. Of equals, the one with more fields.
fn detect(text: &str) -> u8 {
    let score = |delimiter: u8| {
        let counts: Vec<usize> = records(text, delimiter).take(SAMPLE).map(|record| record.len()).collect();
        let same = |count: usize| counts.iter().filter(|other| **other == count).count();
        counts.iter().filter(|count| **count > 1).map(|count| (same(*count), *count)).max().unwrap_or_default()
    };
    // `max_by_key` prefers the last of equals; a comma is the usual delimiter.
    DELIMITERS.into_iter().rev().max_by_key(|delimiter| score(*delimiter)).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn every_delimiter_is_detected() {
        let expected = "| Artikel | Preis |\n| Schraube, M4 | 1,20 |\n| Mutter \"lang\" | 3,40 |";
        for text in [
            "Artikel;Preis\n\"Schraube, M4\";1,20\n\"Mutter \"\"lang\"\"\";3,40\n",
            "Artikel,Preis\n\"Schraube, M4\",\"1,20\"\n\"Mutter \"\"lang\"\"\",\"3,40\"\n",
            "Artikel\tPreis\nSchraube, M4\t1,20\n\"Mutter \"\"lang\"\"\"\t3,40",
            "Artikel|Preis\nSchraube, M4|1,20\n\"Mutter \"\"lang\"\"\"|3,40",
            "sep=;\nArtikel;Preis\nSchraube, M4;1,20\n\"Mutter \"\"lang\"\"\";3,40",
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn ragged_and_quoted_records_lose_nothing() {
        assert_eq!(read("a;b\nc\nd;e;f\n;;g").unwrap(), "| a | b |\n| c |\n| d | e | f |\n|  |  | g |");
        assert_eq!(read("a,\"first\nsecond\"\nb,c").unwrap(), "| a | first second |\n| b | c |");
        assert_eq!(read("a,\"never closed\nb,c").unwrap(), "| a | never closed b,c |");
        assert_eq!(read("only one column\nand a second row").unwrap(), "| only one column |\n| and a second row |");
    }
}
