//! The tables of the seeded runs are a model of the store. This test sends the same random operations to the model and to the
//! SQLite store and compares every result. A model that differs would test the engine on a database that does not exist.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::SignedDuration;
use werkruf_contract::{ApprovalStatus, EventType, TurnStatus, Uuid};
use werkruf_store::{
    ApprovalFilter, Approvals, CallFilter, CallRow, CallStart, ConversationRef, Decision, Fence, InboxEntry, NewPartial, OpenTurn, Opened,
    Order, Page, ReadLimit, Records, Replacement, RequestsOf, SqliteStore, StoreError, Streams, TurnCancellation, TurnChange, TurnKind,
    TurnWrite, Turns, UsageRows,
};

use crate::mutant::Mutant;
use crate::process::Process;
use crate::store::Store;
use crate::store_comparison_rows::{end, event, patch, provider_update, retry};
use crate::world::World;

const SEEDS: u64 = 16;
const STEPS: u64 = 150;

/// A turn and its newest fence.
#[derive(Clone)]
struct KnownTurn {
    turn_id: Uuid,
    conversation_id: Option<Uuid>,
    fence: Option<Fence>,
    calls: Vec<Uuid>,
}

pub struct Comparison {
    pub world: Arc<World>,
    model: Store,
    real: Option<Arc<SqliteStore>>,
    folder: tempfile::TempDir,
    conversations: Vec<Uuid>,
    turns: Vec<KnownTurn>,
    approvals: Vec<Uuid>,
    pub step: u64,
}

/// Errors are equal if the engine treats them equally; their texts differ.
fn comparable<T: Debug>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(done) => format!("{done:?}"),
        Err(StoreError::Moved { what, .. }) => format!("moved {what}"),
        Err(StoreError::Broken(_)) => "broken".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Calls a method on both stores. The arguments are evaluated twice, so they must not draw random values.
macro_rules! both {
    ($pair:ident, $method:ident ( $($argument:expr),* )) => {{
        let model = $pair.model.$method($($argument.clone()),*).await;
        let real = $pair.real().$method($($argument.clone()),*).await;
        assert_eq!(comparable(&model), comparable(&real), "step {}: {}", $pair.step, stringify!($method));
        real
    }};
}

impl Comparison {
    fn new(seed: u64) -> Self {
        let world = World::new(seed, Mutant::None);
        world.faults.stop();
        world.tables.lock().unwrap().shared = false;
        let model = Store { world: Arc::clone(&world), process: Process::new(1) };
        // Durability is not compared, so the file is in memory if possible.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut comparison =
            Self { world, model, real: None, folder, conversations: Vec::new(), turns: Vec::new(), approvals: Vec::new(), step: 0 };
        comparison.open();
        comparison
    }

    fn real(&self) -> &SqliteStore {
        self.real.as_ref().unwrap()
    }

    /// Opens the file as another process.
    fn open(&mut self) {
        self.real = None;
        self.real = Some(SqliteStore::open(self.folder.path().join("w.db"), &self.world.clock, &[]).unwrap());
        self.world.tables.lock().unwrap().void_leases();
    }

    pub fn tenant(&self) -> Uuid {
        self.world.principal.tenant_id
    }

    pub fn below(&self, n: u64) -> u64 {
        self.world.rng.below(n)
    }

    fn owner(&self) -> String {
        format!("owner-{}", self.below(2))
    }

    pub fn id(&self) -> Uuid {
        self.world.clock.new_id()
    }

    async fn run_step(&mut self) {
        self.step += 1;
        match self.below(36) {
            0..=5 => self.open_turn().await,
            6..=7 => self.start_turn().await,
            8..=23 => self.write().await,
            24..=25 => self.take_over().await,
            26 => {
                if let Some(fence) = self.turn().and_then(|turn| turn.fence) {
                    let _ = both!(self, release(fence));
                }
            }
            27 => {
                let (tenant_id, now) = (self.tenant(), self.world.clock.now());
                if let Some(turn) = self.turn() {
                    let _ = both!(self, request_cancel(tenant_id, turn.turn_id, now));
                }
            }
            28 => {
                let (tenant_id, now) = (self.tenant(), self.world.clock.now());
                if let Some(id) = self.world.rng.pick(&self.conversations).copied() {
                    let patch = patch(self.below(3));
                    let _ = both!(self, patch_state(tenant_id, id, patch, 1_000_000, now));
                }
            }
            29 => {
                self.open();
                self.compare_all_turns().await;
            }
            30..=31 => self.cancel_waiting().await,
            32..=33 => self.decide().await,
            _ => self.save_partials().await,
        }
        self.compare_reads().await;
    }

