//! Asking the model: at most three times, each request counted, text shown as it comes.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use werkruf_contract::{AssistantReset, AssistantToken, CallStatus, Deadline, EventType, Texts, ToolContext, ToolErrorType, TurnError};
use werkruf_llm::{Answer, AnswerStream, Delta, ModelError, ModelFault, ModelRequest, Provider, TokenUsage};
use werkruf_store::{NewUsage, StoreError, crash};

use crate::ground::{Draft, Ground};
use crate::provided::Provided;
use crate::timer;

/// Sends in all, the first included.
const SENDS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A provider that asks for more patience than this gets none.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Bytes per token where nobody counted.
const BYTES_PER_TOKEN: usize = 4;

/// Why a turn stops before its answer.
#[derive(Debug)]
pub(crate) enum Stop {
    Canceled,
    Deadline,
    Failed(TurnError),
    /// For a person's word; everything is written.
    Waiting,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One question and the bill for it.
pub(crate) struct Question<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) provider: &'a dyn Provider,
    /// Places for requests at once, where limited.
    pub(crate) slots: Option<&'a Semaphore>,
    /// Of the first answer; each that is given up after it left rows moves the next one on.
    pub(crate) step: u32,
    pub(crate) deadline: Deadline,
    pub(crate) request: ModelRequest,
    pub(crate) context: &'a ToolContext,
}

/// What has been heard of an answer.
struct Hearing<'a> {
    shown: String,
    provided: &'a mut Provided,
}

impl Hearing<'_> {
    /// Whether nobody outside knows of this answer yet.
    const fn is_secret(&self) -> bool {
        self.shown.is_empty() && self.provided.is_empty()
    }
}

