//! Everything from one database into another of a different kind, and the proof that it arrived.
//!
//! Both sides spell every value in one canonical way and add up a digest per table, each from its own rows: what was read here and
//! what was written there are compared, not assumed. The order of rows does not matter, so neither side has to sort.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use werkruf_contract::hex;

use crate::{MaintenanceError, StoreError};

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// By table; the same on both sides, or nothing was moved.
    pub tables: BTreeMap<String, TableSum>,
}

/// A table, counted and digested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSum {
    pub rows: u64,
    /// Of all rows, whatever their order.
    pub digest: String,
}

/// How a column's values are spelled canonically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text, ids, numbers, times with milliseconds, and JSON whose text is kept: as they stand.
    Plain,
    /// 0 or 1.
    Flag,
    /// JSON that the database may spell in its own way.
    Json,
    /// Bytes, as hex digits.
    Bytes,
}

/// A column that both databases have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The type on PostgreSQL, for the cast on the way in.
    pub(crate) cast: String,
}

/// A table and the columns that move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

/// A value on its way, spelled canonically; `None` is NULL.
pub(crate) type Cell = Option<String>;

/// Adds rows up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    rows: u64,
    digest: [u64; 4],
}

impl Sum {
    /// One more row, its cells in the order of the table's columns.
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
            // Adding does not care for the order, and unlike XOR two equal rows do not cancel each other.
            *sum = sum.wrapping_add(u64::from_be_bytes(word));
        }
        self.rows += 1;
    }

    pub(crate) fn finish(&self) -> TableSum {
        let bytes: Vec<u8> = self.digest.iter().flat_map(|word| word.to_be_bytes()).collect();
        TableSum { rows: self.rows, digest: hex(&bytes) }
    }
}

/// The same for both sides, or which table differs.
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

/// JSON with sorted keys and numbers by their value; text that is none is itself.
pub(crate) fn canonical_json(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    spell(&value, &mut out);
    out
}

fn spell(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push('{');
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            for name in names {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                spell(&members[name.as_str()], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                spell(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            // 1e2, 100.0 and 100 are one number; PostgreSQL spells it in its own way.
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
    fn a_digest_knows_rows_and_cells_but_no_order() {
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
    fn json_is_the_same_however_it_is_spelled() {
        assert_eq!(canonical_json(r#"{"b":1,"a":[1e2,1.50]}"#), canonical_json(r#"{ "a": [100, 1.5], "b": 1.0 }"#));
        assert_ne!(canonical_json(r#"{"a":1}"#), canonical_json(r#"{"a":"1"}"#));
        assert_ne!(canonical_json("[1,2]"), canonical_json("[2,1]"));
        assert_eq!(canonical_json("no json"), "no json");
    }
}