    fn turn(&self) -> Option<KnownTurn> {
        // One of the newest, so that turns make progress.
        let newest = self.turns.len().saturating_sub(3);
        self.world.rng.pick(&self.turns[newest..]).cloned()
    }

    fn update(&mut self, turn_id: Uuid, change: impl FnOnce(&mut KnownTurn)) {
        if let Some(known) = self.turns.iter_mut().find(|known| known.turn_id == turn_id) {
            change(known);
        }
    }

    async fn open_turn(&mut self) {
        let turn_id = self.id();
        let existing = self.world.rng.pick(&self.conversations).copied();
        let conversation = match (self.below(5), existing) {
            (0, _) => ConversationRef::None,
            (1..=3, Some(id)) => ConversationRef::Existing { id, any_user: self.below(2) == 0 },
            _ => ConversationRef::New { id: self.id(), channel: "web".to_owned(), title: "t".to_owned() },
        };
        let conversation_id = match &conversation {
            ConversationRef::New { id, .. } | ConversationRef::Existing { id, .. } => Some(*id),
            ConversationRef::None => None,
        };
        let direct = conversation_id.is_none() || self.below(4) == 0;
        let now = self.world.clock.now();
        let inbox = (self.below(3) == 0).then(|| InboxEntry {
            channel: "api".to_owned(),
            account: "chat:1".to_owned(),
            external_id: format!("key-{}", self.below(4)),
            fingerprint: format!("body-{}", self.below(2)),
            expires_at: now + SignedDuration::from_millis(40),
        });
        let calls: Vec<CallRow> = direct.then(|| self.call(turn_id, conversation_id)).into_iter().collect();
        let user_id = if self.below(8) == 0 { "2" } else { "1" };
        let open = OpenTurn {
            kind: if direct { TurnKind::Invoke } else { TurnKind::Chat },
            assistant: if self.below(2) == 0 || matches!(conversation, ConversationRef::New { .. }) { "default" } else { "" }.to_owned(),
            message: (!direct).then(|| self.message("user", None)),
            inbox,
            start: direct || self.below(4) > 0,
            calls: calls.clone(),
            approvals: calls.first().filter(|_| self.below(2) == 0).map(|call| self.approval_request(call.id)).into_iter().collect(),
            events: vec![event(EventType::Init)],
            ..OpenTurn::new(self.tenant(), user_id, turn_id, conversation, &self.owner(), now)
        };
        if let Ok(Opened::Stored { fence, .. }) = both!(self, open_turn(open)) {
            let calls = calls.iter().map(|call| call.id).collect();
            self.approvals.extend(open.approvals.iter().map(|approval| approval.id));
            self.turns.push(KnownTurn { turn_id, conversation_id, fence, calls });
            if let ConversationRef::New { id, .. } = open.conversation {
                self.conversations.push(id);
            }
        }
    }

    async fn start_turn(&mut self) {
        let Some(turn) = self.turn() else { return };
        let (tenant_id, owner, now) = (self.tenant(), self.owner(), self.world.clock.now());
        let model = self.model.start_turn(tenant_id, turn.turn_id, &owner, now).await;
        let real = self.real().start_turn(tenant_id, turn.turn_id, &owner, now).await;
        assert_eq!(comparable(&model), comparable(&real), "step {}: start", self.step);
        if let Ok(fence) = real {
            self.update(turn.turn_id, |known| known.fence = Some(fence));
        }
    }

    async fn take_over(&mut self) {
        let Some(turn) = self.turn() else { return };
        let (tenant_id, owner, now) = (self.tenant(), self.owner(), self.world.clock.now());
        if let Ok(fence) = both!(self, take_over(tenant_id, turn.turn_id, owner, now)) {
            self.update(turn.turn_id, |known| known.fence = Some(fence));
        }
    }

