//! `werkruf knowledge eval FOLDER`: nDCG@10, recall@20, MRR@10 and latency on the user's own questions.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use werkruf_contract::Clock;

use super::{BATCH, Totals, send};
use crate::cli::backend::Backend;
use crate::cli::error::CliError;
use crate::cli::{encode, print};

const TOP: u32 = 50;
/// The interval at which the number of missing vectors is polled.
const POLL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(in crate::cli) struct Eval {
    /// Folder with corpus.jsonl, queries.jsonl and qrels.tsv
    folder: PathBuf,
    #[arg(long, default_value = "hybrid", value_parser = ["hybrid", "lexical"])]
    mode: String,
    /// Do not wait until every chunk has its vector
    #[arg(long)]
    no_wait: bool,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    #[serde(default)]
    title: String,
    text: String,
}

type Judgements = HashMap<String, HashMap<String, f64>>;

impl Eval {
    pub(super) async fn run(&self, backend: &Backend, as_json: bool) -> Result<(), CliError> {
        let corpus: Vec<Row> = rows(&self.folder.join("corpus.jsonl"))?;
        let queries: Vec<Row> = rows(&self.folder.join("queries.jsonl"))?;
        let judged = judgements(&self.folder.join("qrels.tsv"))?;
        let name = self.folder.canonicalize().ok().and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
        let collection = format!("eval-{}", name.unwrap_or_default());
        let mut totals = Totals::default();
        for part in corpus.chunks(BATCH) {
            let mut batch = part.iter().map(|row| json!({"id": row.id, "title": row.title, "text": row.text})).collect();
            send(backend, &collection, &mut batch, &mut totals).await?;
        }
        if self.mode == "hybrid" && !self.no_wait {
            wait_for_vectors(backend, &collection).await?;
        }
        let (mut runs, mut spans) = (HashMap::new(), Vec::new());
        let clock = Clock::system(0);
        for query in queries.iter().filter(|query| judged.contains_key(&query.id)) {
            let request = json!({"query": query.text, "collection": collection, "top_k": TOP, "mode": self.mode});
            let before = clock.now();
            let answer = backend.post("/api/knowledge/search", &request).await?;
            spans.push(clock.now().duration_since(before).as_secs_f64() * 1_000.0);
            runs.insert(query.id.as_str(), documents(&answer));
        }
        show(&judged, &runs, spans, as_json)
    }
}

/// Documents in the order of their best chunks.
fn documents(answer: &Value) -> Vec<String> {
    let mut seen = HashSet::new();
    let ids = answer["results"].as_array().into_iter().flatten().filter_map(|result| result["document_id"].as_str());
    ids.filter(|id| seen.insert(*id)).map(str::to_owned).collect()
}

async fn wait_for_vectors(backend: &Backend, collection: &str) -> Result<(), CliError> {
    if !backend.found_by_lock_file() {
        // Only a server makes vectors.
        return Ok(());
    }
    loop {
        let row = backend.get(&format!("/api/knowledge/collections/{}", encode(collection))).await?;
        if row["embedding_model"].is_null() || row["pending"].as_i64().unwrap_or(0) <= 0 {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

fn show(judged: &Judgements, runs: &HashMap<&str, Vec<String>>, mut spans: Vec<f64>, as_json: bool) -> Result<(), CliError> {
    if runs.is_empty() {
        return Err(CliError::Usage("no question has a judgement; compare the ids in queries.jsonl and qrels.tsv".to_owned()));
    }
    let none = Vec::new();
    let scores: Vec<[f64; 3]> = judged.iter().map(|(id, gains)| score(gains, runs.get(id.as_str()).unwrap_or(&none))).collect();
    let mean = |at: usize| scores.iter().map(|score| score[at]).sum::<f64>() / f64::from(u32::try_from(scores.len()).unwrap_or(1).max(1));
    spans.sort_unstable_by(f64::total_cmp);
    let percentile = |share: usize| spans.get(spans.len() * share / 100).or_else(|| spans.last()).copied().unwrap_or(0.0);
    let (ndcg10, recall20, mrr10, p50, p95) = (mean(0), mean(1), mean(2), percentile(50), percentile(95));
    if as_json {
        let answer = json!({"ndcg10": ndcg10, "recall20": recall20, "mrr10": mrr10, "p50_ms": p50, "p95_ms": p95, "queries": scores.len()});
        print::json(&answer);
    } else {
        print::line(&format!(
            "nDCG@10 {ndcg10:.4}  recall@20 {recall20:.4}  MRR@10 {mrr10:.4}  p50 {p50:.1} ms  p95 {p95:.1} ms  {} questions",
            scores.len()
        ));
    }
    Ok(())
}

/// nDCG@10 with linear gain, recall@20, MRR@10.
fn score(gains: &HashMap<String, f64>, run: &[String]) -> [f64; 3] {
    let discount = |rank: usize| f64::from(u32::try_from(rank + 2).unwrap_or(u32::MAX)).log2();
    let gain = |id: &String| gains.get(id).copied().unwrap_or(0.0);
    let actual: f64 = run.iter().take(10).enumerate().map(|(rank, id)| gain(id) / discount(rank)).sum();
    let mut ideal: Vec<f64> = gains.values().copied().collect();
    ideal.sort_unstable_by(|a, b| b.total_cmp(a));
    let best: f64 = ideal.iter().take(10).enumerate().map(|(rank, gain)| gain / discount(rank)).sum();
    let relevant = gains.values().filter(|gain| **gain > 0.0).count();
    let hits = run.iter().take(20).filter(|id| gain(id) > 0.0).count();
    let share = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let first = run.iter().take(10).position(|id| gain(id) > 0.0);
    [if best > 0.0 { actual / best } else { 0.0 }, share(hits, relevant), first.map_or(0.0, |rank| share(1, rank + 1))]
}

fn rows<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, CliError> {
    let text = read(path)?;
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| CliError::Usage(format!("{} line {}: {error}", path.display(), at + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

fn judgements(path: &Path) -> Result<Judgements, CliError> {
    let mut judged = Judgements::new();
    for (at, line) in read(path)?.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [query, document, gain] = fields.as_slice() else {
            return Err(CliError::Usage(format!("{} line {}: three fields, separated by tabs, are needed", path.display(), at + 1)));
        };
        let gain =
            gain.trim().parse().map_err(|_| CliError::Usage(format!("{} line {}: `{gain}` is not a number", path.display(), at + 1)))?;
        judged.entry((*query).to_owned()).or_default().insert((*document).to_owned(), gain);
    }
    Ok(judged)
}

fn read(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_as_trec_counts_them() {
        let gains = HashMap::from([("a".to_owned(), 2.0), ("b".to_owned(), 1.0)]);
        let run = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(score(&gains, &run(&["a", "b", "x"])), [1.0, 1.0, 1.0]);
        let [ndcg, recall, mrr] = score(&gains, &run(&["x", "b"]));
        assert!((ndcg - (1.0 / 3_f64.log2()) / (2.0 + 1.0 / 3_f64.log2())).abs() < 1e-9);
        assert_eq!((recall, mrr), (0.5, 0.5));
        assert_eq!(score(&gains, &[]), [0.0, 0.0, 0.0]);
    }
}
