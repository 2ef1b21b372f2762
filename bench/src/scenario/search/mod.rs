//! Searches a large collection through the server, compared with SQLite's own full-text index on the same chunks.
//!
//! Documents are added over HTTP, which is measured. Vectors are written to the database directly, since computing them is not measured.
//! Then questions of 4 to 20 words, with function words, are sent one at a time. The vector of a question comes from a server in this process.

mod fts;
mod report;
mod vectors;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Findings, Plan};
use crate::load::{cpu_seconds, peak_mib};
use crate::seed::{MadeLibrary, MadeQuestion, SeedStore};
use crate::stage::{Database, KEY, Stage};

pub use report::SearchReport;
use report::{SearchRound, Stopwatch};
use vectors::{MODEL, VectorServer};

/// The number of chunks, and the limit of p95 in milliseconds (`reference/retrieval.md`).
const SIZES: [(usize, f64); 2] = [(10_000, 5.0), (100_000, 15.0)];
/// Documents in one request.
const BATCH: usize = 100;
const WARM_UP: usize = 34;
const QUESTIONS: usize = 408;
/// The number of results that the tool requests by default.
const TOP: usize = 6;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    for (chunks, bar) in SIZES {
        let library = Arc::new(MadeLibrary::new(chunks));
        let mut report = SearchReport::new(chunks, QUESTIONS, bar);
        let database = Database::File(stage.file(&format!("search-{chunks}.db")));
        ingest(&library, stage, &database, client, &mut report).await?;
        ask_all(plan, &library, stage, &database, client, &mut report).await?;
        let questions = library.questions(WARM_UP + QUESTIONS);
        let file = stage.file(&format!("search-{chunks}-fts.db"));
        let reference = tokio::task::spawn_blocking(move || fts::measure(&library, &file, &questions, WARM_UP, TOP));
        report.add_reference(reference.await.map_err(|error| error.to_string())??);
        findings.searches.push(report);
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "progress output")]
async fn ingest(
    library: &Arc<MadeLibrary>,
    stage: &Stage,
    database: &Database,
    client: &reqwest::Client,
    report: &mut SearchReport,
) -> Result<(), String> {
    eprintln!("search: writing {} chunks", report.chunks);
    let model = stage.model(0)?;
    let server = stage.werkruf(&model, database)?;
    let (mut seconds, mut written) = (0.0, 0);
    for from in (0..library.documents()).step_by(BATCH) {
        let documents: Vec<Value> = (from..library.documents().min(from + BATCH)).map(|document| library.document(document)).collect();
        let body = json!({ "documents": documents });
        let began = Stopwatch::start();
        let answer = post(client, &server.url, "documents", &body).await?;
        seconds += began.seconds();
        written += answer["chunks"].as_u64().unwrap_or(0);
    }
    if written != report.chunks as u64 {
        return Err(format!("search: {written} chunks were written instead of {}", report.chunks));
    }
    report.ingest_per_second = report.chunks as f64 / seconds;
    drop((server, model));
    eprintln!("search: putting {} vectors", report.chunks);
    let of_text = Arc::clone(library);
    SeedStore::open(database).await?.vectors(MODEL, move |text| of_text.vector(text)).await
}

#[expect(clippy::print_stderr, reason = "progress output")]
async fn ask_all(
    plan: &Plan,
    library: &Arc<MadeLibrary>,
    stage: &Stage,
    database: &Database,
    client: &reqwest::Client,
    report: &mut SearchReport,
) -> Result<(), String> {
    let vectors = VectorServer::start(Arc::clone(library)).await?;
    let model = stage.model(0)?;
    let base = vectors.url();
    let embedding = [("OPENAI_EMBEDDING_BASE_URL", base.as_str()), ("OPENAI_EMBEDDING_MODEL", MODEL)];
    let server = stage.werkruf_with(&model, database, &embedding)?;
    let questions = library.questions(WARM_UP + QUESTIONS);
    let began = Stopwatch::start();
    ask(client, &server.url, &questions[0], "hybrid").await?;
    report.index_seconds = began.seconds();
    for (mode, name) in [("hybrid", "werkruf, words and vectors"), ("lexical", "werkruf, words alone")] {
        for question in &questions[..WARM_UP] {
            ask(client, &server.url, question, mode).await?;
        }
        let mut rounds = Vec::new();
        for round in 1..=plan.rounds {
            eprintln!("search: {name} in {} chunks, round {round} of {}", report.chunks, plan.rounds);
            let (mut round, cpu) = (SearchRound::new(name), cpu_seconds(server.pid())?);
            for question in &questions[WARM_UP..] {
                let (ms, found) = ask(client, &server.url, question, mode).await?;
                round.note(ms, found);
            }
            round.cpu_ms = Some((cpu_seconds(server.pid())? - cpu) * 1000.0 / QUESTIONS as f64);
            rounds.push(round);
        }
        report.add_rounds(&rounds);
    }
    report.peak_mib = peak_mib(server.pid())?;
    Ok(())
}

/// Sends one question; returns its duration and whether its source document was among the results.
async fn ask(client: &reqwest::Client, url: &str, question: &MadeQuestion, mode: &str) -> Result<(f64, bool), String> {
    let body = json!({"query": question.text, "top_k": TOP, "mode": mode});
    let began = Stopwatch::start();
    let answer = post(client, url, "search", &body).await?;
    let ms = began.seconds() * 1000.0;
    if answer["routing"]["mode"] != mode {
        return Err(format!("search: asked for {mode} and got {}", answer["routing"]));
    }
    let found =
        answer["results"].as_array().is_some_and(|results| results.iter().any(|one| one["document_id"] == question.document.as_str()));
    Ok((ms, found))
}

async fn post(client: &reqwest::Client, url: &str, path: &str, body: &Value) -> Result<Value, String> {
    let request = client.post(format!("{url}/api/knowledge/{path}")).bearer_auth(KEY).json(body);
    let answer = request.send().await.map_err(|error| error.to_string())?;
    let (status, text) = (answer.status(), answer.text().await.map_err(|error| error.to_string())?);
    if !status.is_success() {
        return Err(format!("search: {path} answered {status}: {text}"));
    }
    serde_json::from_str(&text).map_err(|error| error.to_string())
}
