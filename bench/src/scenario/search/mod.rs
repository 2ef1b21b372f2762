//! Searches a large collection through the server, compared with SQLite's own full-text index on the same chunks.
//!
//! Documents are added over HTTP, which is measured. Vectors are written to the database directly, since computing them is not measured.
//! Then questions of 4 to 20 words, with function words, are sent one at a time: right after a restart, to a quiet server, while documents
//! arrive at full speed, and while their vectors arrive. Vectors come from a server in this process.

mod arriving;
mod fts;
mod report;
mod vectors;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Findings, Plan};
use crate::audit::drop_schema;
use crate::load::{Child, cpu_seconds, peak_mib};
use crate::seed::{MadeLibrary, MadeQuestion, SeedStore};
use crate::stage::{Database, KEY, Stage};

use arriving::{Arriving, ask_in_any_mode, is_building, pending};
pub use report::SearchReport;
use report::{COMPARED, SearchRound, Stopwatch};
use vectors::{MODEL, VectorServer};

/// How often a condition of the server is looked at.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);
/// The number of chunks, and the limit of p95 in milliseconds (`reference/retrieval.md`).
const SIZES: [(usize, f64); 2] = [(10_000, 5.0), (100_000, 15.0)];
/// Documents in one request.
const BATCH: usize = 100;
const WARM_UP: usize = 34;
const QUESTIONS: usize = 408;
/// The number of results that the tool requests by default.
const TOP: usize = 6;

pub(super) async fn run(plan: &Plan, stage: &Stage, client: &reqwest::Client, findings: &mut Findings) -> Result<(), String> {
    for (chunks, bar) in SIZES.into_iter().filter(|(size, _)| plan.chunks.is_none_or(|wanted| wanted == *size)) {
        let library = Arc::new(MadeLibrary::new(chunks));
        let file = Database::File(stage.file(&format!("search-{chunks}.db")));
        let mut report = SearchReport::new("SQLite", chunks, QUESTIONS, bar);
        measure(&library, plan, stage, &file, client, &mut report).await?;
        if let Some(url) = &plan.postgres {
            let schema = stage.schema(url, &format!("search_{chunks}"));
            let mut report = SearchReport::new("PostgreSQL", chunks, QUESTIONS, bar);
            measure(&library, plan, stage, &schema, client, &mut report).await?;
            findings.searches.push(report);
        }
        let questions = library.questions(WARM_UP + QUESTIONS);
        let file = stage.file(&format!("search-{chunks}-fts.db"));
        let reference = tokio::task::spawn_blocking(move || fts::measure(&library, &file, &questions, WARM_UP, TOP));
        report.add_reference(reference.await.map_err(|error| error.to_string())??);
        findings.searches.push(report);
    }
    Ok(())
}

