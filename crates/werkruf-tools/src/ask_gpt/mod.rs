//! The module `ask_gpt`: a tool that asks the language model without tools, and with a web search if the arguments request one.

mod assent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{
    Citation, Effect, Failure, Invocation, PENDING_QUESTION, Reply, State, TextAnswer, TextRequest, Tool, ToolObject, ToolSpec, Typed,
};
use werkruf_store::{Module, ModuleSchema, PostgresSchema};

use assent::is_assent;

const SYSTEM: &str =
    "You answer a person's question directly, in the language of the question. Use what you know. Where facts are uncertain, say so.";
const SEARCHING: &str = " Search the web for what is current, and cite where you found it.";
/// A web search takes up to a minute.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The module has no tables.
const SCHEMA: &ModuleSchema = &ModuleSchema { name: "ask_gpt", tables: &[], import: None, sqlite: &[], postgres: PostgresSchema::new(&[]) };

pub struct AskGpt;

impl Module for AskGpt {
    fn schema(&self) -> &'static ModuleSchema {
        SCHEMA
    }

    fn tools(self: Arc<Self>) -> Vec<Arc<dyn ToolObject>> {
        vec![Arc::new(Typed::new(Self))]
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The question
    query: String,
    /// Earlier parts of the conversation, if the question needs them
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// Whether to search the web for the answer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    web_search: Option<bool>,
    /// From 0 (sober) to 1 (free)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    message: String,
    model: String,
    /// Whether the model actually searched the web.
    web_search: bool,
    searches: u32,
    citations: Vec<Citation>,
}

impl Tool for AskGpt {
    type Args = Args;
    type Output = Answer;

    fn spec(&self) -> ToolSpec {
        let description = "Asks a general language model, for questions that the company's own knowledge does not answer. With web_search it looks \
            up what is current and returns citations. It cannot see this conversation: put what it needs into context.";
        let mut spec = ToolSpec::new("ask_gpt", description, Effect::Read);
        spec.timeout = Some(TIMEOUT);
        // Each attempt is paid for, and a search that was cut off may have been paid for too.
        spec.attempts = 1;
        spec.answers_directly = true;
        // The query leaves the company.
        spec.external = true;
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Answer>, Failure> {
        let query = args.query.trim().to_owned();
        if query.is_empty() {
            return Err(Failure::validation("empty_query", "The query is empty. Say what to ask."));
        }
        let context = args.context.as_deref().map(str::trim).filter(|context| !context.is_empty());
        let mut messages: Vec<String> = context.map(|context| format!("Context:\n{context}")).into_iter().collect();
        messages.push(query);
        let temperature = args.temperature.filter(|temperature| temperature.is_finite()).map(|temperature| temperature.clamp(0.0, 1.0));
        let web_search = args.web_search == Some(true);
        let system = if web_search { format!("{SYSTEM}{SEARCHING}") } else { SYSTEM.to_owned() };
        let request = TextRequest { system, messages, temperature, locale: invocation.principal.locale.clone() };
        let (models, deadline) = (&invocation.models, invocation.deadline);
        let answer = if web_search { models.search_web(request, deadline).await } else { models.answer(request, deadline).await };
        let TextAnswer { text, model, searches, citations, tokens } = answer?;
        if text.trim().is_empty() {
            return Err(Failure::upstream("empty_answer", "The model gave no answer."));
        }
        let message = text.trim().to_owned();
        let mut reply = Reply::new(Answer { message: message.clone(), model, web_search: searches > 0, searches, citations });
        reply.message = Some(message);
        // A model that was asked to search may have read pages, whatever it reports.
        reply.untrusted = web_search || searches > 0;
        reply.token_usage = tokens.map(|(input, output)| BTreeMap::from([("prompt".to_owned(), input), ("completion".to_owned(), output)]));
        reply.state_patch = Some(State::from_iter([(PENDING_QUESTION.to_owned(), serde_json::Value::Null)]));
        Ok(reply)
    }

    fn claims(&self, state: &State, text: &str) -> Option<Args> {
        let query = state.get(PENDING_QUESTION)?.get("query")?.as_str()?;
        is_assent(text).then(|| Args { query: query.to_owned(), context: None, web_search: Some(true), temperature: None })
    }

    fn offers(&self) -> &'static [&'static str] {
        &[PENDING_QUESTION]
    }
}
