//! The flight tools over provider stubs and a store.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use werkruf_contract::{Clock, Failure, Invocation, Reply, State, ToolObject};
use werkruf_flights::{AmadeusConfig, DuffelConfig, Flights, FlightsConfig, SCHEMA, SeatsaeroConfig};
use werkruf_llm::{HttpLimits, http_client};
use werkruf_store::{Module, Seal, SecretKey, SecretKeys, SqliteStore};

use crate::stubs::{SEATS_KEY, Stub, Stubs};
use crate::support::invocation;

/// Provider stubs on loopback and a store.
pub struct Fixture {
    pub stubs: Stubs,
    pub store: Arc<SqliteStore>,
    pub clock: Clock,
    pub client: reqwest::Client,
    pub folder: TempDir,
}

/// The configuration of one process.
pub struct Options {
    pub deadline: Duration,
    pub cache: Duration,
    pub quota: u32,
    pub amadeus: bool,
    pub duffel: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), cache: Duration::ZERO, quota: 1000, amadeus: true, duffel: false }
    }
}

impl Fixture {
    pub async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The clock does not advance; deadlines still expire.
        let clock = Clock::driven(|| "2026-11-15T12:00:00Z".parse().unwrap(), 1);
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, &[SCHEMA]).unwrap();
        Self { stubs: Stubs::start().await, store, clock, client: http_client(&HttpLimits::default()).unwrap(), folder }
    }

    pub fn stub(&self) -> &Stub {
        &self.stubs.stub
    }

    /// The tools of one process with these providers.
    pub fn tools(&self, change: &Options) -> Tools {
        let url = self.stubs.url.clone();
        let seatsaero =
            Some(SeatsaeroConfig { key: SecretString::from(SEATS_KEY), base_url: format!("{url}/partnerapi"), daily_quota: change.quota });
        let amadeus = change.amadeus.then(|| AmadeusConfig {
            key: "client".to_owned(),
            secret: SecretString::from("s/cret"),
            environment: "prod".to_owned(),
            base_url: url.clone(),
        });
        let duffel = change.duffel.then(|| DuffelConfig { key: SecretString::from("duffel_test"), base_url: url.clone() });
        let config = FlightsConfig { seatsaero, amadeus, duffel, deadline: change.deadline, cache: change.cache };
        let seal = Seal::new(SecretKeys::new(vec![SecretKey::new([7; 32])]));
        let flights = Flights::new(config, &self.client, Arc::clone(&self.store) as _, Some(seal), self.clock.clone());
        Tools { list: Arc::new(flights).tools(), invocation: invocation() }
    }

    /// The tools of a process without provider keys.
    pub fn tools_without_keys(&self) -> Tools {
        let flights = Flights::new(FlightsConfig::default(), &self.client, Arc::clone(&self.store) as _, None, self.clock.clone());
        Tools { list: Arc::new(flights).tools(), invocation: invocation() }
    }
}

/// The tools of one process, called by one user of one tenant.
pub struct Tools {
    list: Vec<Arc<dyn ToolObject>>,
    pub invocation: Invocation,
}

impl Tools {
    pub fn in_locale(mut self, locale: &str) -> Self {
        let mut context = (*self.invocation.context).clone();
        context.locale = Some(locale.to_owned());
        self.invocation.context = Arc::new(context);
        self
    }

    pub fn with_state(mut self, state: &Value) -> Self {
        self.invocation.state = Arc::new(state.as_object().cloned().unwrap_or_else(State::new));
        self
    }

    pub fn tool(&self, name: &str) -> &Arc<dyn ToolObject> {
        self.list.iter().find(|tool| tool.spec().name == name).unwrap()
    }

    pub async fn call(&self, name: &str, args: Value) -> Result<Reply, Failure> {
        let args = self.tool(name).normalize(args).unwrap();
        self.tool(name).call(args, self.invocation.clone()).await
    }

    pub async fn search(&self, args: Value) -> Reply {
        self.call("search_flights", args).await.unwrap()
    }
}

/// The arguments that most tests use.
pub fn base_args() -> Value {
    json!({"origin": "FRA", "destination": "JFK", "depart_date": "2026-12-01", "cabin": "BUSINESS"})
}

/// The base arguments with changed fields.
pub fn args_with(mut change: Value) -> Value {
    let mut args = base_args();
    args.as_object_mut().unwrap().append(change.as_object_mut().unwrap());
    args
}

/// Status and reason in the report on a provider.
pub fn provider_status(reply: &Reply, name: &str) -> (String, String) {
    let report = reply.data["providers"].as_array().unwrap().iter().find(|report| report["name"] == name).unwrap();
    (report["status"].as_str().unwrap().to_owned(), report["reason"].as_str().unwrap_or("").to_owned())
}

pub fn len(reply: &Reply, field: &str) -> usize {
    reply.data[field].as_array().unwrap().len()
}