/// All rounds on one database.
async fn measure(
    library: &Arc<MadeLibrary>,
    plan: &Plan,
    stage: &Stage,
    database: &Database,
    client: &reqwest::Client,
    report: &mut SearchReport,
) -> Result<(), String> {
    ingest(library, stage, database, client, report).await?;
    let questions = library.questions(WARM_UP + QUESTIONS);
    let mut asking = Asking { plan, library, client, questions, report };
    ask_words(&mut asking, stage, database).await?;
    ask_words_and_vectors(&mut asking, stage, database).await?;
    drop_schema(database).await
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

/// Asks a server without an embedding model after its restart, when it is quiet, and while documents arrive.
async fn ask_words(asking: &mut Asking<'_>, stage: &Stage, database: &Database) -> Result<(), String> {
    let model = stage.model(0)?;
    let server = stage.werkruf(&model, database)?;
    asking.first_search(&server.url).await?;
    asking.rounds(&server, "lexical", "werkruf, words alone").await?;
    let (arriving, began) = (Arriving::start(asking.library, asking.client, &server.url), Stopwatch::start());
    let during = asking.round(&server, "lexical", "  while documents arrive").await?;
    let seconds = began.seconds();
    let chunks = arriving.stop().await?;
    let after = asking.round(&server, "lexical", "  quiet again").await?;
    asking.report.add_arrival(during, after);
    asking.report.arrived_per_second = chunks as f64 / seconds;
    asking.report.note_peak(peak_mib(server.pid())?);
    Ok(())
}

/// Asks a server with an embedding model after its restart, while vectors arrive, and when it is quiet.
async fn ask_words_and_vectors(asking: &mut Asking<'_>, stage: &Stage, database: &Database) -> Result<(), String> {
    let chunks = SeedStore::open(database).await?.unembedded_texts(MODEL).await?;
    let vectors = VectorServer::start(Arc::clone(asking.library), chunks).await?;
    let model = stage.model(0)?;
    let base = vectors.url();
    let embedding = [("OPENAI_EMBEDDING_BASE_URL", base.as_str()), ("OPENAI_EMBEDDING_MODEL", MODEL)];
    let server = stage.werkruf_with(&model, database, &embedding)?;
    asking.first_search(&server.url).await?;
    let arriving = pending(asking.client, &server.url).await? > 0;
    vectors.answer_chunks();
    let mut during = asking.round(&server, "hybrid", "  while vectors arrive").await?;
    if pending(asking.client, &server.url).await? == 0 {
        during.name = if arriving { "  while the last vectors arrived" } else { "  quiet (all vectors had arrived)" };
    }
    asking.wait(async || Ok(pending(asking.client, &server.url).await? == 0)).await?;
    asking.rounds(&server, "hybrid", COMPARED).await?;
    let after = asking.round(&server, "hybrid", "  quiet again").await?;
    if arriving {
        asking.report.add_arrival(during, after);
    }
    asking.report.note_peak(peak_mib(server.pid())?);
    Ok(())
}

/// The questions, and where they are sent.
struct Asking<'a> {
    plan: &'a Plan,
    library: &'a Arc<MadeLibrary>,
    client: &'a reqwest::Client,
    questions: Vec<MadeQuestion>,
    report: &'a mut SearchReport,
}

impl Asking<'_> {
    /// The first question after the start, and the time until the index is built.
    async fn first_search(&mut self, url: &str) -> Result<(), String> {
        let began = Stopwatch::start();
        let answer = ask_in_any_mode(self.client, url, &self.questions[0].text).await?;
        self.report.first_ms = self.report.first_ms.max(began.seconds() * 1000.0);
        if answer["results"].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("search: the first question after the start found nothing: {answer}"));
        }
        let client = self.client;
        self.wait(async || Ok(!is_building(client, url).await?)).await?;
        self.report.index_seconds = began.seconds();
        Ok(())
    }

    async fn wait(&self, is_done: impl AsyncFn() -> Result<bool, String>) -> Result<(), String> {
        while !is_done().await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The planned rounds on a quiet server, after a warm-up.
    async fn rounds(&mut self, server: &Child, mode: &'static str, name: &'static str) -> Result<(), String> {
        for question in &self.questions[..WARM_UP] {
            ask(self.client, &server.url, question, mode).await?;
        }
        let mut rounds = Vec::new();
        for _ in 0..self.plan.rounds {
            rounds.push(self.round(server, mode, name).await?);
        }
        self.report.add_rounds(&rounds);
        Ok(())
    }

    #[expect(clippy::print_stderr, reason = "progress output")]
    async fn round(&self, server: &Child, mode: &str, name: &'static str) -> Result<SearchRound, String> {
        eprintln!("search: {} in {} chunks", name.trim_start(), self.report.chunks);
        let (mut round, cpu) = (SearchRound::new(name), cpu_seconds(server.pid())?);
        for question in &self.questions[WARM_UP..] {
            let (ms, found) = ask(self.client, &server.url, question, mode).await?;
            round.note(ms, found);
        }
        round.cpu_ms = Some((cpu_seconds(server.pid())? - cpu) * 1000.0 / QUESTIONS as f64);
        Ok(round)
    }
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
