//! The corridor: every tool call of every door walks it, top to bottom.
//!
//! `find → parse and repair → validate → permit → dedupe/join → approve` ([`Walk::prepare`]), `record running` (the
//! caller's commit B), `attempt → record outcome → shape for the model` ([`Walk::finish`]). The last outcomes are handed
//! back unwritten, so that the caller can let them travel with what comes next.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use werkruf_contract::{CallKind, CallStatus, Deadline, Failure, Principal, Scope, State, ToolContext, Uuid, merge_concurrent};
use werkruf_store::{CallRow, StoreError, crash};

use crate::approve::{Await, Parked};
use crate::arguments;
use crate::attempt::{Run, attempt, canceled};
use crate::boarding::Boarding;
use crate::dedupe::{Joined, Lead};
use crate::ground::{Draft, Ground};
use crate::outcome::Ended;
use crate::record::{Seat, conclude, new_row, object, record, shown, start};
use crate::registry::Entry;
use crate::timer;

/// A call as it arrives, whoever asks for it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) job_id: Uuid,
    pub(crate) kind: CallKind,
    pub(crate) item_id: Option<String>,
    pub(crate) call_id: Option<String>,
    pub(crate) response_id: Option<String>,
    pub(crate) output_index: u32,
    pub(crate) name: String,
    pub(crate) arguments: Arguments,
    /// The id under which the history knows the call; `None` where no message will hold its result.
    pub(crate) history_id: Option<String>,
    pub(crate) retry_of: Option<Uuid>,
    /// A key handed down by the call that is tried again.
    pub(crate) idempotency_key: Option<String>,
    /// Refused before it is looked at: too many calls, the same one too often.
    pub(crate) refused: Option<Failure>,
}

/// Where arguments come from.
#[derive(Debug, Clone)]
pub(crate) enum Arguments {
    /// A model's text.
    Raw(String),
    /// A program's JSON.
    Given(Value),
}

/// A call with its fate decided, its row ready to be written.
pub(crate) struct Prepared {
    pub(crate) row: CallRow,
    pub(crate) seat: Option<Seat>,
    pub(crate) plan: Plan,
}

pub(crate) enum Plan {
    /// Over before it began.
    Ended(Box<Ended>),
    /// Another call's outcome will be its own.
    Join(Joined),
    /// A person must say a word first.
    Await(Box<Await>),
    Run(Box<Run>, Lead),
}

/// A call that is over.
pub(crate) struct Walked {
    pub(crate) row: CallRow,
    pub(crate) ended: Arc<Ended>,
    pub(crate) seat: Option<Seat>,
}

/// What a batch came to: the last outcomes are in the draft, not yet durable.
pub(crate) struct Finished {
    pub(crate) walked: Vec<Walked>,
    pub(crate) parked: Vec<Parked>,
    pub(crate) draft: Draft,
    /// The conversation's state behind the batch, where a call changed it.
    pub(crate) state: Option<State>,
}

/// Why preparing stopped: the call is refused, or the store failed.
pub(crate) enum Halt {
    Refused(Box<Failure>),
    Store(StoreError),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One batch of calls on its way through.
pub(crate) struct Walk<'a> {
    pub(crate) ground: &'a Arc<Ground>,
    pub(crate) step: u32,
    pub(crate) state: &'a Arc<State>,
    /// Correlation for every call of the batch; each gets its own `invocation_id`.
    pub(crate) context: &'a ToolContext,
    /// The turn's calls so far: a read that only lives as long as the turn needs no other memory.
    pub(crate) earlier: &'a [Walked],
}

