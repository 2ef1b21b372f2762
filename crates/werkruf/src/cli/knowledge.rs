//! `werkruf knowledge …`: adds, searches and deletes documents, and measures the search.

mod eval;
mod files;
mod rights;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::backend::Backend;
use super::error::CliError;
use super::{Outcome, Session, encode, print};
use crate::reader::{Reader, ReaderError};

/// One request has at most this many documents and about this many bytes.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
const SNIPPET: usize = 160;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Add documents: text, Markdown, HTML, PDF, DOCX, XLSX and CSV files, or folders of them
    #[command(
        after_help = "Examples:\n  werkruf knowledge add handbook/\n  werkruf knowledge add rules.pdf faq.html --collection support\n\n\
        A file's id is its path as given. Files that cannot be read are named and skipped; then the exit code is 1. Unchanged files are skipped, changed ones replace what was there; after an interruption run it again."
    )]
    Add {
        /// Files and folders
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Target collection
        #[arg(long, default_value = "default", value_name = "NAME")]
        collection: String,
        /// Language of all documents, such as de; guessed without it
        #[arg(long, value_name = "CODE")]
        language: Option<String>,
    },
    /// Search a collection
    #[command(
        after_help = "Examples:\n  werkruf knowledge search 'When do miles expire?'\n  werkruf knowledge search LH441 --mode lexical --top 3"
    )]
    Search {
        /// Search words or a question
        query: String,
        #[arg(long, default_value = "default", value_name = "NAME")]
        collection: String,
        /// Maximum number of results
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
        top: u32,
        #[arg(long, default_value = "hybrid", value_parser = ["hybrid", "lexical"])]
        mode: String,
    },
    /// How many documents, chunks and vectors a collection has
    #[command(after_help = "Examples:\n  werkruf knowledge show\n  werkruf knowledge show support --json")]
    Show {
        #[arg(default_value = "default")]
        collection: String,
    },
    /// Remove a document
    #[command(after_help = "Examples:\n  werkruf knowledge delete handbook/old.md --collection support")]
    Delete {
        /// Id of the document
        document: String,
        #[arg(long, default_value = "default", value_name = "NAME")]
        collection: String,
    },
    /// Show or change who may read and write a collection
    #[command(
        after_help = "Examples:\n  werkruf knowledge rights handbook\n  werkruf knowledge rights hr --read hr,lead --write hr\n  werkruf knowledge rights mails --trust untrusted\n\n\
        What is not named stays as it is. A collection that does not exist is created."
    )]
    Rights(rights::Rights),
    /// Measure search on documents, questions and judgements of your own
    #[command(
        after_help = "Examples:\n  werkruf knowledge eval my-questions --json\n\nThe folder holds corpus.jsonl {id, title, text}, queries.jsonl {id, text} and qrels.tsv (query-id, corpus-id, score, with a \
        header).\nIts documents are kept in the collection eval-<folder>; the next run only reads them again."
    )]
    Eval(eval::Eval),
}

