//! What this process has to do at the moment, read at each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::app::App;
use crate::loops::Loops;

type Seconds = Gauge<f64, AtomicU64>;

pub(super) struct Gauges {
    queue_depth: Gauge,
    turns_running: Gauge,
    model_waiting: Gauge,
    connections_open: Gauge,
    connections_idle: Gauge,
    database_waiting: Gauge,
    loops: Family<[(&'static str, &'static str); 1], Seconds>,
    log_dropped: Counter,
    unknown_numbers: Counter,
}

impl Gauges {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let connections = Family::<[(&'static str, &'static str); 1], Gauge>::default();
        let gauges = Self {
            queue_depth: Gauge::default(),
            turns_running: Gauge::default(),
            model_waiting: Gauge::default(),
            connections_open: connections.get_or_create_owned(&[("state", "open")]),
            connections_idle: connections.get_or_create_owned(&[("state", "idle")]),
            database_waiting: Gauge::default(),
            loops: Family::default(),
            log_dropped: Counter::default(),
            unknown_numbers: Counter::default(),
        };
        registry.register(
            "werkruf_queue_depth",
            "Turns of this process that wait behind another turn of their conversation",
            gauges.queue_depth.clone(),
        );
        registry.register(
            "werkruf_turns_running",
            "Turns of this process that have not ended, waiting ones included",
            gauges.turns_running.clone(),
        );
        registry.register(
            "werkruf_model_waiting",
            "Model requests that wait for a place under model_concurrency",
            gauges.model_waiting.clone(),
        );
        registry.register("werkruf_database_connections", "Connections of this process to the database", connections);
        registry.register(
            "werkruf_database_waiting",
            "Operations of this process that wait for a connection, or for the writer of SQLite",
            gauges.database_waiting.clone(),
        );
        registry.register("werkruf_loop_age_seconds", "Seconds since a background loop last made progress", gauges.loops.clone());
        registry.register(
            "werkruf_log_dropped_lines",
            "Lines of the log that were dropped, because nobody read them",
            gauges.log_dropped.clone(),
        );
        registry.register(
            "werkruf_whatsapp_unknown_numbers",
            "Events for a WhatsApp number that the configuration does not name",
            gauges.unknown_numbers.clone(),
        );
        gauges
    }

    pub(super) fn set(&self, app: &App, dropped_lines: u64) {
        let load = app.runtime.load();
        self.queue_depth.set(whole(load.waiting_turns));
        self.turns_running.set(whole(load.running_turns));
        self.model_waiting.set(whole(load.waiting_model_requests));
        let connections = app.monitoring_store.connections();
        self.connections_open.set(whole(connections.open));
        self.connections_idle.set(whole(connections.idle));
        self.database_waiting.set(whole(connections.waiting));
        for (name, age) in Loops::of(app).ages() {
            self.loops.get_or_create(&[("loop", name)]).set(age.as_secs_f64());
        }
        self.log_dropped.inner().store(dropped_lines, Ordering::Relaxed);
        self.unknown_numbers.inner().store(app.whatsapp().unknown_numbers(), Ordering::Relaxed);
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
