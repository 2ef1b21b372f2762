//! Whether a message or a direct call may start a turn: the place in this process, and the limits of users and keys.

use std::sync::Arc;

use werkruf_contract::Uuid;

use crate::channel::OverLimit;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::rate_limit::{Rate, RateRoom, RateSubject};
use crate::request::{Caller, InboundMessage, Refusal};

/// How often a person is told that they wrote too many messages.
const ONE_NOTICE: Rate = Rate::of_turns(1);

/// The channel of OpenAI clients.
const OPENAI: &str = "openai";

/// Whose turns a new turn counts among.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnCount {
    pub(crate) user: bool,
    pub(crate) key: bool,
}

impl TurnCount {
    /// A direct call is limited as a request of its user; only the key counts it as a turn.
    pub(crate) const DIRECT_CALL: Self = Self { user: false, key: true };

    /// A message that starts a turn. An OpenAI client may serve many people with one key, so there the key counts; the operator's
    /// credential is no key.
    pub(crate) fn of(caller: &Caller, channel: &str) -> Self {
        Self { user: channel != OPENAI || (caller.key_id.is_none() && !caller.admin), key: true }
    }
}

/// What a message counted as. Dropped without [`Self::keep`] it gives everything back: a copy, and a message that was not stored, cost nothing.
pub(crate) struct CountedTurn {
    engine: Arc<Engine>,
    tenant_id: Uuid,
    turns: Vec<(RateSubject, Rate)>,
    /// The person who is told that they wrote too many messages.
    told: Option<RateSubject>,
}

impl CountedTurn {
    const fn nothing(engine: Arc<Engine>, tenant_id: Uuid) -> Self {
        Self { engine, tenant_id, turns: Vec::new(), told: None }
    }

    /// The turn is stored.
    pub(crate) fn keep(mut self) {
        self.turns.clear();
        self.told = None;
    }

    /// Counts one turn; the error is how many milliseconds to wait.
    async fn take(&mut self, caller: &Caller, counted: TurnCount) -> Result<(), u64> {
        let engine = Arc::clone(&self.engine);
        for (subject, rate) in engine.counted(caller, counted) {
            engine.turn_rates.take(self.tenant_id, subject.clone(), rate).await?;
            self.turns.push((subject, rate));
        }
        Ok(())
    }

    /// Counts a notice that the person wrote too many messages; false if they had one lately.
    async fn take_notice(&mut self, user_id: &str) -> bool {
        let subject = RateSubject::User(user_id.to_owned());
        let taken = self.engine.told.take(self.tenant_id, subject.clone(), ONE_NOTICE).await.is_ok();
        self.told = taken.then_some(subject);
        taken
    }
}

impl Drop for CountedTurn {
    fn drop(&mut self) {
        for (subject, rate) in self.turns.drain(..) {
            self.engine.turn_rates.give_back(self.tenant_id, subject, rate);
        }
        if let Some(subject) = self.told.take() {
            self.engine.told.give_back(self.tenant_id, subject, ONE_NOTICE);
        }
    }
}

impl Engine {
    /// Whether the process has capacity, and whether the sender of this message may start another turn. A message that only brings
    /// the awaited results of the client's tools continues an earlier turn, and is refused if another message continued it first. A channel
    /// with addresses cannot refuse a message: above the limit its turn is stored and ends at once.
    pub(crate) async fn admit_message(self: &Arc<Self>, message: &mut InboundMessage) -> Result<CountedTurn, Refusal> {
        let counted = TurnCount::of(&message.caller, &message.channel);
        let principal = Arc::clone(&message.caller.principal);
        let mut turn = CountedTurn::nothing(Arc::clone(self), principal.tenant_id);
        let only_results = message.message.is_empty() && message.parts.is_empty() && !message.results.is_empty();
        // Where nothing is counted and the continued turn is known, the answer would change nothing.
        if only_results && (message.after.is_none() || self.is_limited(&message.caller, counted)) {
            let call_ids = message.results.iter().map(|result| result.call_id.clone()).collect();
            let awaiting = self.store.clients.conversation_awaiting(principal.tenant_id, principal.user_id.clone(), call_ids).await?;
            if let Some(found) = awaiting.filter(|found| Some(found.conversation_id) == message.conversation_id) {
                message.after.get_or_insert(found.turn_id);
                return self.check_place().map(|()| turn);
            }
        }
        self.check_place()?;
        match (turn.take(&message.caller, counted).await, &mut message.inbound) {
            (Ok(()), _) => {}
            (Err(retry_after_ms), None) => return Err(Refusal::TooMany { retry_after_ms }),
            (Err(retry_after_ms), Some(channel)) => {
                let silent = !turn.take_notice(&principal.user_id).await;
                channel.inbound.over_limit = Some(OverLimit { retry_after_ms, silent, code: None });
            }
        }
        Ok(turn)
    }

    /// Whether the process has capacity, and whether this caller may make another direct call.
    pub(crate) async fn admit_call(self: &Arc<Self>, caller: &Caller) -> Result<(), Refusal> {
        self.check_place()?;
        let mut turn = CountedTurn::nothing(Arc::clone(self), caller.principal.tenant_id);
        turn.take(caller, TurnCount::DIRECT_CALL).await.map_err(|retry_after_ms| Refusal::TooMany { retry_after_ms })?;
        turn.keep();
        Ok(())
    }

    /// Whether the limits let this caller start a turn on a channel now, without counting one.
    pub(crate) fn check_turn_limits(&self, caller: &Caller, channel: &str) -> Result<(), Refusal> {
        let mut counted = self.counted(caller, TurnCount::of(caller, channel));
        counted
            .try_for_each(|(subject, rate)| self.turn_rates.check(caller.principal.tenant_id, subject, rate))
            .map_err(|retry_after_ms| Refusal::TooMany { retry_after_ms })
    }

    /// The tightest limit of this caller's turns on a channel; `None` where none is counted.
    pub(crate) fn turn_room(&self, caller: &Caller, channel: &str) -> Option<RateRoom> {
        let room = |(subject, rate)| self.turn_rates.room(caller.principal.tenant_id, subject, rate);
        self.counted(caller, TurnCount::of(caller, channel)).map(room).min_by_key(|room| room.remaining)
    }

    /// Whether a turn of this caller counts towards a limit.
    pub(crate) fn is_limited(&self, caller: &Caller, counted: TurnCount) -> bool {
        self.counted(caller, counted).next().is_some()
    }

    /// The subjects whose turns are limited. The user first: what one user is refused must not use up the key that users share.
    fn counted(&self, caller: &Caller, counted: TurnCount) -> impl Iterator<Item = (RateSubject, Rate)> + use<> {
        let Limits { turns_per_minute_user: of_user, turns_per_minute_key: of_key, .. } = *self.limits;
        let user = (counted.user && of_user > 0).then(|| RateSubject::User(caller.principal.user_id.clone()));
        let key = caller.key_id.filter(|_| counted.key && of_key > 0).map(RateSubject::Key);
        user.map(|user| (user, Rate::of_turns(of_user))).into_iter().chain(key.map(|key| (key, Rate::of_turns(of_key))))
    }
}
