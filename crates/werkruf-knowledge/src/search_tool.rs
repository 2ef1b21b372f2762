//! `search_knowledge_base`: searches the customer's own documents. If nothing is found, it offers `ask_gpt`.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use werkruf_contract::{Effect, ErrorCode, Failure, Invocation, PENDING_QUESTION, Reply, State, Texts, Tool, ToolSpec, Trust, fold};
use werkruf_store::StoreError;

use super::answerable::is_answerable;
use super::base::{KnowledgeBase, SearchAnswer, SearchMode, SearchRequest};
use super::rights::Grantee;
use super::texts::TEXTS;

/// How many passages are returned where the model names no number.
const DEFAULT_TOP_K: i64 = 6;
const MAX_TOP_K: i64 = 20;
/// Characters of a snippet in the message.
const SNIPPET_CHARS: usize = 240;

pub(super) struct SearchKnowledgeBase(pub(super) Arc<KnowledgeBase>);

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// What to look for, as a question or as words
    query: String,
    /// How many passages at most, 1 to 20; 6 by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    top_k: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Passages {
    kind: &'static str,
    mode: &'static str,
    message: String,
    query: String,
    top_k: i64,
    sources: Vec<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_tool: Option<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    id: String,
    document_id: String,
    title: String,
    snippet: String,
    similarity: Option<f32>,
    score: f32,
    /// Of its collection.
    #[serde(skip)]
    trust: Trust,
}

impl Tool for SearchKnowledgeBase {
    type Args = Args;
    type Output = Passages;

    fn spec(&self) -> ToolSpec {
        let description = "Searches the company's own documents (rules, programs, strategies, manuals) by words and by meaning. Use it for every \
            question that the company's own knowledge may answer; answer from the sources it returns and name them.";
        let mut spec = ToolSpec::new("search_knowledge_base", description, Effect::Read);
        spec.timeout = Some(Duration::from_secs(10));
        spec.attempts = 2;
        spec.texts = Some(&TEXTS);
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Passages>, Failure> {
        let query = args.query.trim().to_owned();
        if query.is_empty() {
            return Err(Failure::validation("empty_query", "The query is empty. Say what to look for."));
        }
        let top_k = args.top_k.unwrap_or(DEFAULT_TOP_K).clamp(1, MAX_TOP_K);
        let limit = usize::try_from(top_k).unwrap_or(1);
        let (mut sources, mut routing) = (Vec::new(), Map::new());
        let request = SearchRequest {
            grantee: Grantee::person(&invocation.principal),
            user_id: invocation.principal.user_id.clone(),
            collections: collections(&invocation)?,
            query: query.clone(),
            top_k: limit,
            mode: SearchMode::Hybrid,
            models: Some(Arc::clone(&invocation.models)),
        };
        for answer in self.0.search(request).await.map_err(|error| failed(&error))? {
            sources.extend(relevant(&answer));
            routing.extend(how(&answer));
        }
        sources.sort_by(|one: &Source, other| other.score.total_cmp(&one.score));
        sources.truncate(limit);
        let untrusted = sources.iter().any(|source| source.trust == Trust::Untrusted);
        let texts = invocation.texts().with(&TEXTS);
        let is_empty = sources.is_empty();
        let offers = is_empty && self.0.offers_ask_gpt();
        let message = message(&texts, &sources, offers);
        let asked_at = format!("{:.3}", self.0.clock().now());
        let pending = if offers { json!({"query": query, "asked_at": asked_at}) } else { Value::Null };
        let mut reply = Reply::new(Passages {
            kind: if is_empty { "nothing" } else { "docs" },
            mode: if is_empty { "rag_no_results" } else { "rag_docs" },
            message: message.clone(),
            query,
            top_k,
            sources,
            suggested_tool: offers.then_some("ask_gpt"),
        });
        reply.message = Some(message);
        reply.routing = Some(routing);
        reply.untrusted = untrusted;
        reply.state_patch = Some(State::from_iter([(PENDING_QUESTION.to_owned(), pending)]));
        Ok(reply)
    }

    fn last_resort(&self, text: &str) -> Option<Args> {
        is_question(text).then(|| Args { query: text.trim().to_owned(), top_k: None })
    }

    fn offers(&self) -> &'static [&'static str] {
        &[PENDING_QUESTION]
    }
}

