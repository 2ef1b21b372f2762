//! The store of one process: the tables behind its gate, with faults before and after each access.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::{Principal, State, Usage, Uuid};
use werkruf_store::{
    AttemptRow, CallFilter, CallRow, ClientRequests, ConversationFilter, ConversationRow, Fence, IdOf, InboxEntry, MessageRow, NewUsage,
    OpenTurn, Opened, Order, Page, People, PersonAddress, Records, RequestsOf, ResumePoint, Reusable, StoreError, StoreFuture, Summary,
    TenantRow, TurnCancellation, TurnRow, TurnWrite, Turns, UsageOwner, UsageRows, Written,
};

use crate::mutant::Mutant;
use crate::process::Process;
use crate::tables::{Tables, broken, stream_of};
use crate::trace::short;
use crate::world::World;

pub struct Store {
    pub world: Arc<World>,
    pub process: Arc<Process>,
}

fn unavailable(what: &str) -> StoreError {
    StoreError::Unavailable(what.to_owned())
}

impl Store {
    /// Submits a write, which continues even if its caller stops waiting.
    pub fn submit<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&mut Tables, Mutant) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        Box::pin(async move {
            let tasks = world.tasks.clone();
            let job = tasks.spawn(async move {
                process.gate().await;
                // With several processes a write may be on the network already; it arrives even if its sender is dead.
                let on_the_network = world.faults.shared && world.rng.permille(300);
                world.delay().await;
                if !on_the_network {
                    process.gate().await;
                }
                let result = apply(&world, &process, &what, work);
                world.delay().await;
                process.gate().await;
                result
            });
            job.await.unwrap_or_else(|error| Err(broken(error)))
        })
    }

    pub async fn read<T: Send>(&self, what: &'static str, work: impl FnOnce(&Tables) -> T + Send) -> Result<T, StoreError> {
        let (world, process) = (&self.world, &self.process);
        process.gate().await;
        world.delay().await;
        process.gate().await;
        if world.faults.hit(&world.rng, world.faults.read_fails) {
            world.count("reads that failed");
            world.note(&process.name, format_args!("{what}: the read fails"));
            return Err(unavailable("the read failed"));
        }
        let found = work(&world.tables.lock().unwrap());
        // The result may be outdated by the time it is used.
        if world.rng.permille(150) {
            world.delay().await;
            process.gate().await;
        }
        Ok(found)
    }
}

fn apply<T>(
    world: &World,
    process: &Process,
    what: &str,
    work: impl FnOnce(&mut Tables, Mutant) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if world.faults.hit(&world.rng, world.faults.write_lost) {
        world.count("writes lost");
        world.note(&process.name, format_args!("{what}: lost before the database"));
        return Err(unavailable("lost before the database"));
    }
    let mutant = world.mutant;
    let dropped = match mutant {
        Mutant::WriteDropped => what.starts_with("write"),
        Mutant::MessageDropped => what.starts_with("open"),
        _ => false,
    };
    let result = if dropped && world.rng.permille(50) {
        let mut copy = world.tables.lock().unwrap().clone();
        work(&mut copy, mutant)
    } else {
        world.transaction(|tables| work(tables, mutant))
    };
    match &result {
        Ok(_) => world.note(&process.name, format_args!("{what}: ok")),
        Err(error) => {
            if matches!(error, StoreError::Fenced) {
                world.count("writes fenced");
            }
            world.note(&process.name, format_args!("{what}: {error}"));
        }
    }
    if result.is_ok() && world.faults.hit(&world.rng, world.faults.ack_lost) {
        world.count("acknowledgements lost");
        world.note(&process.name, format_args!("{what}: the acknowledgement is lost"));
        return Err(unavailable("the acknowledgement is lost"));
    }
    result
}

/// A short description of a write, for the trace.
fn describe(write: &TurnWrite) -> String {
    let mut out = format!("write {} e{}", short(write.turn_id), write.fence.epoch);
    for row in &write.calls {
        out.push_str(&format!(" +{} {} {}", short(row.id), row.tool_name, row.status));
    }
    out.extend(write.starts.iter().map(|start| format!(" start {}", short(start.id))));
    out.extend(write.retries.iter().map(|retry| format!(" retry {}/{}", short(retry.id), retry.attempt)));
    out.extend(write.abandoned_step.map(|step| format!(" abandon step {step}")));
    for end in &write.ends {
        out.push_str(&format!(" end {} {} {}", short(end.id), end.status, end.error_code.as_deref().unwrap_or("")));
    }
    out.extend(write.messages.iter().map(|message| format!(" {}", message.role)));
    out.extend(write.approvals.iter().map(|new| format!(" request approval {} for {}", short(new.id), short(new.call_id))));
    out.extend(write.withdrawn.iter().map(|id| format!(" withdraw {}", short(*id))));
    out.extend(write.replacements.iter().map(|result| format!(" replace {}", result.tool_call_id)));
    if let Some(change) = &write.turn {
        out.push_str(&format!(" => {}", change.status));
    }
    out
}

