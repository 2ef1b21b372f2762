//! Budgets: what is counted, when a request is refused, and that counters always equal the rows that they count.

use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{EventType, TurnStatus, Uuid};

use super::audit::Tamper;
use super::world::{event, to};
use super::{Store, World};
use crate::{
    Author, Budget, BudgetClaim, BudgetPeriod, BudgetScope, BudgetUnit, ConversationRef, NewReservation, NewUsage, OpenTurn, Opened,
    UsageOwner,
};

pub(super) const NOON: &str = "2026-03-31T12:00:00Z";

impl<S: Store> World<S> {
    /// At noon of the last day of a month, with a tenant.
    pub(crate) async fn at_noon(mut self) -> Self {
        self.now = NOON.parse().unwrap();
        self.store.ensure_tenant(self.tenant, format!("t{}", self.tenant), self.now).await.unwrap();
        self
    }

    pub(crate) async fn budget(
        &self,
        scope: BudgetScope,
        subject: Option<&str>,
        period: BudgetPeriod,
        unit: BudgetUnit,
        limit: i64,
    ) -> Budget {
        let budget = Budget {
            id: self.id(),
            tenant_id: self.tenant,
            scope,
            subject: subject.map(str::to_owned),
            period,
            unit,
            limit,
            configured: false,
            created_at: self.now,
        };
        assert!(self.store.create_budget(budget.clone(), Author::operator()).await.unwrap());
        budget
    }

    /// A budget of the tenant for model calls of a day.
    pub(crate) async fn calls_per_day(&self, limit: i64) -> Budget {
        self.budget(BudgetScope::Tenant, None, BudgetPeriod::Day, BudgetUnit::ModelCalls, limit).await
    }

    /// The claim of a request of user 1 with the assistant `default`.
    pub(crate) fn worst(&self, budget: &Budget, amount: i64) -> BudgetClaim {
        let day = BudgetPeriod::Day.start_at(self.now);
        BudgetClaim { counter: budget.counter("1", None, Some("default"), day).unwrap(), limit: budget.limit, amount }
    }

    pub(crate) fn reservation(&self, claims: &[BudgetClaim]) -> NewReservation {
        NewReservation { id: self.id(), claims: claims.to_vec(), expires_at: self.now.checked_add(SignedDuration::from_mins(10)).unwrap() }
    }

    /// The usage row of a request that these claims were reserved for: 15 tokens.
    pub(crate) fn counted(&self, reservation: &NewReservation) -> NewUsage {
        NewUsage {
            assistant: Some("default".to_owned()),
            counted_in: reservation.claims.iter().map(|claim| claim.counter.clone()).collect(),
            reservation: Some(reservation.id),
            ..self.usage()
        }
    }

    pub(crate) fn owner(&self, user_id: &str) -> UsageOwner {
        UsageOwner { tenant_id: self.tenant, user_id: user_id.to_owned(), ..UsageOwner::default() }
    }

    /// Subject, used and reserved of the current counters, in the order of budgets.
    pub(crate) async fn uses(&self) -> Vec<(String, i64, i64)> {
        let uses = self.store.budget_uses(self.tenant, self.now).await.unwrap();
        uses.into_iter().map(|one| (one.counter.subject, one.used, one.reserved)).collect()
    }

    pub(crate) async fn version(&self) -> i64 {
        let all = self.store.all_budgets().await.unwrap();
        all.into_iter().find(|of| of.tenant_id == self.tenant).map_or(0, |of| of.version)
    }

    /// An opening that reserves one request of the budget.
    pub(crate) async fn within(&self, conversation: ConversationRef, reservation: &NewReservation) -> OpenTurn {
        OpenTurn {
            budgets_version: Some(self.version().await),
            reservation: Some(reservation.clone()),
            ..self.opening(conversation, "hello")
        }
    }
}

pub(super) fn own(used: i64, reserved: i64) -> Vec<(String, i64, i64)> {
    vec![(String::new(), used, reserved)]
}