/// Words, folded, that begin a question.
const QUESTION_WORDS: [&str; 40] = [
    "was", "wer", "wie", "wo", "wann", "warum", "wieso", "weshalb", "welche", "welcher", "welches", "wieviel", "wozu", "gibt", "darf",
    "muss", "what", "who", "how", "where", "when", "why", "which", "is", "are", "does", "do", "may", "must", "que", "quien", "como",
    "donde", "cuando", "cuanto", "cual", "cuales", "hay", "debo", "puedo",
];
/// Beginnings of words that name documents.
const DOCUMENT_STEMS: [&str; 11] = [
    "wissensdatenbank",
    "handbuch",
    "dokument",
    "richtlinie",
    "unterlagen",
    "regelung",
    "document",
    "manual",
    "policy",
    "policies",
    "guideline",
];
/// Words of questions about the planner itself, which its own help text answers.
const ABOUT_THE_PLANNER: [&str; 11] = ["kannst", "hilfe", "help", "you", "ayuda", "ayudar", "puedes", "eres", "bist", "du", "dir"];

/// Whether a message is a question that documents may answer.
fn is_question(text: &str) -> bool {
    let folded = fold(text);
    let words: Vec<&str> = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let asks = text.trim_end().ends_with('?') || words.first().is_some_and(|first| QUESTION_WORDS.contains(first));
    let names_documents = words.iter().any(|word| DOCUMENT_STEMS.iter().any(|stem| word.starts_with(stem)));
    words.len() > 1 && (asks || names_documents) && !words.iter().any(|word| ABOUT_THE_PLANNER.contains(word))
}

/// The collections to search: the one that the request names, else those of the assistant, else the default one.
fn collections(invocation: &Invocation) -> Result<Vec<Option<String>>, Failure> {
    let context = &invocation.context;
    match &context.collection_id {
        Some(named) if !context.collections.is_empty() && !context.collections.contains(named) => {
            let message = invocation.texts().text("call-permission_denied", &[]);
            let failure = Failure::fatal(ErrorCode::PermissionDenied, message).nothing_happened();
            Err(failure.because(format!("the assistant does not search the collection {named}")))
        }
        Some(named) => Ok(vec![Some(named.clone())]),
        None if context.collections.is_empty() => Ok(vec![None]),
        None => Ok(context.collections.iter().cloned().map(Some).collect()),
    }
}

/// The relevant passages; none if not even the best passage is evidence for an answer.
fn relevant(answer: &SearchAnswer) -> Vec<Source> {
    if answer.nothing_found {
        return Vec::new();
    }
    let model = answer.embedding_model.as_deref();
    // The threshold applies to the whole answer: if one passage passes it, passages with a similar score are included too.
    let (best, near) = (answer.found.hits.first().map_or(0.0, |(_, hit)| hit.score), 0.5);
    let near_the_best =
        answer.found.hits.iter().filter(|(_, hit)| is_answerable(hit, model, answer.found.knows_language()) || hit.score >= best * near);
    near_the_best
        .map(|(row, hit)| Source {
            id: row.id.to_string(),
            document_id: row.document_id.clone(),
            title: row.title.clone(),
            snippet: row.content.clone(),
            similarity: hit.similarity,
            score: hit.score,
            trust: answer.found.trust,
        })
        .collect()
}

/// How the search was done, for `meta.routing`.
fn how(answer: &SearchAnswer) -> Map<String, Value> {
    let mut routing = Map::new();
    routing.insert("mode".to_owned(), json!(answer.mode));
    routing.insert("embedding_model".to_owned(), json!(answer.embedding_model));
    if let Some(degraded) = answer.degraded {
        routing.insert("degraded".to_owned(), json!(degraded));
    }
    routing
}

fn message(texts: &Texts, sources: &[Source], offers: bool) -> String {
    if sources.is_empty() {
        return texts.text(if offers { "knowledge-none" } else { "knowledge-none-at-all" }, &[]);
    }
    let mut lines = vec![texts.text("knowledge-found", &[("count", sources.len().into())])];
    for (at, source) in sources.iter().enumerate() {
        let short: String = source.snippet.chars().take(SNIPPET_CHARS).collect();
        let more = if short.len() < source.snippet.len() { "…" } else { "" };
        let title = if source.title.is_empty() { &source.document_id } else { &source.title };
        lines.push(format!("**{}.** {title}: {short}{more}", at + 1));
    }
    lines.join("\n\n")
}

fn failed(error: &StoreError) -> Failure {
    error.read_failure("The knowledge base cannot be read right now.")
}

#[cfg(test)]
mod tests {
    use super::is_question;

    #[test]
    fn questions_and_names_of_documents_are_searched() {
        for text in [
            "Wie viele Urlaubstage habe ich im ersten Jahr?",
            "Was kostet ein Zimmer",
            "What does the travel policy say about trains",
            "¿Cuándo se paga el bono?",
            "Reisekosten laut Richtlinie",
        ] {
            assert!(is_question(text), "{text}");
        }
        for text in ["Hallo", "Was kannst du?", "What can you do?", "help", "¿Qué puedes hacer?", "Danke schön", "?", ""] {
            assert!(!is_question(text), "{text}");
        }
    }
}
