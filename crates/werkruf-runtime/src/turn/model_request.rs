//! One model request of a turn: sent at most three times, each send metered, text published as it arrives.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::StreamExt;
use werkruf_contract::{AssistantReset, AssistantToken, CallStatus, Deadline, EventType, ToolContext, TurnError, Uuid};
use werkruf_llm::{Answer, AnswerStream, Delta, ModelError, ModelFault, ModelRequest, ProviderItem};
use werkruf_store::{NewUsage, crash};

use super::provider_items::ProviderItems;
use super::reservation::{Departing, Held};
use super::state::Stop;
use crate::call::TurnScope;
use crate::journal::{Change, CommitPoint};
use crate::metrics::Retried;
use crate::model::{Admission, MAX_SENDS, Meter, RetryPause, Sending, Sent, Settlement, pause_before_retry, turn_error};
use crate::timer;

pub(crate) struct TurnRequest<'a> {
    pub(crate) scope: &'a TurnScope,
    /// The step of the first answer. An abandoned answer that left rows keeps its step, and the next answer gets the next number.
    pub(crate) step: u32,
    pub(crate) deadline: Deadline,
    pub(crate) request: ModelRequest,
    pub(crate) context: &'a ToolContext,
}

/// What has been received of an answer.
struct Received<'a> {
    text: String,
    items: &'a mut ProviderItems,
    /// The output indexes of web searches.
    searches: BTreeSet<u32>,
}

impl Received<'_> {
    /// Counts a web search as soon as it starts. What a call of this type does is known when it ends.
    fn note(&mut self, item: &ProviderItem, sending: &Sending) {
        if item.is_search() {
            self.searches.insert(item.output_index);
        } else {
            self.searches.remove(&item.output_index);
        }
        sending.searched(u32::try_from(self.searches.len()).unwrap_or(u32::MAX));
    }
}