/// Every counter is the sum of the rows that it counts, and no turn that has ended reserves anything.
pub(crate) async fn assert_sound<S: Tamper>(world: &World<S>) {
    let day = S::COUNTED_ON;
    let wrong = world
        .store
        .texts(&format!(
            "SELECT CAST(p.subject AS TEXT) FROM budget_periods p JOIN budgets b ON b.tenant_id = p.tenant_id AND b.id = p.budget_id
             WHERE p.used <> (SELECT coalesce(sum(CASE b.unit WHEN 'tokens' THEN u.tokens_total WHEN 'nano_usd' THEN coalesce(u.cost_nano_usd, 0)
               ELSE 1 END), 0) FROM api_usage u WHERE u.tenant_id = p.tenant_id AND u.operation <> 'tool'
               AND CASE b.scope WHEN 'tenant' THEN '' WHEN 'user' THEN u.user_id WHEN 'key' THEN CAST(u.key_id AS TEXT) ELSE u.assistant END = p.subject
               AND CASE b.period WHEN 'day' THEN {day} ELSE substr({day}, 1, 8) || '01' END = CAST(p.period_start AS TEXT))
             OR p.reserved <> (SELECT coalesce(sum(r.amount), 0) FROM budget_reservations r WHERE r.tenant_id = p.tenant_id AND r.budget_id = p.budget_id
               AND r.subject = p.subject AND r.period_start = p.period_start)
             UNION ALL SELECT CAST(r.turn_id AS TEXT) FROM budget_reservations r JOIN turns t ON t.tenant_id = r.tenant_id AND t.id = r.turn_id
             WHERE t.finished_at IS NOT NULL"
        ))
        .await;
    assert_eq!(wrong, Vec::<String>::new(), "counters of these subjects, or turns that have ended, are wrong");
}

pub(crate) async fn a_budget_starts_with_what_was_used<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let key = world.id();
    let put = async |world: &World<S>, user: &str, key_id: Option<Uuid>, assistant: Option<&str>, tokens: i64| {
        let usage = NewUsage { key_id, assistant: assistant.map(str::to_owned), tokens_total: tokens, ..world.usage() };
        world.store.put_usage(world.owner(user), usage, world.now).await.unwrap();
    };
    put(&world, "1", Some(key), Some("default"), 10).await;
    put(&world, "2", None, Some("other"), 20).await;
    put(&world, "", None, None, 40).await;
    // A call of a tool with a price is no model request.
    let tool = NewUsage { cost_nano_usd: Some(5), ..NewUsage::new(world.id(), "tool", "", "tool") };
    world.store.put_usage(world.owner("1"), tool, world.now).await.unwrap();
    let earlier = World { now: "2026-03-30T23:59:59.999Z".parse().unwrap(), ..world.clone() };
    put(&earlier, "1", None, None, 100).await;
    let other_tenant = World { tenant: world.id(), ..world.clone() };
    put(&other_tenant, "1", None, None, 1000).await;

    let (day, month) = (BudgetPeriod::Day, BudgetPeriod::Month);
    let all = |rows: &[(&str, i64)]| rows.iter().map(|(subject, used)| ((*subject).to_owned(), *used, 0)).collect::<Vec<_>>();
    let named = key.to_string();
    for (scope, subject, period, unit, expected) in [
        (BudgetScope::Tenant, None, day, BudgetUnit::Tokens, all(&[("", 70)])),
        (BudgetScope::Tenant, None, month, BudgetUnit::Tokens, all(&[("", 170)])),
        (BudgetScope::Tenant, None, month, BudgetUnit::NanoUsd, all(&[("", 6_000_000_000)])),
        (BudgetScope::User, Some("1"), month, BudgetUnit::Tokens, all(&[("1", 110)])),
        (BudgetScope::User, Some("9"), month, BudgetUnit::Tokens, all(&[("9", 0)])),
        (BudgetScope::User, None, month, BudgetUnit::ModelCalls, all(&[("1", 2), ("2", 1)])),
        (BudgetScope::Key, Some(&named), day, BudgetUnit::Tokens, all(&[(&named, 10)])),
        (BudgetScope::Key, None, day, BudgetUnit::ModelCalls, all(&[(&named, 1)])),
        (BudgetScope::Assistant, Some("other"), day, BudgetUnit::Tokens, all(&[("other", 20)])),
        (BudgetScope::Assistant, None, day, BudgetUnit::ModelCalls, all(&[("default", 1), ("other", 1)])),
    ] {
        let budget = world.budget(scope, subject, period, unit, 1).await;
        assert_eq!(world.uses().await, expected, "{budget:?}");
        assert_sound(&world).await;
        assert!(world.store.delete_budget(world.tenant, budget.id, Author::operator()).await.unwrap());
        assert_eq!(world.uses().await, []);
    }
    // A counter that a claim makes later in the first period counts what came before; in the next period it starts at 0.
    let budget = world.budget(BudgetScope::User, None, day, BudgetUnit::Tokens, 100).await;
    let reservation = world.reservation(&[world.worst(&budget, 90)]);
    assert_eq!(world.store.reserve(world.owner("1"), reservation.clone(), None, world.now).await.unwrap(), None);
    assert_eq!(world.uses().await, [("1".to_owned(), 10, 90), ("2".to_owned(), 20, 0)]);
    world.later(24 * 3_600_000);
    let tomorrow = world.reservation(&[world.worst(&budget, 100)]);
    assert_eq!(world.store.reserve(world.owner("1"), tomorrow, None, world.now).await.unwrap(), None);
    assert_eq!(world.uses().await, [("1".to_owned(), 0, 100)]);
    assert_sound(&world).await;
}