impl Question<'_> {
    /// Asks until there is an answer. `draft` is made durable while the first request is under way, and before a word of
    /// its answer is shown: if it cannot be, the answer is thrown away.
    pub(crate) async fn ask(&self, mut draft: Option<Draft>, usage: &mut Vec<NewUsage>, provided: &mut Provided) -> Result<Answer, Stop> {
        let mut sent = 0;
        loop {
            sent += 1;
            if draft.is_none() && self.ground.live.cancel.is_raised() {
                // Nothing was asked, so nothing is to be paid.
                return Err(Stop::Canceled);
            }
            let opening = self.in_time(self.open());
            let opened = match draft.take() {
                Some(draft) => {
                    // Boxed: it is over long before the answer begins.
                    let (committed, opened) = tokio::join!(Box::pin(self.ground.commit(draft)), opening);
                    committed?;
                    opened
                }
                None => opening.await,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(stop) => {
                    // The request may have been out already.
                    usage.push(self.lost());
                    return Err(stop);
                }
            };
            let mut hearing = Hearing { shown: String::new(), provided: &mut *provided };
            let error = match opened {
                Ok((stream, _slot)) => match self.listen(stream, &mut hearing).await {
                    Ok(Ok(answer)) => {
                        usage.push(self.bill(answer.usage, &answer.text, answer.model.as_deref()));
                        return Ok(answer);
                    }
                    Ok(Err(error)) => error,
                    Err(stop) => {
                        usage.push(self.bill(None, &hearing.shown, None));
                        if matches!(stop, Stop::Deadline) {
                            Box::pin(self.take_back(hearing)).await?;
                        }
                        return Err(stop);
                    }
                },
                Err(error) => error,
            };
            self.note_fault(&error, &hearing.shown, usage);
            if sent >= SENDS || !error.is_retryable() {
                return Err(Stop::Failed(give_up(&error, &self.request.locale)));
            }
            Box::pin(self.take_back(hearing)).await?;
            self.pause(sent, &error).await?;
        }
    }

    /// Asks once for a text nobody is shown. `None` when none came.
    pub(crate) async fn ask_aside(&self, usage: &mut Vec<NewUsage>) -> Result<Option<String>, Stop> {
        if self.ground.live.cancel.is_raised() {
            return Err(Stop::Canceled);
        }
        let mut received = String::new();
        let heard = async {
            let (mut stream, _slot) = self.open().await?;
            while let Some(delta) = stream.next().await {
                match delta? {
                    Delta::Text(text) => received.push_str(&text),
                    Delta::ItemStarted(_) | Delta::ItemFinished(_) => {}
                    Delta::Done(answer) => return Ok(*answer),
                }
            }
            Err(ModelError::new(ModelFault::Incomplete, "the stream ended without saying that it was done"))
        };
        match self.in_time(heard).await {
            Ok(Ok(answer)) => {
                usage.push(self.bill(answer.usage, &answer.text, answer.model.as_deref()));
                Ok(Some(answer.text))
            }
            Ok(Err(error)) => {
                self.note_fault(&error, &received, usage);
                Ok(None)
            }
            Err(stop) => {
                usage.push(self.bill(None, &received, None));
                Err(stop)
            }
        }
    }

    /// Sends once, as soon as there is a place; the place is held until the answer is heard to its end.
    async fn open(&self) -> Result<(AnswerStream, Option<SemaphorePermit<'_>>), ModelError> {
        let slot = match self.slots {
            // The semaphore is never closed, so an error cannot come.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        self.ground.still_ours().await;
        crash::point("before_request");
        let stream = self.provider.stream(self.request.clone()).await?;
        crash::point("request_out");
        Ok((stream, slot))
    }

    /// Shows what comes. What the provider runs itself is durable before it is heard of, so those writes are never broken off.
    async fn listen(&self, mut stream: AnswerStream, hearing: &mut Hearing<'_>) -> Result<Result<Answer, ModelError>, Stop> {
        let mut canceled = pin!(self.ground.live.cancel.raised());
        let mut late = pin!(tokio::time::sleep_until(self.deadline.instant().into()));
        loop {
            let delta = tokio::select! {
                biased;
                () = &mut canceled => return Err(Stop::Canceled),
                delta = stream.next() => delta,
                () = &mut late => return Err(Stop::Deadline),
            };
            match delta {
                Some(Ok(Delta::Text(content))) => {
                    hearing.shown.push_str(&content);
                    self.ground.say_text(&AssistantToken { content, step: self.step + hearing.provided.given_up });
                    crash::point("mid_stream");
                }
                Some(Ok(Delta::ItemStarted(item))) => {
                    // More than this is no work but noise; it is still recorded, with the answer.
                    let step = self.step + hearing.provided.given_up;
                    if hearing.provided.len() < self.ground.limits.calls_per_step
                        && let Some(draft) = hearing.provided.begin(self.ground, step, self.context, &item)
                    {
                        self.ground.commit(draft).await?;
                    }
                }
                Some(Ok(Delta::ItemFinished(item))) => {
                    if let Some(draft) = hearing.provided.finish(self.ground, &item) {
                        self.ground.commit(draft).await?;
                    }
                }
                Some(Ok(Delta::Done(answer))) if hearing.provided.clashes_with(&answer) => {
                    return Ok(Err(ModelError::new(ModelFault::Protocol, "a call stands where the provider had run something itself")));
                }
                Some(Ok(Delta::Done(answer))) => return Ok(Ok(*answer)),
                Some(Err(error)) => return Ok(Err(error)),
                None => {
                    return Ok(Err(ModelError::new(ModelFault::Incomplete, "the stream ended without saying that it was done")));
                }
            }
        }
    }

    /// Bounded by the turn's deadline and its stop button.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.ground.live.cancel.raised() => Err(Stop::Canceled),
            done = work => Ok(done),
            () = tokio::time::sleep_until(self.deadline.instant().into()) => Err(Stop::Deadline),
        }
    }

    /// The answer is given up. Text that was shown is taken back before the model is asked again; what the provider ran stays, in
    /// a step of its own.
    async fn take_back(&self, hearing: Hearing<'_>) -> Result<(), Stop> {
        if hearing.is_secret() {
            return Ok(());
        }
        let Hearing { shown, provided } = hearing;
        let step = self.step + provided.given_up;
        let mut draft = self.ground.draft();
        if !provided.is_empty() {
            provided.close(self.ground, &mut draft, CallStatus::Failed);
            provided.given_up += 1;
            draft.write.given_up = Some(step);
        }
        if !shown.is_empty() {
            self.ground.hub.take_back(self.ground.stream_id()).await;
            draft.event(EventType::AssistantReset, &AssistantReset { step, turn_id: self.ground.turn_id });
        }
        self.ground.commit(draft).await?;
        Ok(())
    }

    async fn pause(&self, sent: u32, error: &ModelError) -> Result<(), Stop> {
        let pause = error.retry_after.unwrap_or(FIRST_PAUSE * 2_u32.pow(sent - 1));
        if pause > LONGEST_PAUSE || pause > timer::left(self.deadline) {
            let mut failure = give_up(error, &self.request.locale);
            failure.retry_after_ms = u64::try_from(pause.as_millis()).ok();
            return Err(Stop::Failed(failure));
        }
        self.in_time(tokio::time::sleep(pause)).await
    }

    fn note_fault(&self, error: &ModelError, shown: &str, usage: &mut Vec<NewUsage>) {
        tracing::warn!(turn_id = %self.ground.turn_id, fault = ?error.fault, error = %error.message, "the model gave no answer");
        match error.fault {
            ModelFault::Connect => {}
            // Refused before it was read: sent, but nothing to pay for.
            ModelFault::Refused { .. } => usage.push(self.row(TokenUsage::default(), false, None)),
            ModelFault::FirstByte | ModelFault::Idle | ModelFault::Incomplete | ModelFault::Protocol => {
                usage.push(self.bill(None, shown, None));
            }
        }
    }

    /// A request that may have been out when an earlier process stopped.
    pub(crate) fn lost(&self) -> NewUsage {
        self.bill(None, "", None)
    }

    /// What the provider reported; where it did not, what was sent and received, counted and flagged.
    fn bill(&self, reported: Option<TokenUsage>, received: &str, model: Option<&str>) -> NewUsage {
        reported.map_or_else(
            || {
                let tokens = |bytes: usize| i64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(i64::MAX);
                let (input_tokens, output_tokens) = (tokens(self.request_bytes()), tokens(received.len()));
                let counted =
                    TokenUsage { input_tokens, output_tokens, total_tokens: input_tokens + output_tokens, ..TokenUsage::default() };
                self.row(counted, true, model)
            },
            |reported| self.row(reported, false, model),
        )
    }

    fn request_bytes(&self) -> usize {
        use werkruf_llm::Message;
        let messages: usize = self
            .request
            .messages
            .iter()
            .map(|message| match message {
                Message::System { content } | Message::User { content, .. } | Message::Tool { content, .. } => content.len(),
                Message::Assistant { content, calls, .. } => {
                    content.len() + calls.iter().map(|c| c.arguments.len() + c.name.len()).sum::<usize>()
                }
            })
            .sum();
        self.request.system.len() + messages
    }

    fn row(&self, tokens: TokenUsage, estimated: bool, model: Option<&str>) -> NewUsage {
        let asked = self.request.model.as_deref().unwrap_or_else(|| self.provider.default_model());
        let model = model.unwrap_or(asked);
        NewUsage {
            id: self.ground.clock.new_id(),
            call_id: None,
            key_id: self.ground.caller.key_id,
            provider: self.provider.name().to_owned(),
            model: model.to_owned(),
            operation: "chat",
            tokens_prompt: tokens.input_tokens.max(0),
            tokens_cached: tokens.cached_tokens.max(0),
            tokens_completion: tokens.output_tokens.max(0),
            tokens_reasoning: tokens.reasoning_tokens.max(0),
            tokens_total: tokens.total_tokens.max(0),
            estimated,
            cost_nano_usd: self.ground.setup.prices.cost(model, tokens),
        }
    }
}

/// What the person reads; the provider's own words stay in the log.
fn give_up(error: &ModelError, locale: &str) -> TurnError {
    let (kind, code, key) = match error.fault {
        ModelFault::Incomplete | ModelFault::Idle => (ToolErrorType::Upstream, "model_incomplete", "error-model_incomplete"),
        ModelFault::Refused { status: 429 } => (ToolErrorType::RateLimit, "model_unavailable", "error-model_busy"),
        ModelFault::Refused { status } if status < 500 => (ToolErrorType::Upstream, "model_unavailable", "error-model_refused"),
        ModelFault::Connect | ModelFault::Refused { .. } | ModelFault::FirstByte | ModelFault::Protocol => {
            (ToolErrorType::Upstream, "model_unavailable", "error-model_unavailable")
        }
    };
    let mut failure = TurnError::new(kind, code, Texts::of(locale).text(key, &[]));
    failure.retry_after_ms = error.retry_after.and_then(|span| u64::try_from(span.as_millis()).ok());
    failure
}