    async fn write(&mut self) {
        let held: Vec<KnownTurn> = self.turns.iter().filter(|turn| turn.fence.is_some()).cloned().collect();
        let Some(turn) = self.world.rng.pick(&held[held.len().saturating_sub(2)..]).cloned() else { return };
        let Some(mut fence) = turn.fence.clone() else { return };
        if self.below(10) == 0 {
            fence.epoch -= 1;
        }
        let now = self.world.clock.now();
        let mut write = TurnWrite::new(self.world.clock.new_id(), fence, turn.conversation_id, turn.turn_id, "1".to_owned(), now);
        let call = self.world.rng.pick(&turn.calls).copied();
        let attempt = u32::try_from(self.below(3)).unwrap();
        self.change_approvals(&mut write, call);
        if self.below(8) == 0 {
            write.abandoned_step = Some(u32::try_from(self.below(4)).unwrap());
        }
        match (self.below(8), call) {
            (0 | 1, _) => write.calls.push(self.call(turn.turn_id, turn.conversation_id)),
            (2, Some(id)) => write.starts.push(CallStart { id, started_at: now }),
            (3, Some(id)) => write.retries.push(retry(id, attempt, now)),
            (4, Some(id)) => write.provider_updates.push(provider_update(id, self.below(4))),
            (5 | 6, Some(id)) => write.ends.push(end(id, self.below(4), now)),
            _ => {}
        }
        if self.below(3) == 0 && (turn.conversation_id.is_some() || self.below(5) == 0) {
            let result = (self.below(2) == 0).then(|| format!("c{}", self.below(6)));
            let is_placeholder = result.is_some() && self.below(2) == 0;
            let mut message = self.message(if result.is_some() { "tool" } else { "assistant" }, result);
            if is_placeholder {
                message.status = Some("pending");
            }
            write.messages.push(message);
        }
        if self.below(3) == 0 {
            write.usage.push(self.usage());
        }
        write.state_patches.extend((0..self.below(3)).map(patch));
        let kinds = [EventType::ToolFinished, EventType::AssistantReset, EventType::ApprovalRequired];
        write.events.extend((0..self.below(3)).map(|_| event(kinds[usize::try_from(self.below(3)).unwrap()])));
        if self.below(4) == 0 {
            let statuses =
                [TurnStatus::Acting, TurnStatus::AwaitingApproval, TurnStatus::AwaitingApproval, TurnStatus::Completed, TurnStatus::Failed];
            let status = statuses[usize::try_from(self.below(5)).unwrap()];
            let error = (status == TurnStatus::Failed).then(|| ("{}".to_owned(), "code".to_owned()));
            write.turn = Some(TurnChange {
                status,
                step: 1,
                error,
                message: (self.below(2) == 0).then(|| "done".to_owned()),
                transcript_digest: None,
            });
        }
        if both!(self, write(write)).is_ok() {
            self.update(turn.turn_id, |known| known.calls.extend(write.calls.iter().map(|call| call.id)));
            self.approvals.extend(write.approvals.iter().map(|approval| approval.id));
        }
    }

    async fn compare_all_turns(&self) {
        let tenant_id = self.tenant();
        for known in &self.turns {
            let _ = both!(self, turn(tenant_id, known.turn_id));
        }
    }