pub(crate) async fn a_request_counts_towards_all_its_budgets<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let tenant = world.budget(BudgetScope::Tenant, None, BudgetPeriod::Month, BudgetUnit::NanoUsd, 4_000_000_000).await;
    let user = world.budget(BudgetScope::User, Some("1"), BudgetPeriod::Day, BudgetUnit::Tokens, 50).await;
    let each = world.budget(BudgetScope::Assistant, None, BudgetPeriod::Day, BudgetUnit::ModelCalls, 2).await;
    let claims = || [world.worst(&tenant, 2_000_000_000), world.worst(&user, 20), world.worst(&each, 1)];
    let first = world.reservation(&claims());
    let running = world.begin(world.within(world.new_conversation(), &first).await).await;
    let row = |subject: &str, used, reserved| (subject.to_owned(), used, reserved);
    assert_eq!(world.uses().await, [row("", 0, 2_000_000_000), row("1", 0, 20), row("default", 0, 1)]);

    // The request is settled and the next one reserved at once.
    let second = world.reservation(&claims());
    let mut write = world.to_write(&running);
    (write.usage, write.reserve) = (vec![world.counted(&first)], Some(second.clone()));
    assert_eq!(world.store.write(write).await.unwrap().over_budget, None);
    assert_eq!(world.uses().await, [row("", 1_500_000_000, 2_000_000_000), row("1", 15, 20), row("default", 1, 1)]);
    assert_sound(&world).await;

    // The next one has no room in two budgets; the first of them is named, and everything else of the write stays.
    let third = world.reservation(&claims());
    let mut write = world.to_write(&running);
    (write.usage, write.reserve) = (vec![world.counted(&second)], Some(third.clone()));
    write.events = vec![event(EventType::Debug)];
    let written = world.store.write(write).await.unwrap();
    let over = written.over_budget.unwrap();
    assert_eq!((&over.counter, over.limit), (&third.claims[0].counter, 4_000_000_000));
    assert_eq!((over.used, over.reserved, over.amount), (3_000_000_000, 0, 2_000_000_000));
    assert_eq!(written.event_seqs, [2]);
    assert_eq!(world.uses().await, [row("", 3_000_000_000, 0), row("1", 30, 0), row("default", 2, 0)]);
    assert_sound(&world).await;
}

