//! Reads of a database that the operator owns, for SQL tools: its shape, and the parameters of its query.
//!
//! Invariants: a read changes nothing, ends at its deadline, and returns at most so many rows and bytes. Parameters are bound, never part of
//! the text.

use serde_json::{Map, Value};
use werkruf_contract::{BoxFuture, Cancel, Deadline};

/// One database with one query.
pub trait OperatorDatabase: Send + Sync {
    fn read(&self, read: BoundedRead) -> BoxFuture<'_, Result<ReadRows, ReadError>>;
}

/// The values of one read, and its limits.
#[derive(Debug, Clone)]
pub struct BoundedRead {
    /// In the order of [`NamedQuery::names`].
    pub values: Vec<Value>,
    pub max_rows: usize,
    /// Of all rows as JSON.
    pub max_bytes: usize,
    pub deadline: Deadline,
    pub cancel: Cancel,
}

/// What a read returned.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRows {
    pub rows: Vec<Map<String, Value>>,
    /// The query has more rows.
    pub truncated: bool,
}

/// Why a read returned nothing. The texts are for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error("the query took too long")]
    Overdue,
    #[error("the read was canceled")]
    Canceled,
    /// A value does not fit the place where the query uses it.
    #[error("an argument does not fit the query: {0}")]
    Argument(String),
    #[error("the rows are larger than allowed")]
    TooLarge,
    #[error("the query failed: {0}")]
    Query(String),
}

/// Which database a query is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Postgres,
    Sqlite,
}

/// A query with named parameters, `:name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedQuery {
    /// The text with numbered parameters.
    text: String,
    names: Vec<String>,
}

impl NamedQuery {
    /// Finds the parameters. Texts, quoted names and comments have none. The error says what to write.
    pub fn parse(query: &str, dialect: Dialect) -> Result<Self, String> {
        let query = query.trim().trim_end_matches(';').trim_end();
        if query.is_empty() {
            return Err("is missing; write a query such as SELECT name FROM articles WHERE id = :id".to_owned());
        }
        let mut named = Self { text: String::new(), names: Vec::new() };
        let mut rest = query;
        while let Some(next) = rest.chars().next() {
            let length = match skipped(rest, dialect)? {
                0 => named.step(rest, next, dialect)?,
                length => {
                    named.text.push_str(&rest[..length]);
                    length
                }
            };
            rest = &rest[length..];
        }
        Ok(named)
    }

    /// The query as the database gets it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of the parameters, each once.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Takes what begins at `rest`, which is no text and no comment, and returns its length.
    fn step(&mut self, rest: &str, next: char, dialect: Dialect) -> Result<usize, String> {
        if rest.starts_with("::") {
            self.text.push_str("::");
            return Ok(2);
        }
        if next == ':' {
            let name = word(&rest[1..]);
            if !name.is_empty() {
                self.parameter(name, dialect);
                return Ok(1 + name.len());
            }
        }
        let after = &rest[next.len_utf8()..];
        let foreign = match dialect {
            Dialect::Postgres => next == '$' && after.starts_with(|digit: char| digit.is_ascii_digit()),
            Dialect::Sqlite => next == '?' || (matches!(next, '@' | '$') && !word(after).is_empty()),
        };
        if foreign {
            return Err(format!("has a parameter that begins with `{next}`; write parameters as :name"));
        }
        if next == ';' {
            return Err("has more than one statement; write one".to_owned());
        }
        // A whole name, so that `$` or `:` inside it is no parameter.
        let length = identifier(rest).len().max(next.len_utf8());
        self.text.push_str(&rest[..length]);
        Ok(length)
    }

    fn parameter(&mut self, name: &str, dialect: Dialect) {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        let mark = match dialect {
            Dialect::Postgres => '$',
            Dialect::Sqlite => '?',
        };
        self.text.push_str(&format!("{mark}{}", at + 1));
    }
}

/// The name at the beginning, as parameters and the tags of quotes have it.
fn word(text: &str) -> &str {
    name_of(text, |_| false)
}

/// The name of a table or column at the beginning: `$` may be inside it.
fn identifier(text: &str) -> &str {
    name_of(text, |sign| sign == '$')
}

fn name_of(text: &str, also: fn(char) -> bool) -> &str {
    if !text.starts_with(|first: char| first.is_alphabetic() || first == '_') {
        return "";
    }
    let end = text.find(|next: char| !next.is_alphanumeric() && next != '_' && !also(next)).unwrap_or(text.len());
    &text[..end]
}

