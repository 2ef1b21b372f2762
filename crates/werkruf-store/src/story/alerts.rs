//! Alerts: each is told once, however many processes see its condition.

use jiff::SignedDuration;
use werkruf_contract::{TurnStatus, Uuid};

use super::approvals::awaiting_approval;
use super::world::to;
use super::{Store, World};
use crate::{
    AlertKey, AlertRow, NewAlert, NewOutboxRow, Order, OutboxFilter, OutboxStatus, Page, PoisonTurn, Recipient, SendEnd, StoredConditions,
    TurnChange, TurnWrite, WaitingApproval,
};

const PAGE: Page = Page::of(100, Order::OldestFirst);

impl<S: Store> World<S> {
    /// Rows for two webhooks.
    fn told(&self) -> Vec<NewOutboxRow> {
        let row = |name: &str| {
            let lane = format!("webhook:{name}:x");
            let recipient =
                Recipient { channel: "webhook".to_owned(), account: name.to_owned(), address: name.to_owned(), user_id: None, lane };
            NewOutboxRow { recipient, repeatable: true, ..self.outbox_row(None, "told") }
        };
        vec![row("one"), row("two")]
    }

    fn alert(&self, tenant_id: Uuid, kind: &str, once: bool) -> NewAlert {
        NewAlert {
            id: self.id(),
            key: AlertKey { tenant_id, kind: kind.to_owned(), subject: "s".to_owned() },
            once,
            source: Some("process-1".to_owned()),
            detail: r#"{"message":"m"}"#.to_owned(),
            rows: self.told(),
            now: self.now,
        }
    }

    async fn told_in(&self, tenant_id: Uuid) -> usize {
        self.store.outbox(tenant_id, OutboxFilter::of_status(OutboxStatus::Pending), PAGE).await.unwrap().len()
    }
}

fn row_of(alert: &NewAlert) -> AlertRow {
    AlertRow {
        id: alert.id,
        key: alert.key.clone(),
        once: alert.once,
        source: alert.source.clone(),
        detail: alert.detail.clone(),
        opened_at: alert.now,
        seen_at: alert.now,
        resolved_at: None,
    }
}

pub(crate) async fn an_alert_is_open_once_and_told_once<S: Store>(mut world: World<S>) {
    // Of the server, under the nil id.
    let (store, server) = (world.store.clone(), Uuid::nil());
    let alert = world.alert(server, "model_down", false);
    assert!(store.open_alert(alert.clone()).await.unwrap());
    assert!(!store.open_alert(world.alert(server, "model_down", false)).await.unwrap(), "it is open already");
    assert_eq!((store.open_alerts().await.unwrap(), world.told_in(server).await), (vec![row_of(&alert)], 2));
    let other = world.alert(world.tenant, "model_down", false);
    assert!(store.open_alert(other.clone()).await.unwrap(), "of a tenant");

    let seen = world.later(60_000);
    store.touch_alerts(vec![alert.id, world.id()], seen).await.unwrap();
    let touched = AlertRow { seen_at: seen, ..row_of(&alert) };
    assert_eq!(store.open_alerts().await.unwrap(), [touched.clone(), row_of(&other)]);

    let ended = world.later(1000);
    assert!(store.resolve_alert(server, alert.id, world.told(), ended).await.unwrap());
    assert!(!store.resolve_alert(server, alert.id, world.told(), ended).await.unwrap(), "it has ended");
    assert!(!store.resolve_alert(server, other.id, world.told(), ended).await.unwrap(), "not of this tenant");
    assert_eq!((store.open_alerts().await.unwrap(), world.told_in(server).await), (vec![row_of(&other)], 4));
    let resolved = AlertRow { seen_at: ended, resolved_at: Some(ended), ..touched };
    assert_eq!(store.alerts(server, false, PAGE).await.unwrap(), [resolved]);
    assert!(store.open_alert(world.alert(server, "model_down", false)).await.unwrap(), "it begins again");
    assert_eq!(world.told_in(server).await, 6);
}

pub(crate) async fn an_alert_that_is_told_once_never_ends<S: Store>(world: World<S>) {
    let (store, tenant) = (&world.store, world.tenant);
    let alert = world.alert(tenant, "budget_threshold", true);
    assert!(store.open_alert(alert.clone()).await.unwrap());
    assert!(!store.open_alert(world.alert(tenant, "budget_threshold", true)).await.unwrap());
    assert!(!store.resolve_alert(tenant, alert.id, world.told(), world.now).await.unwrap());
    assert_eq!((store.open_alerts().await.unwrap(), world.told_in(tenant).await), (Vec::new(), 2));
    let other = AlertKey { subject: "other".to_owned(), ..alert.key };
    assert!(store.open_alert(NewAlert { key: other, ..world.alert(tenant, "budget_threshold", true) }).await.unwrap());
}