pub(crate) async fn a_request_counts_in_the_period_of_its_reservation<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let day = world.calls_per_day(1).await;
    let month = world.budget(BudgetScope::Tenant, None, BudgetPeriod::Month, BudgetUnit::Tokens, 100).await;
    world.now = "2026-03-31T23:59:59.999Z".parse().unwrap();
    let late = world.reservation(&[world.worst(&day, 1), world.worst(&month, 100)]);
    let running = world.begin(world.within(world.new_conversation(), &late).await).await;
    let full = world.reservation(&[world.worst(&day, 1)]);
    assert!(matches!(world.store.open_turn(world.within(world.new_conversation(), &full).await).await.unwrap(), Opened::OverBudget(_)));

    world.later(1);
    assert_eq!(world.uses().await, []);
    let early = world.reservation(&[world.worst(&day, 1), world.worst(&month, 100)]);
    let next = world.begin(world.within(world.new_conversation(), &early).await).await;
    for (running, reservation) in [(&running, &late), (&next, &early)] {
        let mut write = world.to_write(running);
        (write.usage, write.turn) = (vec![world.counted(reservation)], Some(to(TurnStatus::Completed)));
        world.store.write(write).await.unwrap();
    }
    assert_eq!(world.uses().await, [(String::new(), 1, 0), (String::new(), 15, 0)], "April");
    let march = World { now: NOON.parse().unwrap(), ..world.clone() };
    assert_eq!(march.uses().await, [(String::new(), 1, 0), (String::new(), 15, 0)], "the row was written in April");
    assert_sound(&world).await;

    // A budget that is made later sees the same.
    let again = march.budget(BudgetScope::User, None, BudgetPeriod::Day, BudgetUnit::Tokens, 1).await;
    let uses = march.store.budget_uses(world.tenant, march.now).await.unwrap();
    assert!(uses.iter().any(|one| one.counter.budget_id == again.id && one.used == 15), "{uses:?}");
    assert_sound(&world).await;
}

pub(crate) async fn a_refused_turn_leaves_nothing<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let budget = world.calls_per_day(1).await;
    let first = world.reservation(&[world.worst(&budget, 1)]);
    let mut open = world.within(world.new_conversation(), &first).await;
    open.inbox = Some(world.inbox("k", "body"));
    let running = world.begin(open.clone()).await;

    let before = world.store.everything().await;
    let mut refused = world.within(world.new_conversation(), &world.reservation(&[world.worst(&budget, 1)])).await;
    refused.inbox = Some(world.inbox("other", "body"));
    let Opened::OverBudget(over) = world.store.open_turn(refused.clone()).await.unwrap() else { panic!("admitted") };
    assert_eq!((over.counter, over.limit, over.used, over.reserved, over.amount), (first.claims[0].counter.clone(), 1, 0, 1, 1));
    // Neither in a conversation that exists, nor one that waits behind another turn.
    refused.conversation = ConversationRef::Existing { id: running.conversation, any_user: false };
    assert!(matches!(world.store.open_turn(refused).await.unwrap(), Opened::OverBudget(_)));
    // A request that is too large for an unused counter.
    let user = world.reservation(&[world.worst(&Budget { limit: 0, ..budget.clone() }, 1)]);
    assert!(matches!(world.store.open_turn(world.within(world.new_conversation(), &user).await).await.unwrap(), Opened::OverBudget(_)));
    let reserve = world.store.reserve(world.owner("1"), world.reservation(&[world.worst(&budget, 1)]), Some(world.usage()), world.now);
    assert_eq!(reserve.await.unwrap().map(|over| over.reserved), Some(1));
    // Budgets that the process does not know as they are.
    let mut stale = open.clone();
    (stale.turn_id, stale.inbox, stale.conversation) = (world.id(), None, world.new_conversation());
    stale.budgets_version = Some(0);
    assert_eq!(world.store.open_turn(stale).await.unwrap(), Opened::StaleBudgets);
    assert_eq!(world.store.everything().await, before);

    // A second copy is a copy, whatever the budgets say.
    for version in [world.version().await, 0] {
        let (turn_id, conversation) = (world.id(), world.new_conversation());
        let copy = OpenTurn { turn_id, conversation, budgets_version: Some(version), ..open.clone() };
        assert_eq!(world.store.open_turn(copy).await.unwrap(), Opened::Duplicate { turn_id: running.turn, same_body: true });
    }
    assert_eq!(world.store.everything().await, before);
    // A turn that asks no model is admitted.
    world.talk().await;
}

