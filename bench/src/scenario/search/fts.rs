//! The reference engine: SQLite's FTS5 with Porter stemming, in this process. A query matches any word of the question, ranked by BM25.

use std::path::Path;

use rusqlite::{Connection, params};

use super::report::{Reference, SearchRound, Stopwatch};
use crate::seed::{MadeLibrary, MadeQuestion};

pub(super) fn measure(
    library: &MadeLibrary,
    file: &Path,
    questions: &[MadeQuestion],
    warm_up: usize,
    top: usize,
) -> Result<Reference, String> {
    let index = Index::build(library, file).map_err(|error| error.to_string())?;
    let mut rounds = Vec::new();
    for (name, clean) in [("FTS5, all words", false), ("FTS5, function words dropped", true)] {
        let mut one = SearchRound::new(name);
        for (at, question) in questions.iter().enumerate() {
            let words = if clean { MadeLibrary::without_function_words(&question.text) } else { question.text.clone() };
            let began = Stopwatch::start();
            let found = index.search(&words, top).map_err(|error| error.to_string())?;
            let ms = began.seconds() * 1000.0;
            if at >= warm_up {
                one.note(ms, found.contains(&question.document));
            }
        }
        rounds.push(one);
    }
    Ok(Reference { rounds, ingest_per_second: index.per_second })
}

struct Index {
    connection: Connection,
    per_second: f64,
}

impl Index {
    #[expect(clippy::disallowed_methods, reason = "the reference engine does not use the store")]
    fn build(library: &MadeLibrary, file: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;
             CREATE TABLE documents (chunk INTEGER PRIMARY KEY, document TEXT);
             CREATE VIRTUAL TABLE words USING fts5(text, content = '', tokenize = 'porter unicode61'); BEGIN",
        )?;
        let (mut number, mut seconds) = (0_i64, 0.0);
        for document in 0..library.documents() {
            let whole = library.document(document);
            let began = Stopwatch::start();
            for chunk in whole["text"].as_str().unwrap_or_default().split("\n\n") {
                number += 1;
                connection.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?.execute(params![number, chunk])?;
                connection
                    .prepare_cached("INSERT INTO documents VALUES (?1, ?2)")?
                    .execute(params![number, whole["id"].as_str().unwrap_or_default()])?;
            }
            seconds += began.seconds();
        }
        let began = Stopwatch::start();
        connection.execute_batch("COMMIT")?;
        seconds += began.seconds();
        Ok(Self { connection, per_second: number as f64 / seconds })
    }

    fn search(&self, words: &str, top: usize) -> rusqlite::Result<Vec<String>> {
        let any: Vec<String> = words.split_whitespace().map(|word| format!("\"{word}\"")).collect();
        if any.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT document FROM (SELECT rowid AS chunk, rank FROM words WHERE words MATCH ?1 ORDER BY rank LIMIT ?2)
                   JOIN documents USING (chunk)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(params![any.join(" OR "), i64::try_from(top).unwrap_or(i64::MAX)], |row| row.get(0))?;
        rows.collect()
    }
}