impl Walk<'_> {
    /// Decides each call's fate. Rights are read now, not when the turn began.
    pub(crate) async fn prepare(&self, asked: Vec<Asked>) -> Result<Vec<Prepared>, StoreError> {
        let ground = self.ground;
        let user_id = ground.caller.principal.user_id.clone();
        let principal = ground.people.principal(ground.fence.tenant_id, user_id).await?;
        let mut running = 0;
        let mut prepared = Vec::with_capacity(asked.len());
        for asked in asked {
            let mut row = new_row(ground, self.step, self.context, &asked);
            let plan = match self.decide(&asked, &mut row, principal.as_ref()).await {
                Ok(Plan::Join(joined)) if waits(&prepared, joined.leader) => {
                    row.dedupe_of = Some(joined.leader);
                    Plan::Await(Box::new(Await::beside()))
                }
                Ok(plan) => plan,
                Err(Halt::Refused(failure)) => Plan::Ended(Box::new(Ended::refused(*failure, ground.clock.now()).in_words(&ground.words))),
                Err(Halt::Store(error)) => return Err(error),
            };
            match &plan {
                Plan::Ended(ended) => conclude(&mut row, ended),
                Plan::Join(joined) => row.dedupe_of = Some(joined.leader),
                Plan::Run(..) if running < ground.limits.parallel => {
                    running += 1;
                    row.status = CallStatus::Running;
                    row.attempt = 1;
                    row.started_at = Some(row.created_at);
                }
                Plan::Run(..) | Plan::Await(_) => {}
            }
            let seat = asked.history_id.map(|id| Seat { id, taken: false });
            prepared.push(Prepared { row, seat, plan });
        }
        Ok(prepared)
    }

    /// The stages before anything is written.
    async fn decide(&self, asked: &Asked, row: &mut CallRow, principal: Option<&Arc<Principal>>) -> Result<Plan, Halt> {
        if let Some(failure) = asked.refused.clone() {
            return Err(failure.into());
        }
        let entry = self.find(&asked.name)?;
        row.effect = entry.spec().effect;
        let parsed = match &asked.arguments {
            Arguments::Raw(raw) => arguments::parse(raw, entry)?,
            Arguments::Given(value) => arguments::check(value.clone(), Vec::new(), entry)?,
        };
        if !parsed.repairs.is_empty() {
            row.repairs = serde_json::to_string(&parsed.repairs).ok();
        }
        row.request = Some(parsed.args.to_string());
        self.ground.debug("llm_tool_call_arguments", || {
            object(json!({"tool": asked.name, "job_id": row.id, "raw": row.raw_arguments, "arguments": parsed.args, "repairs": parsed.repairs}))
        });
        let grant = self.permit(entry, principal, row)?;
        let lead = match self.dedupe(entry, &parsed.args, row, principal).await? {
            Boarding::Over(ended) => return Ok(Plan::Ended(ended)),
            Boarding::Join(joined) => return Ok(Plan::Join(joined)),
            Boarding::Lead(lead) => lead,
        };
        let key = asked.idempotency_key.clone().unwrap_or_else(|| row.id.to_string());
        row.idempotency_key = Some(key.clone());
        if let Some(roles) = self.approvers(entry) {
            let wish = self.wish(row, roles);
            return Ok(Plan::Await(Box::new(Await { approval_id: Some(wish.id), wish: Some(wish), announced: false, lead: Some(lead) })));
        }
        let context = self.call_context(row.id, &key);
        let deadline = self.deadline();
        let run = Run {
            entry: Arc::clone(entry),
            args: parsed.args,
            grant,
            principal: Arc::clone(principal.unwrap_or(&self.ground.caller.principal)),
            job_id: row.id,
            idempotency_key: key,
            context: Arc::new(context),
            state: Arc::clone(self.state),
            cancel: self.ground.live.register(row.id),
            deadline,
            attempt: 1,
        };
        Ok(Plan::Run(Box::new(run), lead))
    }

    pub(crate) fn find(&self, name: &str) -> Result<&Arc<Entry>, Failure> {
        self.ground.setup.registry.find(name).ok_or_else(|| {
            Failure::validation("unknown_tool", format!("There is no tool named \"{}\". Use only the tools you were given.", shown(name)))
        })
    }

    /// Rights over all roles, as they are now.
    pub(crate) fn permit(&self, entry: &Entry, principal: Option<&Arc<Principal>>, row: &mut CallRow) -> Result<Scope, Failure> {
        let spec = entry.spec();
        let profile = self.context.safety_mode.as_deref().and_then(|mode| self.ground.setup.safety.get(mode));
        // A mode that is no longer configured allows nothing.
        let denied = match profile {
            Some(profile) => profile.tools_denied.iter().any(|name| *name == spec.name),
            None => self.context.safety_mode.is_some(),
        };
        let granted = match (&spec.permission, principal) {
            (_, None) => None,
            (None, Some(_)) => Some(Scope::Own),
            (Some(need), Some(principal)) => principal.grant(need),
        };
        let granted = granted.filter(|_| !denied);
        let needs = spec.permission.as_ref().map(ToString::to_string);
        row.permission =
            Some(json!({"needs": needs, "granted": granted.is_some(), "scope": granted.filter(|_| needs.is_some())}).to_string());
        granted.ok_or_else(|| {
            let failure = Failure::fatal("permission_denied", "").nothing_happened();
            if denied { failure.because("switched off by the safety mode") } else { failure }
        })
    }

    pub(crate) fn deadline(&self) -> Deadline {
        let turn = self.ground.deadline;
        self.context.timeouts_ms.map_or(turn, |ms| turn.earlier(timer::after(std::time::Duration::from_millis(ms.get()))))
    }

    fn call_context(&self, job_id: Uuid, key: &str) -> ToolContext {
        let mut context = self.context.clone();
        context.invocation_id = job_id;
        context.now_iso = self.ground.clock.now();
        context.idempotency_key = Some(key.to_owned());
        context
    }

    /// Runs what may run, at most so many at once, and records outcomes as they come. Siblings never wait for one
    /// another's record, and nobody waits for a person's word.
    pub(crate) async fn finish(&self, prepared: Vec<Prepared>) -> Result<Finished, StoreError> {
        let ground = self.ground;
        let mut waiting: VecDeque<(usize, Box<Run>, Lead)> = VecDeque::new();
        let mut flying: FuturesUnordered<BoxFuture<'_, Landing>> = FuturesUnordered::new();
        let mut rows = Vec::with_capacity(prepared.len());
        let mut landed: Vec<(usize, Arc<Ended>)> = Vec::new();
        let mut parked = Vec::new();
        let mut state = None;
        for call in prepared {
            let at = rows.len();
            match call.plan {
                Plan::Ended(ended) => landed.push((at, Arc::from(ended))),
                Plan::Join(joined) => flying.push(self.join(at, call.row.id, joined).boxed()),
                Plan::Await(awaited) => {
                    parked.push(self.stand_still(call.row, call.seat, *awaited));
                    continue;
                }
                Plan::Run(run, lead) if call.row.status == CallStatus::Running => flying.push(self.fly(at, run, lead).boxed()),
                Plan::Run(run, lead) => waiting.push_back((at, run, lead)),
            }
            rows.push((call.row, call.seat));
        }
        let mut outcomes: Vec<Option<Arc<Ended>>> = vec![None; rows.len()];
        let mut flights = rows.iter().filter(|(row, _)| row.status == CallStatus::Running).count();
        loop {
            // One that joined waits for its leader, which may still have to begin.
            let may_start = !waiting.is_empty() && flights < ground.limits.parallel;
            if landed.is_empty()
                && !may_start
                && let Some((at, ended)) = flying.next().await
            {
                landed.push((at, ended?));
            }
            while let Some(Some((at, ended))) = flying.next().now_or_never() {
                landed.push((at, ended?));
            }
            let mut draft = ground.draft();
            for (at, ended) in landed.drain(..) {
                let (row, seat) = &rows[at];
                flights -= usize::from(row.status == CallStatus::Running);
                self.note(&mut draft, &mut state, row, seat.as_ref(), &ended);
                outcomes[at] = Some(ended);
            }
            let mut starting = Vec::new();
            while flights < ground.limits.parallel
                && let Some((at, run, lead)) = waiting.pop_front()
            {
                if run.cancel.is_raised() {
                    let ended = Arc::new(self.never_sent());
                    lead.land(&ended);
                    record(ground, &mut draft, &rows[at].0, rows[at].1.as_ref(), &ended);
                    outcomes[at] = Some(ended);
                    continue;
                }
                flights += 1;
                start(ground, &mut draft, &mut rows[at].0);
                starting.push((at, run, lead));
            }
            if outcomes.iter().all(Option::is_some) {
                // Exactly as long as needed: the turn keeps it, and a row is large.
                let mut walked = Vec::with_capacity(rows.len());
                walked.extend(rows.into_iter().zip(outcomes).filter_map(|((row, seat), ended)| Some(Walked { row, ended: ended?, seat })));
                return Ok(Finished { walked, parked, draft, state });
            }
            ground.commit(draft).await?;
            crash::point("some_done");
            for (at, run, lead) in starting {
                flying.push(self.fly(at, run, lead).boxed());
            }
        }
    }

    /// An outcome, and what it changes of a state that others of the batch may have changed before it.
    fn note(&self, draft: &mut Draft, state: &mut Option<State>, row: &CallRow, seat: Option<&Seat>, ended: &Ended) {
        let known = draft.write.state_patches.len();
        record(self.ground, draft, row, seat, ended);
        for patch in &mut draft.write.state_patches[known..] {
            merge_concurrent(state.get_or_insert_with(|| (**self.state).clone()), self.state, patch);
        }
    }

    /// The same call from elsewhere that joined in the meantime is told that this one waits.
    fn stand_still(&self, row: CallRow, seat: Option<Seat>, awaited: Await) -> Parked {
        if let Some(lead) = awaited.lead {
            let refused = Ended::refused(approval_pending(row.id), self.ground.clock.now()).in_words(&self.ground.words);
            lead.land(&Arc::new(refused));
        }
        Parked { row, seat, approval_id: awaited.approval_id, announced: awaited.announced }
    }

    async fn fly(&self, at: usize, run: Box<Run>, lead: Lead) -> Landing {
        let ground = self.ground;
        ground.debug("tool_pipeline_start", || object(json!({"tool": run.entry.spec().name, "job_id": run.job_id, "arguments": run.args})));
        let ended = attempt(ground, &run).await.map(|ended| Arc::new(ended.in_words(&ground.words)));
        ground.live.forget(run.job_id);
        if let Ok(ended) = &ended {
            lead.land(ended);
        }
        (at, ended)
    }

    async fn join(&self, at: usize, job_id: Uuid, joined: Joined) -> Landing {
        let ground = self.ground;
        let cancel = ground.live.register(job_id);
        let ended = tokio::select! {
            biased;
            landed = self.landed(joined) => landed,
            () = cancel.raised() => None,
        };
        ground.live.forget(job_id);
        (at, Ok(Arc::new(ended.unwrap_or_else(|| self.never_sent()))))
    }

    /// The leader's outcome; `None` when it went away without one.
    pub(crate) async fn landed(&self, mut joined: Joined) -> Option<Ended> {
        let Some(lead) = joined.elsewhere.take() else {
            return joined.landed().await.map(|ended| ended.shared(self.ground.clock.now()));
        };
        let ended = self.landed_elsewhere(joined.leader, &lead).await?;
        lead.land(&Arc::new(ended.shared(self.ground.clock.now())));
        Some(ended)
    }

    /// Canceled before anything left.
    pub(crate) fn never_sent(&self) -> Ended {
        let mut ended = Ended::refused(canceled().nothing_happened(), self.ground.clock.now());
        ended.status = CallStatus::Canceled;
        ended.in_words(&self.ground.words)
    }
}

/// Whether this call of the batch waits for a person's word.
pub(crate) fn waits(batch: &[Prepared], job_id: Uuid) -> bool {
    batch.iter().any(|call| call.row.id == job_id && matches!(call.plan, Plan::Await(_)))
}

/// The very same call waits for a word already; a second one would be a second time.
pub(crate) fn approval_pending(earlier: Uuid) -> Failure {
    Failure::fatal("approval_pending", "").nothing_happened().with_details(object(json!({"earlier_job_id": earlier})))
}

/// A call's place in the batch, and how it ended.
type Landing = (usize, Result<Arc<Ended>, StoreError>);