pub(crate) async fn a_waiting_turn_reserves_nothing<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let budget = world.calls_per_day(2).await;
    let first = world.reservation(&[world.worst(&budget, 1)]);
    let running = world.begin(world.within(world.new_conversation(), &first).await).await;
    let behind = ConversationRef::Existing { id: running.conversation, any_user: false };
    let waiting = world.within(behind, &world.reservation(&[world.worst(&budget, 1)])).await;
    let opened = world.store.open_turn(OpenTurn { start: false, ..waiting }).await.unwrap();
    assert!(matches!(opened, Opened::Stored { fence: None, .. }), "{opened:?}");
    assert_eq!(world.uses().await, own(0, 1));
    assert_sound(&world).await;
}

pub(crate) async fn an_estimate_counts_at_once_and_is_replaced<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let budget = world.budget(BudgetScope::Tenant, None, BudgetPeriod::Day, BudgetUnit::Tokens, 100).await;
    let calls = world.calls_per_day(10).await;
    let reservation = world.reservation(&[world.worst(&budget, 80), world.worst(&calls, 1)]);
    let estimate = NewUsage { tokens_total: 30, estimated: true, reservation: None, ..world.counted(&reservation) };
    let reserved = world.store.reserve(world.owner("1"), reservation.clone(), Some(estimate.clone()), world.now).await.unwrap();
    assert_eq!(reserved, None);
    let one_call = (String::new(), 1, 0);
    assert_eq!(world.uses().await, [(String::new(), 30, 50), one_call.clone()], "the reservation keeps what the estimate has not used");
    let other = world.store.reserve(world.owner("1"), world.reservation(&[world.worst(&budget, 21)]), None, world.now).await.unwrap();
    assert_eq!(other.map(|over| (over.used, over.reserved)), Some((30, 50)));
    assert_sound(&world).await;

    // The final tokens come on the next day. They count on the day of the estimate.
    let noon = world.clone();
    world.later(24 * 3_600_000);
    let counted_in = [world.worst(&budget, 0).counter].to_vec();
    let known = NewUsage { tokens_total: 45, estimated: false, counted_in, reservation: Some(reservation.id), ..estimate };
    for _ in 0..2 {
        // The second time nothing changes: the row is final and the reservation gone.
        world.store.put_usage(world.owner("1"), known.clone(), world.now).await.unwrap();
        assert_eq!(noon.uses().await, [(String::new(), 45, 0), one_call.clone()]);
        assert_eq!(world.uses().await.iter().map(|one| one.1 + one.2).sum::<i64>(), 0);
    }
    assert_sound(&world).await;

    // A request that was never sent leaves nothing.
    let unsent = noon.reservation(&[noon.worst(&budget, 20), noon.worst(&calls, 1)]);
    let row = NewUsage { tokens_total: 5, estimated: true, reservation: None, ..noon.counted(&unsent) };
    assert_eq!(noon.store.reserve(noon.owner("1"), unsent.clone(), Some(row.clone()), noon.now).await.unwrap(), None);
    assert_eq!(noon.uses().await[0], (String::new(), 50, 15));
    for _ in 0..2 {
        noon.store.delete_usage(noon.tenant, Some(row.id), Some(unsent.id)).await.unwrap();
        assert_eq!(noon.uses().await, [(String::new(), 45, 0), one_call.clone()]);
    }
    noon.store.put_usage(noon.owner("1"), NewUsage { reservation: None, ..row.clone() }, noon.now).await.unwrap();
    assert_eq!(noon.uses().await[0], (String::new(), 50, 0));
    noon.store.delete_usage(noon.tenant, Some(row.id), None).await.unwrap();
    assert_eq!(noon.uses().await, [(String::new(), 45, 0), one_call]);
    assert_sound(&noon).await;
}