/// The length of the text, quoted name or comment that begins here; zero where none does.
fn skipped(rest: &str, dialect: Dialect) -> Result<usize, String> {
    if rest.starts_with("--") {
        return Ok(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return comment(rest, dialect);
    }
    let close = match rest.chars().next() {
        Some(quote @ ('\'' | '"')) => quote,
        Some('`') if dialect == Dialect::Sqlite => '`',
        Some('[') if dialect == Dialect::Sqlite => ']',
        Some('e' | 'E') if dialect == Dialect::Postgres && rest[1..].starts_with('\'') => return escaped(rest),
        Some('$') if dialect == Dialect::Postgres => return dollar(rest),
        _ => return Ok(0),
    };
    // A doubled quote ends one text and begins the next, which is skipped in turn.
    rest[1..].find(close).map(|at| at + 2).ok_or_else(|| format!("has no closing {close}"))
}

/// `E'…'`, where a backslash protects the next sign.
fn escaped(rest: &str) -> Result<usize, String> {
    let mut signs = rest.char_indices().skip(2);
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '\'' => return Ok(at + 1),
            _ => {}
        }
    }
    Err("has no closing '".to_owned())
}

/// `$tag$…$tag$`; `$1` is none.
fn dollar(rest: &str) -> Result<usize, String> {
    let tag_length = word(&rest[1..]).len() + 2;
    match rest.get(..tag_length).filter(|tag| tag.ends_with('$')) {
        None => Ok(0),
        Some(tag) => rest[tag_length..].find(tag).map(|at| at + 2 * tag_length).ok_or_else(|| format!("has no closing {tag}")),
    }
}

/// A comment; those of PostgreSQL nest.
fn comment(rest: &str, dialect: Dialect) -> Result<usize, String> {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") && (depth == 0 || dialect == Dialect::Postgres) {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Ok(at);
            }
        } else {
            at += 1;
        }
    }
    Err("has a comment without an end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Dialect, NamedQuery};

    fn parsed(query: &str, dialect: Dialect) -> (String, Vec<String>) {
        let query = NamedQuery::parse(query, dialect).unwrap();
        (query.text().to_owned(), query.names().to_vec())
    }

    #[test]
    fn parameters_are_found_and_texts_are_left_alone() {
        let (text, names) = parsed("SELECT id::text FROM a WHERE x = :x AND (y = :y_2 OR z = :x) -- :no\n;", Dialect::Postgres);
        assert_eq!(text, "SELECT id::text FROM a WHERE x = $1 AND (y = $2 OR z = $1) -- :no");
        assert_eq!(names, ["x", "y_2"]);
        for text in [
            "SELECT ':a', \"b:c\", 'it''s :d'",
            "SELECT E'\\':a' || 'x'",
            "SELECT $$:a$$ || $t$:b $$ $t$",
            "SELECT 1 /* :a /* :b */ :c */",
            "SELECT a[1:2], f(a := 1)",
        ] {
            assert_eq!(parsed(text, Dialect::Postgres), (text.to_owned(), Vec::new()), "{text}");
        }
        for text in ["SELECT `:a`, [b:c] FROM t", "SELECT 1 /* :a /* */"] {
            assert_eq!(parsed(text, Dialect::Sqlite), (text.to_owned(), Vec::new()), "{text}");
        }
        assert_eq!(parsed("SELECT :ä, a$b, :ä", Dialect::Sqlite).1, ["ä"]);
    }

    #[test]
    fn what_is_no_single_query_with_named_parameters_is_refused() {
        for (query, dialect, message) in [
            (" ; ", Dialect::Sqlite, "is missing"),
            ("SELECT $1", Dialect::Postgres, "begins with `$`"),
            ("SELECT ?", Dialect::Sqlite, "begins with `?`"),
            ("SELECT @a", Dialect::Sqlite, "begins with `@`"),
            ("SELECT 1; SELECT 2", Dialect::Postgres, "more than one statement"),
            ("SELECT 'a", Dialect::Postgres, "no closing '"),
            ("SELECT $x$ a", Dialect::Postgres, "no closing $x$"),
            ("SELECT /* a", Dialect::Postgres, "comment without an end"),
        ] {
            let fault = NamedQuery::parse(query, dialect).unwrap_err();
            assert!(fault.contains(message), "{query}: {fault}");
        }
    }
}