pub(super) async fn run(session: &Session, command: Command) -> Outcome {
    let backend = Backend::open(session).await?;
    let as_json = session.globals.json;
    let result = match command {
        Command::Add { paths, collection, language } => {
            let reader = Reader::new(&session.config()?.reader);
            let target = Target { collection: &collection, language: language.as_deref() };
            let complete = add(&backend, &reader, &paths, &target, as_json).await;
            backend.close().await;
            return complete.map(|complete| if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Search { query, collection, top, mode } => {
            let request = json!({"query": query, "collection": collection, "top_k": top, "mode": mode});
            backend.post("/api/knowledge/search", &request).await.map(|response| show_results(&response, as_json))
        }
        Command::Show { collection } => {
            let path = format!("/api/knowledge/collections/{}", encode(&collection));
            backend.get(&path).await.map(|response| if as_json { print::json(&response) } else { print::object(&response) })
        }
        Command::Delete { document, collection } => {
            let path = format!("/api/knowledge/documents/{}?collection={}", encode(&document), encode(&collection));
            backend.delete(&path).await.map(|_| ())
        }
        Command::Rights(rights) => rights.run(&backend, as_json).await,
        Command::Eval(eval) => eval.run(&backend, as_json).await,
    };
    backend.close().await;
    result.map(|()| ExitCode::SUCCESS)
}

/// The totals of one run.
#[derive(Default)]
struct Totals {
    accepted: u64,
    replaced: u64,
    unchanged: u64,
    chunks: u64,
}

/// Where documents are added.
struct Target<'a> {
    collection: &'a str,
    language: Option<&'a str>,
}

/// Adds files; false if a file was skipped.
async fn add(backend: &Backend, reader: &Reader, paths: &[PathBuf], target: &Target<'_>, as_json: bool) -> Result<bool, CliError> {
    let found = files::find(paths)?;
    if found.files.iter().any(|file| Reader::converts(&file.to_string_lossy())) {
        // Without the program most files of a folder would be skipped, one by one.
        reader.check().await?;
    }
    let (mut totals, mut skipped) = (Totals::default(), found.skipped);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let all = found.files.len();
    let bar = ProgressBar::over(all, as_json);
    // Files are read as they are sent, so memory is bounded by one batch, whatever the size of the folder.
    for (at, file) in found.files.iter().enumerate() {
        match files::read(reader, file).await {
            Ok(mut document) => {
                if let Some(code) = target.language {
                    document["language"] = json!(code);
                }
                let size = document["text"].as_str().map_or(0, str::len);
                if bytes + size > BATCH_BYTES {
                    send(backend, target.collection, &mut batch, &mut totals).await?;
                    bytes = 0;
                }
                bytes += size;
                batch.push(document);
            }
            Err(ReaderError::Unreadable(reason)) => skipped.push(format!("{}: {reason}", file.display())),
            Err(error) => return Err(error.into()),
        }
        if batch.len() >= BATCH || bytes >= BATCH_BYTES || at + 1 == all {
            send(backend, target.collection, &mut batch, &mut totals).await?;
            bytes = 0;
            bar.show(at + 1);
        }
    }
    bar.end();
    for reason in &skipped {
        print::error_line(&format!("skipped {reason}"));
    }
    let Totals { accepted, replaced, unchanged, chunks } = totals;
    if as_json {
        print::json(&json!({"accepted": accepted, "replaced": replaced, "unchanged": unchanged, "chunks": chunks, "skipped": skipped}));
    } else {
        let collection = target.collection;
        let left_out = if skipped.is_empty() { String::new() } else { format!(", {} skipped", skipped.len()) };
        print::line(&format!(
            "{accepted} new, {replaced} replaced, {unchanged} unchanged{left_out}; {chunks} chunks written to {collection}"
        ));
    }
    Ok(skipped.is_empty())
}

async fn send(backend: &Backend, collection: &str, batch: &mut Vec<Value>, totals: &mut Totals) -> Result<(), CliError> {
    if batch.is_empty() {
        return Ok(());
    }
    let body = json!({"collection": collection, "documents": std::mem::take(batch)});
    let added = backend.post("/api/knowledge/documents", &body).await?;
    let count = |name: &str| added[name].as_u64().unwrap_or(0);
    totals.accepted += count("accepted");
    totals.replaced += count("replaced");
    totals.unchanged += count("unchanged");
    totals.chunks += count("chunks");
    Ok(())
}

impl From<ReaderError> for CliError {
    fn from(error: ReaderError) -> Self {
        Self::refused(error.code(), error.to_string())
    }
}

fn show_results(response: &Value, as_json: bool) {
    if as_json {
        return print::json(response);
    }
    for result in response["results"].as_array().into_iter().flatten() {
        let content: String = result["content"].as_str().unwrap_or_default().chars().take(SNIPPET).collect();
        let score = result["score"].as_f64().unwrap_or(0.0);
        let title = print::field(result, "title");
        let line = format!("{score:.3}  {}  {title}\n       {}", print::field(result, "document_id"), content.replace('\n', " "));
        print::line(&print::harmless(&line));
    }
    if response["nothing_found"] == true {
        print::line("Nothing here answers the question.");
    }
}

/// A progress bar on a terminal; prints nothing otherwise.
struct ProgressBar {
    all: usize,
    shown: bool,
}

impl ProgressBar {
    const WIDTH: usize = 30;

    fn over(all: usize, as_json: bool) -> Self {
        Self { all, shown: !as_json && std::io::stderr().is_terminal() }
    }

    fn show(&self, done: usize) {
        if self.shown {
            let full = Self::WIDTH * done / self.all.max(1);
            let bar = format!("{}{}", "█".repeat(full), "░".repeat(Self::WIDTH - full));
            // A closed stderr is ignored.
            let _ = write!(std::io::stderr().lock(), "\r{bar} {done}/{} files", self.all);
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = writeln!(std::io::stderr().lock());
        }
    }
}