impl Turns for Store {
    fn open_turn(&self, open: OpenTurn) -> StoreFuture<'_, Opened> {
        let what = format!("open {} {} start={}", short(open.turn_id), open.kind.as_str(), open.start);
        self.submit(what, move |tables, mutant| tables.open(&open, mutant))
    }

    fn known_copy(&self, _: Uuid, _: InboxEntry, _: Timestamp) -> StoreFuture<'_, Option<(Uuid, bool)>> {
        not_simulated()
    }

    fn start_turn(&self, tenant_id: Uuid, turn_id: Uuid, owner: &str, now: Timestamp) -> StoreFuture<'_, Fence> {
        let owner = owner.to_owned();
        self.submit(format!("start {}", short(turn_id)), move |tables, mutant| tables.start(tenant_id, turn_id, &owner, now, mutant))
    }

    fn write(&self, write: TurnWrite) -> StoreFuture<'_, Written> {
        let (world, process) = (Arc::clone(&self.world), Arc::clone(&self.process));
        self.submit(describe(&write), move |tables, mutant| {
            let written = tables.write(&write, mutant)?;
            if write.abandoned_step.is_some() {
                world.count("abandoned responses with provider items");
            }
            if write.events.iter().any(|event| event.kind.settles_text())
                && let Some(message) = tables.message_of(write.turn_id)
            {
                // From here on the text is in a row or void.
                world.observed.lock().unwrap().texts.remove(&(process.name.clone(), message));
            }
            Ok(written)
        })
    }

    fn request_cancel(&self, _: Uuid, turn_id: Uuid, now: Timestamp) -> StoreFuture<'_, bool> {
        self.submit(format!("cancel {}", short(turn_id)), move |tables, _| {
            let running = tables.turns.get(&turn_id).is_some_and(|turn| !turn.status.is_terminal());
            if running {
                tables.change_turn(turn_id, |turn| {
                    turn.cancel_requested = true;
                    turn.updated_at = now;
                });
            }
            Ok(running)
        })
    }

    fn cancel_waiting(&self, _: Uuid, turn_id: Uuid, cancellation: TurnCancellation) -> StoreFuture<'_, Option<i64>> {
        let world = Arc::clone(&self.world);
        self.submit(format!("cancel waiting {}", short(turn_id)), move |tables, _| {
            let seq = tables.cancel_waiting(turn_id, cancellation);
            if seq.is_some() {
                world.count("turns canceled in the queue");
            }
            Ok(seq)
        })
    }

    fn patch_state(&self, _: Uuid, conversation_id: Uuid, patch: State, _: usize, now: Timestamp) -> StoreFuture<'_, Option<State>> {
        self.submit("patch".to_owned(), move |tables, _| Ok(tables.patch(conversation_id, &[patch], now)))
    }

    fn history(&self, _: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Vec<MessageRow>> {
        Box::pin(self.read("history", move |tables| tables.history(conversation_id)))
    }

    fn taken_call_ids(&self, _: Uuid, conversation_id: Uuid, ids: Vec<String>) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.read("taken ids", move |tables| {
            let is_taken = |id: &String| {
                let by_message = |row: &Arc<MessageRow>| row.conversation_id == conversation_id && row.tool_call_id.as_ref() == Some(id);
                tables.messages.values().any(by_message)
            };
            ids.into_iter().filter(is_taken).collect()
        }))
    }

    fn reusable_call(&self, _: Uuid, conversation_id: Option<Uuid>, dedupe_key: String) -> StoreFuture<'_, Option<Reusable>> {
        Box::pin(self.read("reusable call", move |tables| tables.reusable(conversation_id, &dedupe_key)))
    }

    fn summary(&self, _: Uuid, conversation_id: Uuid) -> StoreFuture<'_, Option<Summary>> {
        Box::pin(self.read("summary", move |tables| tables.summaries.get(&conversation_id).cloned()))
    }

    fn unfinished_turns(&self, owner: String) -> StoreFuture<'_, Vec<TurnRow>> {
        let _ = self.process.owner.set(owner.clone());
        Box::pin(self.read("unfinished turns", move |tables| tables.unfinished(&owner, self.world.clock.now(), self.world.mutant)))
    }

    fn take_over(&self, tenant_id: Uuid, turn_id: Uuid, owner: String, now: Timestamp) -> StoreFuture<'_, Fence> {
        let world = Arc::clone(&self.world);
        self.submit(format!("take over {}", short(turn_id)), move |tables, mutant| {
            let stream_id = tables.turns.get(&turn_id).map(|turn| stream_of(turn));
            let before = stream_id.and_then(|id| tables.leases.get(&id)).and_then(|lease| lease.owner.clone());
            let fence = tables.take_over(tenant_id, turn_id, &owner, now, mutant)?;
            world.check_takeover(before.filter(|before| *before != owner).as_deref(), turn_id);
            Ok(fence)
        })
    }

    fn release(&self, fence: Fence) -> StoreFuture<'_, ()> {
        self.submit(format!("release {}", short(fence.stream_id)), move |tables, _| tables.release(&fence))
    }

    fn delete_conversation(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, bool> {
        not_simulated()
    }
}