pub(crate) async fn processes_that_see_one_condition_tell_it_once<S: Store>(world: World<S>) {
    let (tenant, store) = (world.tenant, world.store.clone());
    let opening: Vec<_> = (0..8).map(|at| world.alert(tenant, "model_down", at < 0)).collect();
    let opened = futures_util::future::join_all(opening.into_iter().map(|alert| store.open_alert(alert))).await;
    assert_eq!(opened.into_iter().filter(|opened| *opened.as_ref().unwrap()).count(), 1);
    assert_eq!(world.told_in(tenant).await, 2, "once per program");
    let id = store.open_alerts().await.unwrap()[0].id;
    let ended = futures_util::future::join_all((0..8).map(|_| store.resolve_alert(tenant, id, world.told(), world.now))).await;
    assert_eq!(ended.into_iter().filter(|ended| *ended.as_ref().unwrap()).count(), 1);
    assert_eq!(world.told_in(tenant).await, 4);
}

pub(crate) async fn conditions_are_found_in_the_rows_of_all_tenants<S: Store>(mut world: World<S>) {
    let (store, now) = (world.store.clone(), world.now);
    let nothing = store.stored_conditions(now, now).await.unwrap();
    assert_eq!(nothing, StoredConditions::default());
    let never_sent = NewOutboxRow { dead: Some("stale".to_owned()), ..world.outbox_row(None, "late") };
    world.send(vec![never_sent, world.outbox_row(None, "refused"), world.outbox_row(None, "open")]).await;
    let end = SendEnd::Dead { code: "webhook_refused".to_owned(), message: "m".to_owned() };
    assert!(world.settle(&world.next().await, end).await);
    let (_, _, approval) = awaiting_approval(&world).await;
    let later = world.later(1000);
    let given_up = world.talk().await;
    let error = Some((r#"{"code":"poison"}"#.to_owned(), "poison".to_owned()));
    let end = TurnChange { error, ..to(TurnStatus::Failed) };
    store.write(TurnWrite { turn: Some(end), ..world.to_write(&given_up) }).await.unwrap();

    let before = now.checked_sub(SignedDuration::from_millis(1)).unwrap();
    let found = store.stored_conditions(now, now).await.unwrap();
    let waiting = WaitingApproval { tenant_id: world.tenant, id: approval.id, tool_name: approval.tool_name, created_at: now };
    let poison = PoisonTurn { tenant_id: world.tenant, id: given_up.turn, finished_at: later };
    assert_eq!(found, StoredConditions { dead_letters: vec![(world.tenant, 1)], approvals: vec![waiting], poison: vec![poison] });
    let found = store.stored_conditions(before, later).await.unwrap();
    assert_eq!((found.approvals, found.poison), (Vec::new(), Vec::new()), "asked for later, given up earlier");
}

pub(crate) async fn alerts_are_listed_and_expire<S: Store>(mut world: World<S>) {
    let (store, tenant) = (world.store.clone(), world.tenant);
    let alerts = [("model_down", false), ("disk_low", false), ("budget_threshold", true)];
    let alerts: Vec<NewAlert> = alerts.map(|(kind, once)| world.alert(tenant, kind, once)).into();
    for alert in &alerts {
        assert!(store.open_alert(alert.clone()).await.unwrap());
    }
    let kinds = async |store: &S, open_only, page| -> Vec<String> {
        store.alerts(tenant, open_only, page).await.unwrap().into_iter().map(|row| row.key.kind).collect()
    };
    let newest = Page::of(2, Order::NewestFirst);
    assert_eq!(kinds(&store, false, newest).await, ["budget_threshold", "disk_low"]);
    assert_eq!(kinds(&store, false, Page { after: Some(alerts[1].id), ..newest }).await, ["model_down"]);
    assert_eq!(kinds(&store, true, PAGE).await, ["model_down", "disk_low"]);
    assert_eq!(store.alerts(world.id(), false, PAGE).await.unwrap(), []);

    store.resolve_alert(tenant, alerts[0].id, Vec::new(), world.now).await.unwrap();
    let day = 24 * 3_600_000;
    let later = world.later(89 * day);
    store.delete_expired(later).await.unwrap();
    assert_eq!(kinds(&store, false, PAGE).await.len(), 3);
    let later = world.later(2 * day);
    store.delete_expired(later).await.unwrap();
    assert_eq!(kinds(&store, false, PAGE).await, ["disk_low"], "an open one stays");
}
