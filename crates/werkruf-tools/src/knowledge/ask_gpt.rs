//! `ask_gpt`: asks the language model without tools, and with a web search if the arguments request one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use werkruf_contract::{Deadline, Effect, Failure, Invocation, Reply, State, Tool, ToolErrorType, ToolSpec};
use werkruf_llm::prices::PriceTable;
use werkruf_llm::{
    Citation, Delta, Message, ModelError, ModelFault, ModelRequest, Provider, TokenUsage, ToolChoice, WebSearch, WebSearchRequest,
};

use super::assent::is_assent;
use super::base::KnowledgeBase;
use super::bill::Bill;
use super::search_tool::PENDING;

const SYSTEM: &str =
    "You answer a person's question directly, in the language of the question. Use what you know. Where facts are uncertain, say so.";
const SEARCHING: &str = " Search the web for what is current, and cite where you found it.";
/// A web search takes up to a minute.
const PATIENCE: Duration = Duration::from_secs(90);

/// The model and the web search that `ask_gpt` uses.
#[derive(Default)]
pub struct Oracle {
    /// The configured model provider; `None` if no language model is configured.
    pub provider: Option<Arc<dyn Provider>>,
    pub web: Option<WebSearch>,
    pub prices: Arc<PriceTable>,
}

pub(super) struct AskGpt {
    pub(super) base: Arc<KnowledgeBase>,
    pub(super) oracle: Arc<Oracle>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
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

#[derive(Debug, Serialize)]
pub(super) struct Told {
    message: String,
    model: String,
    /// Whether the model actually searched the web.
    web_search: bool,
    searches: u32,
    citations: Vec<Citation>,
}

/// An answer of the model, with or without a web search.
#[derive(Default)]
struct Answered {
    text: String,
    model: String,
    searches: u32,
    citations: Vec<Citation>,
    /// Tokens as the provider reported them. An estimate goes only into the usage row.
    tokens: Option<TokenUsage>,
}

impl Tool for AskGpt {
    type Args = Args;
    type Output = Told;

    fn spec(&self) -> ToolSpec {
        let description = "Asks a general language model, for questions that the company's own knowledge does not answer. With web_search it looks \
            up what is current and returns citations. It cannot see this conversation: put what it needs into context.";
        let mut spec = ToolSpec::new("ask_gpt", description, Effect::Read);
        spec.timeout = PATIENCE;
        spec.answers_directly = true;
        spec
    }

    async fn call(&self, args: Args, invocation: Invocation) -> Result<Reply<Told>, Failure> {
        let query = args.query.trim().to_owned();
        if query.is_empty() {
            return Err(Failure::validation("empty_query", "The query is empty. Say what to ask."));
        }
        let context = args.context.as_deref().map(str::trim).filter(|context| !context.is_empty());
        let mut messages: Vec<String> = context.map(|context| format!("Context:\n{context}")).into_iter().collect();
        messages.push(query);
        let temperature = args.temperature.filter(|temperature| temperature.is_finite()).map(|temperature| temperature.clamp(0.0, 1.0));
        let deadline = invocation.deadline;
        let asked = if args.web_search == Some(true) {
            self.search(messages, temperature, &invocation, deadline).await
        } else {
            self.ask(messages, temperature, &invocation, deadline).await
        };
        let answered = asked?;
        if answered.text.trim().is_empty() {
            return Err(Failure::upstream("empty_answer", "The model gave no answer."));
        }
        let Answered { text, model, searches, citations, tokens } = answered;
        let message = text.trim().to_owned();
        let mut reply = Reply::new(Told { message: message.clone(), model, web_search: searches > 0, searches, citations });
        reply.message = Some(message);
        reply.token_usage = tokens
            .map(|tokens| BTreeMap::from([("prompt".to_owned(), tokens.input_tokens), ("completion".to_owned(), tokens.output_tokens)]));
        reply.state_patch = Some(State::from_iter([(PENDING.to_owned(), serde_json::Value::Null)]));
        Ok(reply)
    }

    fn claims(&self, state: &State, text: &str) -> Option<Args> {
        let query = state.get(PENDING)?.get("query")?.as_str()?;
        is_assent(text).then(|| Args { query: query.to_owned(), context: None, web_search: Some(true), temperature: None })
    }

    fn offers(&self) -> &'static [&'static str] {
        &[PENDING]
    }
}

