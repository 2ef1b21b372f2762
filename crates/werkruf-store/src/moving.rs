//! Moves all rows from one database into another of a different kind, and verifies the copy.
//!
//! Both sides write every value in one canonical form and compute a digest per table from their own rows. The digests of the rows read
//! and of the rows written are then compared. The order of rows does not matter, so neither side has to sort.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use werkruf_contract::hex;

use crate::{MaintenanceError, StoreError};

/// The result of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// By table; equal on both sides, else nothing was moved.
    pub tables: BTreeMap<String, TableSum>,
}

/// The row count and digest of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSum {
    pub rows: u64,
    /// Of all rows, independent of their order.
    pub digest: String,
}

/// The canonical form of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, ids, numbers, times with milliseconds, and JSON stored as text: unchanged.
    Plain,
    /// 0 or 1.
    Flag,
    /// JSON that the database may reformat.
    Json,
    /// Bytes, as hex digits.
    Bytes,
}

/// A column that both databases have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The type on PostgreSQL, for the cast in the insert.
    pub(crate) cast: String,
}

/// A table and the columns that move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// A value in canonical form; `None` is NULL.
pub(crate) type Cell = Option<String>;

/// The running count and digest of a table's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    rows: u64,
    digest: [u64; 4],
}

impl Sum {
    /// Adds a row; its cells are in the order of the table's columns.
    pub(crate) fn add(&mut self, columns: &[Column], cells: &[Cell]) {
        let mut hash = Sha256::new();
        for (column, cell) in columns.iter().zip(cells) {
            hash.update((column.name.len() as u64).to_be_bytes());
            hash.update(column.name.as_bytes());
            match cell {
                None => hash.update([0]),
                Some(text) => {
                    let text = if column.kind == Kind::Json { canonical_json(text) } else { text.clone() };
                    hash.update([1]);
                    hash.update((text.len() as u64).to_be_bytes());
                    hash.update(text.as_bytes());
                }
            }
        }
        let digest = hash.finalize();
        for (sum, part) in self.digest.iter_mut().zip(digest.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(part);
            // A sum is independent of the order, and unlike with XOR two equal rows do not cancel each other.
            *sum = sum.wrapping_add(u64::from_be_bytes(word));
        }
        self.rows += 1;
    }

    pub(crate) fn finish(&self) -> TableSum {
        let bytes: Vec<u8> = self.digest.iter().flat_map(|word| word.to_be_bytes()).collect();
        TableSum { rows: self.rows, digest: hex(&bytes) }
    }
}

/// Checks that both sides are equal; the error names the first table that differs.
pub(crate) fn compare(from: &BTreeMap<String, TableSum>, to: &BTreeMap<String, TableSum>) -> Result<(), MaintenanceError> {
    let differs = from.iter().find(|(table, sum)| to.get(*table) != Some(sum)).map(|(table, _)| table);
    match differs.or_else(|| to.keys().find(|table| !from.contains_key(*table))) {
        None => Ok(()),
        Some(table) => Err(StoreError::Broken(format!(
            "the rows of {table} did not arrive as they were (read {:?}, written {:?}); nothing was moved",
            from.get(table),
            to.get(table)
        ))
        .into()),
    }
}

/// JSON with sorted keys and normalized numbers; text that is not JSON is unchanged.
pub(crate) fn canonical_json(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    write_canonical(&value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push('{');
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            for name in names {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_canonical(&members[name.as_str()], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            // 1e2, 100.0 and 100 are the same number; PostgreSQL prints it in its own way.
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 9e15 => out.push_str(&format!("{float:.0}")),
            (Some(whole), _) => out.push_str(&whole.to_string()),
            (None, Some(float)) => out.push_str(&format!("{float:e}")),
            (None, None) => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, Kind, Sum, canonical_json};

    fn columns() -> Vec<Column> {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind, cast: "text".to_owned() };
        vec![column("a", Kind::Plain), column("b", Kind::Json)]
    }

    fn sum(rows: &[[Cell; 2]]) -> Sum {
        let mut sum = Sum::default();
        rows.iter().for_each(|row| sum.add(&columns(), row));
        sum
    }

    #[test]
    fn a_digest_depends_on_rows_and_cells_but_not_on_order() {
        let text = |a: &str, b: &str| [Some(a.to_owned()), Some(b.to_owned())];
        let (one, two) = (text("1", "{}"), text("2", "[]"));
        assert_eq!(sum(&[one.clone(), two.clone()]), sum(&[two.clone(), one.clone()]));
        assert_ne!(sum(&[one.clone(), one.clone()]), sum(&[two.clone(), two]));
        assert_ne!(sum(&[one.clone(), one.clone()]).finish().digest, sum(&[]).finish().digest);
        assert_ne!(sum(&[text("12", "3")]), sum(&[text("1", "23")]));
        assert_ne!(sum(&[[None, Some("{}".to_owned())]]), sum(&[text("", "{}")]));
        assert_ne!(sum(&[one]), sum(&[text("1", "{ \"a\": 1 }")]));
    }

    #[test]
    fn equal_json_has_one_canonical_form() {
        assert_eq!(canonical_json(r#"{"b":1,"a":[1e2,1.50]}"#), canonical_json(r#"{ "a": [100, 1.5], "b": 1.0 }"#));
        assert_ne!(canonical_json(r#"{"a":1}"#), canonical_json(r#"{"a":"1"}"#));
        assert_ne!(canonical_json("[1,2]"), canonical_json("[2,1]"));
        assert_eq!(canonical_json("no json"), "no json");
    }
}