    /// Compares everything that the engine reads.
    async fn compare_reads(&self) {
        let (tenant_id, owner, key) = (self.tenant(), self.owner(), format!("key-{}", self.below(3)));
        let _ = both!(self, unfinished_turns(owner));
        if self.step.is_multiple_of(STEPS) {
            self.compare_all_turns().await;
        }
        let Some(turn) = self.turn() else { return };
        let _ = both!(self, turn(tenant_id, turn.turn_id));
        let _ = both!(self, turn_usage(tenant_id, turn.turn_id, RequestsOf::Turn));
        let _ = both!(self, calls(tenant_id, CallFilter { turn_id: Some(turn.turn_id), ..CallFilter::default() }, Page::default()));
        let _ = both!(self, reusable_call(tenant_id, turn.conversation_id, key));
        let _ = both!(self, events(tenant_id, turn.conversation_id.unwrap_or(turn.turn_id), Some(turn.turn_id), 0_i64, ReadLimit::rows(5)));
        if let Some(id) = turn.conversation_id {
            let _ = both!(self, history(tenant_id, id));
            let _ = both!(self, conversation(tenant_id, id));
            let _ = both!(self, events(tenant_id, id, None::<Uuid>, 1_i64, ReadLimit::rows(100)));
            let ids: Vec<String> = (0..6).map(|n| format!("c{n}")).collect();
            let _ = both!(self, taken_call_ids(tenant_id, id, ids));
            let _ = both!(self, partial(tenant_id, id));
            let _ = both!(self, first_event(tenant_id, id));
            let _ = both!(self, events(tenant_id, id, None::<Uuid>, 1_i64, ReadLimit { rows: 4, bytes: 20 }));
        }
        let roles = (self.below(2) == 0).then(|| vec![format!("role-{}", self.below(2))]);
        let filter = ApprovalFilter { status: None, turn_id: (self.below(2) == 0).then_some(turn.turn_id), roles };
        let order = if self.below(2) == 0 { Order::OldestFirst } else { Order::NewestFirst };
        let page = Page { after: self.approvals.first().copied().filter(|_| self.below(3) == 0), ..Page::of(5, order) };
        let _ = both!(self, approvals(tenant_id, filter, page));
        if let Some(id) = self.world.rng.pick(&self.approvals) {
            let _ = both!(self, approval(tenant_id, id));
        }
        if let Some(id) = turn.calls.first() {
            let _ = both!(self, call(tenant_id, id));
        }
    }

    /// Requests and withdraws approvals, and replaces placeholders.
    fn change_approvals(&self, write: &mut TurnWrite, call: Option<Uuid>) {
        match (self.below(6), call) {
            (0 | 1, Some(id)) => write.approvals.push(self.approval_request(id)),
            (2, Some(id)) => write.withdrawn.push(id),
            (3, _) => write.replacements.push(Replacement {
                tool_call_id: format!("c{}", self.below(6)),
                content: format!("result {}", self.step),
                status: "success",
                metadata: (self.below(2) == 0).then(|| r#"{"untrusted":[]}"#.to_owned()),
            }),
            _ => {}
        }
    }

    async fn decide(&self) {
        let (tenant_id, now) = (self.tenant(), self.world.clock.now());
        if self.below(4) == 0 {
            let _ = both!(self, expire_approvals(now));
        }
        let Some(id) = self.world.rng.pick(&self.approvals).copied() else { return };
        let statuses = [ApprovalStatus::Approved, ApprovalStatus::Denied, ApprovalStatus::Canceled];
        let status = statuses[usize::try_from(self.below(3)).unwrap()];
        let (by, key, by_another) = (self.below(2) + 1, self.below(2) + 1, self.below(4) == 0);
        let decision =
            Decision { status, by: by.to_string(), key: Some(format!("key:{key}")), by_another, at: now, author: None, outbox: Vec::new() };
        let _ = both!(self, decide(tenant_id, id, decision));
    }

    async fn cancel_waiting(&self) {
        let (tenant_id, now) = (self.tenant(), self.world.clock.now());
        let Some(turn) = self.turn() else { return };
        let cancellation = TurnCancellation {
            error: "{}".to_owned(),
            error_code: "canceled".to_owned(),
            event: event(EventType::Error),
            outbox: Vec::new(),
            at: now,
        };
        let _ = both!(self, cancel_waiting(tenant_id, turn.turn_id, cancellation));
    }

    async fn save_partials(&self) {
        let now = self.world.clock.now();
        let held = self.turns.iter().rev().take(3).filter_map(|turn| Some((turn.turn_id, turn.fence.clone()?)));
        let step = u32::try_from(self.below(3)).unwrap();
        let partials: Vec<NewPartial> =
            held.map(|(turn_id, fence)| NewPartial { fence, turn_id, step, content: format!("text {}", self.step) }).collect();
        let model = self.model.save_partials_now(&partials, now);
        let real = self.real().save_partials(partials, now).await;
        assert_eq!(comparable(&model), comparable(&real), "step {}: save_partials", self.step);
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_and_the_sqlite_store_agree() {
    let mut writes = 0;
    for seed in 0..SEEDS {
        let mut comparison = Comparison::new(seed);
        for _ in 0..STEPS {
            tokio::time::advance(std::time::Duration::from_millis(3)).await;
            comparison.run_step().await;
        }
        writes += comparison.world.tables.lock().unwrap().writes.len();
    }
    assert!(writes > 100, "only {writes} writes were accepted");
}