impl AskGpt {
    async fn ask(
        &self,
        messages: Vec<String>,
        temperature: Option<f64>,
        invocation: &Invocation,
        deadline: Deadline,
    ) -> Result<Answered, Failure> {
        let provider = self.oracle.provider.as_ref().ok_or_else(not_configured)?;
        let bytes: usize = messages.iter().map(String::len).sum();
        let request = ModelRequest {
            system: SYSTEM.into(),
            messages: Arc::new(messages.into_iter().map(Message::user).collect()),
            tool_choice: ToolChoice::None,
            locale: invocation.principal.locale.clone(),
            temperature,
            ..ModelRequest::default()
        };
        let sent = SYSTEM.len() + bytes;
        let bill = Bill::open(&self.base, &self.oracle.prices, invocation, (provider.name(), provider.default_model()), sent).await;
        let mut received = String::new();
        let streaming = async {
            let mut stream = provider.stream(request).await?;
            while let Some(delta) = stream.next().await {
                match delta? {
                    Delta::Text(text) => received.push_str(&text),
                    Delta::ItemStarted(_) | Delta::ItemFinished(_) => {}
                    Delta::Done(answer) => return Ok(*answer),
                }
            }
            Err(ModelError::new(ModelFault::Incomplete, "the answer did not end"))
        };
        let answer = match werkruf_llm::in_time(deadline, streaming).await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                bill.fail(&error, &received).await;
                return Err(failed(&error));
            }
            None => {
                bill.settle(provider.default_model(), None, &received).await;
                return Err(late());
            }
        };
        let text = if answer.text.is_empty() { answer.refusal.unwrap_or_default() } else { answer.text };
        let model = answer.model.unwrap_or_else(|| provider.default_model().to_owned());
        bill.settle(&model, answer.usage, &text).await;
        Ok(Answered { text, model, tokens: answer.usage, ..Answered::default() })
    }

    async fn search(
        &self,
        messages: Vec<String>,
        temperature: Option<f64>,
        invocation: &Invocation,
        deadline: Deadline,
    ) -> Result<Answered, Failure> {
        let web = self.oracle.web.as_ref().ok_or_else(not_configured)?;
        let bytes: usize = messages.iter().map(String::len).sum();
        let locale = &invocation.principal.locale;
        let country = locale.split(['-', '_']).nth(1).filter(|code| code.len() == 2).map(str::to_ascii_uppercase);
        let question = WebSearchRequest { system: format!("{SYSTEM}{SEARCHING}"), messages, temperature, country };
        let sent = question.system.len() + bytes;
        let bill = Bill::open(&self.base, &self.oracle.prices, invocation, (web.name(), web.model()), sent).await;
        let answer = match web.search(&question, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                bill.fail(&error, &error.received).await;
                return Err(failed(&error));
            }
        };
        let model = answer.model.unwrap_or_else(|| web.model().to_owned());
        bill.settle(&model, answer.usage, &answer.text).await;
        Ok(Answered { text: answer.text, model, searches: answer.searches, citations: answer.citations, tokens: answer.usage })
    }
}

fn not_configured() -> Failure {
    let message = "No language model is configured, so there is nobody to ask. An operator can connect one with OPENAI_API_KEY.";
    Failure::fatal("not_configured", message).nothing_happened()
}

fn late() -> Failure {
    Failure::new(ToolErrorType::Timeout, "tool_timeout", "The model did not answer in time.")
}

/// The provider's error text goes only into the log, never to the user.
fn failed(error: &ModelError) -> Failure {
    let (kind, status) = match error.fault {
        ModelFault::Refused { status: 429 } => (ToolErrorType::RateLimit, Some(429)),
        ModelFault::Refused { status } if status < 500 && status != 408 => (ToolErrorType::Fatal, Some(status)),
        ModelFault::Refused { status } => (ToolErrorType::Upstream, Some(status)),
        ModelFault::FirstByte | ModelFault::Idle => (ToolErrorType::Timeout, None),
        ModelFault::Connect | ModelFault::Incomplete | ModelFault::Protocol => (ToolErrorType::Upstream, None),
    };
    let failure = Failure::new(kind, "model_unavailable", "The model cannot be asked right now.");
    Failure { upstream_status: status, ..failure.because(error.to_string()).retry_after(error.retry_after) }
}