impl Records for Store {
    fn conversation(&self, _: Uuid, id: Uuid) -> StoreFuture<'_, Option<ConversationRow>> {
        Box::pin(self.read("conversation", move |tables| tables.conversations.get(&id).map(|row| (**row).clone())))
    }

    fn turn(&self, _: Uuid, id: Uuid) -> StoreFuture<'_, Option<TurnRow>> {
        let forgets = self.world.mutant == Mutant::InboundForgotten;
        let row = move |row: &TurnRow| TurnRow { inbound: row.inbound.clone().filter(|_| !forgets), ..row.clone() };
        Box::pin(self.read("turn", move |tables| tables.turns.get(&id).map(|turn| row(turn))))
    }

    fn call(&self, _: Uuid, id: Uuid) -> StoreFuture<'_, Option<CallRow>> {
        Box::pin(self.read("call", move |tables| tables.calls.get(&id).map(|row| (**row).clone())))
    }

    fn calls(&self, _: Uuid, filter: CallFilter, _: Page) -> StoreFuture<'_, Vec<CallRow>> {
        Box::pin(self.read("calls", move |tables| {
            let mine = tables.calls.values().filter(|call| filter.turn_id.is_none_or(|turn| call.turn_id == turn));
            mine.map(|row| (**row).clone()).collect()
        }))
    }

    fn conversations(&self, _: Uuid, _: ConversationFilter, _: Page) -> StoreFuture<'_, Vec<ConversationRow>> {
        not_simulated()
    }
    fn messages(&self, _: Uuid, conversation_id: Uuid, page: Page) -> StoreFuture<'_, Vec<MessageRow>> {
        Box::pin(self.read("messages", move |tables| {
            let mut rows = tables.history(conversation_id);
            if page.order == Order::NewestFirst {
                rows.reverse();
            }
            rows.truncate(page.limit as usize);
            rows
        }))
    }
    fn attempts(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Vec<AttemptRow>> {
        not_simulated()
    }
    fn ids_like(&self, _: Uuid, _: IdOf, _: String, _: u32) -> StoreFuture<'_, Vec<Uuid>> {
        not_simulated()
    }
    fn ping(&self) -> StoreFuture<'_, ()> {
        not_simulated()
    }
}

/// For methods that the engine does not call. A run that calls one fails.
pub fn not_simulated<T: Send + 'static>() -> StoreFuture<'static, T> {
    Box::pin(std::future::ready(Err(broken("this method of the store is not simulated"))))
}

impl UsageRows for Store {
    fn put_usage(&self, _: UsageOwner, _: NewUsage, _: Timestamp) -> StoreFuture<'_, ()> {
        not_simulated()
    }
    fn delete_usage(&self, _: Uuid, _: Option<Uuid>, _: Option<Uuid>) -> StoreFuture<'_, ()> {
        not_simulated()
    }
    /// The turn's own are all: no tool of these tests uses a model.
    fn turn_usage(&self, _: Uuid, turn_id: Uuid, _: RequestsOf) -> StoreFuture<'_, Usage> {
        Box::pin(self.read("usage", move |tables| tables.usage_of(turn_id)))
    }
}

/// No client of the OpenAI APIs takes part.
impl ClientRequests for Store {
    fn client_request(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Option<String>> {
        Box::pin(self.read("client request", |_| None))
    }
    fn first_client_request(&self, _: Uuid, _: Uuid) -> StoreFuture<'_, Option<String>> {
        not_simulated()
    }
    fn conversation_awaiting(&self, _: Uuid, _: String, _: Vec<String>) -> StoreFuture<'_, Option<ResumePoint>> {
        not_simulated()
    }
}

impl People for Store {
    fn principal(&self, _: Uuid, user_id: String) -> StoreFuture<'_, Option<Arc<Principal>>> {
        let principal = Arc::clone(&self.world.principal);
        Box::pin(self.read("principal", move |_| Some(principal).filter(|principal| principal.user_id == user_id)))
    }

    fn tenant(&self, _: String) -> StoreFuture<'_, Option<TenantRow>> {
        not_simulated()
    }
    fn tenants(&self) -> StoreFuture<'_, Vec<TenantRow>> {
        not_simulated()
    }
    fn users_by_address(&self, _: Uuid, _: Option<String>, _: Option<String>) -> StoreFuture<'_, Vec<PersonAddress>> {
        not_simulated()
    }
    fn users_with_roles(&self, _: Uuid, _: Vec<String>) -> StoreFuture<'_, Vec<PersonAddress>> {
        not_simulated()
    }
}