impl TurnRequest<'_> {
    /// Sends until there is an answer. Staged outcomes are committed while the first request is on its way, and before anything of its answer
    /// is used.
    pub(super) async fn send(&mut self, usage: &mut Vec<NewUsage>, items: &mut ProviderItems) -> Result<Answer, Stop> {
        let mut held = Held::of(self.scope);
        let answered = self.send_until_answered(usage, items, &mut held).await;
        held.give_back(self.scope);
        answered
    }

    async fn send_until_answered(&mut self, usage: &mut Vec<NewUsage>, items: &mut ProviderItems, held: &mut Held) -> Result<Answer, Stop> {
        let journal = &self.scope.journal;
        let mut sent = 0;
        loop {
            sent += 1;
            if !journal.has_urgent_changes() && self.scope.running.is_canceled() {
                // Nothing was sent, so nothing is billed.
                return Err(Stop::Canceled(String::new()));
            }
            if self.scope.is_counted() {
                // Boxed: few requests need it.
                Box::pin(self.departing(self.scope.turn_id).reserve(held)).await?;
            }
            if items.granted.stage_starts(self.scope) {
                journal.commit(CommitPoint::Granted).await?;
            }
            let sending = Sending::default();
            let opened = match journal.commit_while(self.in_time(self.open(&sending, held.limited(&self.request)))).await? {
                Ok(opened) => opened,
                Err(stop) => {
                    // A request that waits at the gate was not sent.
                    if sending.is_started() {
                        items.granted.note_sent();
                        self.record(usage, self.settle(held, &sending, &Settlement::Aborted { received: "" }), held);
                    }
                    return Err(stop);
                }
            };
            if opened.as_ref().err().is_none_or(ModelError::may_have_acted) {
                items.granted.note_sent();
            }
            let mut received = Received { text: String::new(), items: &mut *items, searches: BTreeSet::new() };
            let error = match opened {
                Ok((stream, _admission)) => match self.receive(stream, &sending, &mut received).await {
                    Ok(Ok(answer)) => {
                        sending.complete(&answer, Some(&self.scope.trace));
                        self.record(usage, self.settle(held, &sending, &answered(&answer)), held);
                        return Ok(answer);
                    }
                    Ok(Err(error)) => error,
                    Err(stop) => {
                        self.record(usage, self.settle(held, &sending, &Settlement::Aborted { received: &received.text }), held);
                        return Err(match stop {
                            Stop::Deadline => {
                                Box::pin(self.abandon(received)).await?;
                                stop
                            }
                            Stop::Canceled(_) => Stop::Canceled(received.text),
                            stop => stop,
                        });
                    }
                },
                Err(error) => error,
            };
            self.record(usage, self.failed(held, &sending, &error, &received.text), held);
            if sent >= MAX_SENDS || !error.is_retryable() {
                return Err(Stop::Failed(self.turn_error(&error)));
            }
            Box::pin(self.abandon(received)).await?;
            self.pause(sent, &error).await?;
            items.granted.forget_items();
            if items.granted.give_up_sent(self.scope) {
                self.request.approvals = items.granted.answers();
            }
            items.granted.put_results(&mut self.request.messages);
            self.scope.models.metrics.tried_again(Retried::Model, 1);
        }
    }

    /// Sends once, for a text that no client receives (a summary). `None` when no text came.
    pub(super) async fn send_unpublished(&self, usage: &mut Vec<NewUsage>) -> Result<Option<String>, Stop> {
        if self.scope.running.is_canceled() {
            return Err(Stop::Canceled(String::new()));
        }
        // What commit A has reserved is for the turn's own request.
        let mut held = Held::default();
        let written = self.send_once(usage, &mut held).await;
        held.end(self.scope);
        written
    }

    async fn send_once(&self, usage: &mut Vec<NewUsage>, held: &mut Held) -> Result<Option<String>, Stop> {
        if self.scope.is_counted() {
            // Beside the reservation of the turn's own request, so under an id of its own.
            self.departing(self.scope.clock.new_id()).reserve(held).await?;
        }
        let (mut received, sending) = (String::new(), Sending::default());
        let request = held.limited(&self.request);
        let receiving = async {
            let (mut stream, _admission) = self.open(&sending, request).await?;
            while let Some(delta) = stream.next().await {
                match delta? {
                    Delta::Text(text) => received.push_str(&text),
                    Delta::ItemStarted(_) | Delta::ItemFinished(_) => {}
                    Delta::Done(answer) => return Ok(*answer),
                }
            }
            Err(incomplete())
        };
        match self.in_time(receiving).await {
            Ok(Ok(answer)) => {
                sending.complete(&answer, Some(&self.scope.trace));
                self.record(usage, self.settle(held, &sending, &answered(&answer)), held);
                Ok(Some(answer.text))
            }
            Ok(Err(error)) => {
                self.record(usage, self.failed(held, &sending, &error, &received), held);
                Ok(None)
            }
            Err(stop) => {
                if sending.is_started() {
                    self.record(usage, self.settle(held, &sending, &Settlement::Aborted { received: &received }), held);
                }
                Err(stop)
            }
        }
    }

    const fn departing(&self, reservation_id: Uuid) -> Departing<'_> {
        Departing { scope: self.scope, request: &self.request, deadline: self.deadline, reservation_id }
    }

    /// Passes the model gate and sends once. The admission is held until the answer is complete.
    async fn open(&self, sending: &Sending, request: ModelRequest) -> Result<(AnswerStream, Admission<'_>), ModelError> {
        let admission = self.scope.models.gate.admit().await;
        self.scope.require_lease().await;
        crash::point("before_request");
        sending.start(&self.scope.clock);
        let stream = admission.send(request).await?;
        sending.identify(stream.request_id());
        crash::point("request_out");
        Ok((stream, admission))
    }

    /// Publishes the answer as it arrives. Calls that the provider runs itself are durable before clients learn of them, so those commits
    /// are never interrupted.
    async fn receive(
        &self,
        mut stream: AnswerStream,
        sending: &Sending,
        received: &mut Received<'_>,
    ) -> Result<Result<Answer, ModelError>, Stop> {
        let journal = &self.scope.journal;
        let mut canceled = pin!(self.scope.running.canceled());
        let mut late = pin!(tokio::time::sleep_until(self.deadline.instant().into()));
        loop {
            let delta = tokio::select! {
                biased;
                () = &mut canceled => return Err(Stop::Canceled(String::new())),
                delta = stream.next() => delta,
                () = &mut late => return Err(Stop::Deadline),
            };
            let step = self.step + received.items.abandoned_steps();
            match delta {
                Some(Ok(Delta::Text(content))) => {
                    received.text.push_str(&content);
                    journal.publish_token(&AssistantToken { content, step });
                    crash::point("mid_stream");
                }
                Some(Ok(Delta::ItemStarted(item))) => {
                    received.note(&item, sending);
                    // Items beyond the limit are not announced; they are still recorded with the answer.
                    if received.items.len() < self.scope.limits.calls_per_step
                        && received.items.start(self.scope, step, self.context, &item)
                    {
                        journal.commit(CommitPoint::ProviderItem).await?;
                    }
                }
                Some(Ok(Delta::ItemFinished(item))) => {
                    received.note(&item, sending);
                    if received.items.finish(self.scope, &item) {
                        journal.commit(CommitPoint::ProviderItem).await?;
                    }
                }
                Some(Ok(Delta::Done(answer))) if received.items.clash_with(&answer) => {
                    let message = "a call has the output index of a call that the provider ran itself";
                    return Ok(Err(ModelError::new(ModelFault::Protocol, message)));
                }
                Some(Ok(Delta::Done(answer))) => return Ok(Ok(*answer)),
                Some(Err(error)) => return Ok(Err(error)),
                None => return Ok(Err(incomplete())),
            }
        }
    }

    /// Bounded by the deadline and by a cancel of the turn.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            () = self.scope.running.canceled() => Err(Stop::Canceled(String::new())),
            done = work => Ok(done),
            () = tokio::time::sleep_until(self.deadline.instant().into()) => Err(Stop::Deadline),
        }
    }

    /// Abandons an answer. Published text is reset before the next send. Calls that the provider ran keep their rows, in a step of their own.
    async fn abandon(&self, received: Received<'_>) -> Result<(), Stop> {
        let Received { text, items, .. } = received;
        if text.is_empty() && items.is_empty() {
            return Ok(());
        }
        let (journal, step) = (&self.scope.journal, self.step + items.abandoned_steps());
        if !items.is_empty() {
            items.abort(self.scope, CallStatus::Failed);
            items.abandon_step();
            journal.stage(Change::AbandonedStep(step));
        }
        if !text.is_empty() {
            journal.discard_text().await;
            journal.stage_event(EventType::AssistantReset, &AssistantReset { step, turn_id: self.scope.turn_id });
        }
        journal.commit(CommitPoint::AbandonedAnswer).await?;
        Ok(())
    }

    async fn pause(&self, sent: u32, error: &ModelError) -> Result<(), Stop> {
        match pause_before_retry(sent, error, timer::left(self.deadline)) {
            RetryPause::Wait(pause) => self.in_time(tokio::time::sleep(pause)).await,
            RetryPause::TooLong(pause) => {
                let mut failure = self.turn_error(error);
                failure.retry_after_ms = u64::try_from(pause.as_millis()).ok();
                Err(Stop::Failed(failure))
            }
        }
    }

    /// Stages a usage row as soon as it is known, and hands it to the turn's total. A request that was not sent keeps what is held for it.
    fn record(&self, usage: &mut Vec<NewUsage>, row: Option<NewUsage>, held: &mut Held) {
        if let Some(mut row) = row {
            held.settle(self.scope, &mut row);
            self.scope.journal.stage(row.clone());
            usage.push(row);
        }
    }

    fn turn_error(&self, error: &ModelError) -> TurnError {
        turn_error(error, self.scope.models.gate.chat_provider().name(), &self.scope.error_texts)
    }

    fn failed(&self, held: &Held, sending: &Sending, error: &ModelError, received: &str) -> Option<NewUsage> {
        tracing::warn!(turn_id = %self.scope.turn_id, fault = ?error.fault, error = %error.message, "the model gave no answer");
        self.settle(held, sending, &Settlement::Failed { error, received })
    }

    /// The usage row of a request that may have been sent by an earlier process, with the web searches that the provider had begun. When that was is not
    /// known.
    pub(crate) fn lost(&self, searches: u32) -> Option<NewUsage> {
        let sending = Sending::default();
        sending.searched(searches);
        self.meter().usage(&sending, &Settlement::Aborted { received: "" })
    }

    fn settle(&self, held: &Held, sending: &Sending, settlement: &Settlement<'_>) -> Option<NewUsage> {
        let (trace, request) = (&self.scope.trace, &self.request);
        let instructions = trace.content(|content| vec![content.part(&request.system)].into());
        let input = instructions.zip(trace.content(|content| content.messages(&request.messages)));
        let meter = self.meter();
        let sent = held.prompt().map_or(meter.sent, Sent::Tokens);
        Meter { input, sent, ..meter }.settle(sending, settlement)
    }

    fn meter(&self) -> Meter<'_> {
        let (scope, request) = (self.scope, &self.request);
        let provider = scope.models.gate.chat_provider();
        Meter {
            provider: provider.name(),
            model: request.model.as_deref().unwrap_or_else(|| provider.default_model()),
            operation: "chat",
            sent: Sent::Request(provider, request),
            call_id: None,
            tool_name: None,
            key_id: scope.caller.key_id,
            prices: &scope.setup.prices,
            clock: &scope.clock,
            metrics: &scope.models.metrics,
            conditions: scope.models.gate.conditions(),
            trace: Some(&scope.trace),
            input: None,
        }
    }
}

fn answered(answer: &Answer) -> Settlement<'_> {
    Settlement::Answered { usage: answer.usage, text: &answer.text, model: answer.model.as_deref() }
}

fn incomplete() -> ModelError {
    ModelError::new(ModelFault::Incomplete, "the stream ended without its terminal event")
}