fn expiry(world: &World<impl Store>) -> Timestamp {
    world.now.checked_add(SignedDuration::from_mins(10)).unwrap()
}

pub(crate) async fn an_expired_reservation_is_released<S: Tamper>(world: World<S>) {
    let mut world = world.at_noon().await;
    let budget = world.calls_per_day(2).await;
    let first = world.reservation(&[world.worst(&budget, 1)]);
    let running = world.begin(world.within(world.new_conversation(), &first).await).await;
    let expires = expiry(&world);
    world.later(1);
    let second = world.reservation(&[world.worst(&budget, 1)]);
    assert_eq!(world.store.reserve(world.owner("1"), second, None, world.now).await.unwrap(), None);
    assert_eq!(world.store.release_expired(world.now).await.unwrap(), 0);
    assert_eq!(world.store.release_expired(expires).await.unwrap(), 1);
    assert_eq!(world.uses().await, own(0, 1));
    assert_sound(&world).await;
    // The answer came after all: it counts, and the room was taken by nobody.
    let mut write = world.to_write(&running);
    (write.usage, write.turn) = (vec![world.counted(&first)], Some(to(TurnStatus::Completed)));
    world.store.write(write).await.unwrap();
    assert_eq!(world.uses().await, own(1, 1));
    assert_eq!(world.store.release_expired(expiry(&world)).await.unwrap(), 1);
    assert_eq!(world.uses().await, own(1, 0));
    assert_sound(&world).await;
}

pub(crate) async fn a_takeover_counts_the_lost_request<S: Tamper>(world: World<S>) {
    let world = world.at_noon().await;
    let budget = world.calls_per_day(2).await;
    let lost = world.reservation(&[world.worst(&budget, 1)]);
    let running = world.begin(world.within(world.new_conversation(), &lost).await).await;
    let of_tool = world.reservation(&[world.worst(&budget, 1)]);
    let owner = UsageOwner { turn_id: Some(running.turn), ..world.owner("1") };
    assert_eq!(world.store.reserve(owner, of_tool.clone(), None, world.now).await.unwrap(), None);
    world.store.release(running.fence.clone()).await.unwrap();
    let fence = world.store.take_over(world.tenant, running.turn, "process-2".to_owned(), world.now).await.unwrap();
    assert_eq!(world.uses().await, own(0, 2), "the room stays taken");

    // The first commit of the new owner counts the request, releases the rest and reserves again.
    let again = world.reservation(&[world.worst(&budget, 1)]);
    let mut write = crate::TurnWrite { fence, ..world.to_write(&running) };
    write.usage = vec![NewUsage { estimated: true, reservation: None, ..world.counted(&lost) }];
    (write.release_reservations, write.reserve) = (true, Some(again));
    assert_eq!(world.store.write(write.clone()).await.unwrap().over_budget, None);
    assert_eq!(world.uses().await, own(1, 1));
    assert_sound(&world).await;
    // The end of the turn releases what was not sent.
    let mut end = crate::TurnWrite { id: world.id(), usage: Vec::new(), reserve: None, ..write };
    end.turn = Some(to(TurnStatus::Failed));
    world.store.write(end).await.unwrap();
    assert_eq!(world.uses().await, own(1, 0));
    assert_sound(&world).await;
}
