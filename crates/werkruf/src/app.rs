//! The application state: store, runtime and configuration, shared by every request handler and command.
//!
//! `serve` and commands without a server open it the same way; only `serve` binds an address and writes the lock file.
//! Tenant `demo` exists in every opened store.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, Uuid};
#[cfg(feature = "flights")]
use werkruf_flights::Flights;
use werkruf_knowledge::KnowledgeBase;
use werkruf_llm::{HttpLimits, Provider, http_client};
use werkruf_runtime::{BudgetBook, ModelAccounts, ModelGate, Runtime, Services};
use werkruf_store::{
    Act, AdministrationStore, Approvals, Author, ChannelStore, ClientRequests, ClientStore, Cluster, ConsoleStore, IdentityStore,
    KeyDigest, KeyRow, MonitoringStore, NewKey, Page, People, PostgresOptions, PostgresStore, Records, Scopes, SqliteStore, Store,
    StoreError, Streams, Turns,
};
use werkruf_tools::AskGpt;
use werkruf_workspace::WorkspaceModule;

use crate::api::outage::Outage;
use crate::config::{Config, ConfigViolation, Database, PostgresConfig};
use crate::hint_feed::HintFeeds;
use crate::identity::access::Access;
use crate::identity::{Tokens, new_secret};
use crate::installation::{initialize, put_budgets, resolve_tenants};
use crate::metrics::ServerMetrics;
use crate::modules::{MODULES, OpenDatabase, OpenModules};
use crate::planner::Planner;
use crate::reader::Reader;
use crate::start_error::StartError;
use crate::telemetry::Traces;
use crate::whatsapp::WhatsApp;
use crate::{database_file, knowledge, provider, sample, secret_key, setup};

/// The key of the store's settings table that names the demo key.
const DEMO_KEY: &str = "demo_key";

/// Everything a request handler or a command needs.
pub struct App {
    pub config: Config,
    pub clock: Clock,
    /// What the kernel needs of the database.
    pub store: Arc<dyn Store>,
    /// What single parts of the server need of it.
    pub console_store: Arc<dyn ConsoleStore>,
    pub client_store: Arc<dyn ClientStore>,
    pub monitoring_store: Arc<dyn MonitoringStore>,
    pub administration_store: Arc<dyn AdministrationStore>,
    pub identity_store: Arc<dyn IdentityStore>,
    pub channel_store: Arc<dyn ChannelStore>,
    /// The same database, by all its traits.
    pub database: OpenDatabase,
    pub runtime: Runtime,
    pub knowledge: Arc<KnowledgeBase>,
    /// Turns uploaded files into text.
    pub(crate) reader: Arc<Reader>,
    /// The bearer token of commands on this machine; a new one at every start.
    pub operator_token: SecretString,
    pub started_at: Timestamp,
    pub(crate) tokens: Tokens,
    pub(crate) access: Access,
    /// What open pages are told.
    pub(crate) hint_feeds: HintFeeds,
    /// Held by a rotation of the secret key.
    pub(crate) rotation: tokio::sync::Mutex<()>,
    pub tasks: TaskTracker,
    /// Where this process listens, once it does; people who are sent elsewhere come back to it.
    pub(crate) own_url: Arc<OnceLock<String>>,
    /// Raised when the last turn of a stopping server has ended.
    pub(crate) drained: CancellationToken,
    /// Whether the shared database is unreachable.
    pub(crate) outage: Outage,
    pub(crate) metrics: Arc<ServerMetrics>,
    planner: Planner,
    /// Where spans go.
    pub traces: Traces,
    /// Provider keys are read at the start only, so a reload keeps the modules.
    pub(crate) modules: OpenModules,
    /// The configuration that the tools were last built from. Held while they are replaced.
    pub(crate) applied: tokio::sync::Mutex<Config>,
}

impl App {
    /// Opens everything the configuration names.
    pub async fn open(config: Config) -> Result<Arc<Self>, StartError> {
        let clock = Clock::system(config.clock_offset_s);
        Self::open_at(config, clock).await
    }

    /// Like [`Self::open`], with this wall clock.
    pub async fn open_at(config: Config, clock: Clock) -> Result<Arc<Self>, StartError> {
        let client = http_client(&HttpLimits::default())?;
        let planner = Planner::default();
        let provider = provider::build_with(&config, &client, &planner).await?;
        Self::open_with(config, clock, provider, planner, client).await
    }

    /// Opens the store for a command that needs no model, so that the command works without a configured model.
    pub async fn open_for_command(config: Config) -> Result<Arc<Self>, StartError> {
        let client = http_client(&HttpLimits::default())?;
        let planner = Planner::default();
        let clock = Clock::system(config.clock_offset_s);
        Self::open_with(config, clock, Arc::new(planner.provider()), planner, client).await
    }

    async fn open_with(
        config: Config,
        clock: Clock,
        provider: Arc<dyn Provider>,
        planner: Planner,
        client: reqwest::Client,
    ) -> Result<Arc<Self>, StartError> {
        let database = open_database(&config, &clock).await?;
        let store = database.store();
        store.secret_keys().replace(secret_key::keys(&config)?);
        let gate = ModelGate::new(provider::providers(&config, &client, provider)?, config.limits.model_concurrency);
        let prices = Arc::clone(&config.prices);
        let metrics = Arc::new(ServerMetrics::new());
        let counted = Arc::clone(metrics.runtime());
        let budgets = Arc::new(BudgetBook::new(store.clone()));
        let models = ModelAccounts { gate: Arc::new(gate), usage: store.clone(), budgets, prices, clock: clock.clone(), metrics: counted };
        let modules = OpenModules {
            on: config.modules,
            workspace: Arc::new(WorkspaceModule::new(database.workspace(), clock.clone())),
            #[cfg(feature = "flights")]
            flights: open_flights(&config, &client, &database, &clock)?,
            knowledge: Arc::new(knowledge::base(&config, Arc::new(models.clone()), database.knowledge(), &clock)),
            ask_gpt: Arc::new(AskGpt),
            whatsapp: Arc::new(WhatsApp::new(http_client(&WhatsApp::http_limits())?, config.whatsapp.clone())),
            mcp: Arc::default(),
        };
        let operator_token = SecretString::from(new_secret(rand::random()));
        let setup = setup::build(&config, &modules, &clock, &[operator_token.expose_secret()]).map_err(StartError::Config)?;
        let started_at = clock.now();
        let administration_store = database.administration_store();
        initialize(&config, &*administration_store, started_at).await?;
        let settings = resolve_tenants(config.whatsapp.clone(), &config.assistants, &*administration_store, &clock)
            .await
            .map_err(StartError::Config)?;
        if settings.lacks_a_number() {
            tracing::warn!(
                "WhatsApp has credentials but no number, so it is off; set WHATSAPP_PHONE_NUMBER_ID or write [[whatsapp.numbers]]"
            );
        }
        modules.whatsapp.reload(settings);
        let tasks = TaskTracker::new();
        let traces = Traces::start(config.traces.as_ref(), &client, &clock, &tasks);
        let services = Services { tracer: traces.tracer(), ..Services::new(&store, models, clock.clone(), config.limits.clone()) };
        let runtime = Runtime::new(services, setup);
        runtime.refresh_budgets().await?;
        planner.follow(runtime.setup());
        let tokens = Tokens::new(&config.tokens, &config.auth.guest_role, &client, &clock);
        let access = Access::new(&(store.clone() as Arc<dyn Cluster>));
        Ok(Arc::new(Self {
            reader: Arc::new(Reader::new(&config.reader)),
            applied: tokio::sync::Mutex::new(config.clone()),
            config,
            clock,
            store,
            console_store: database.console_store(),
            client_store: database.client_store(),
            monitoring_store: database.monitoring_store(),
            administration_store,
            identity_store: database.identity_store(),
            channel_store: database.channel_store(),
            database,
            runtime,
            knowledge: Arc::clone(&modules.knowledge),
            operator_token,
            started_at,
            tokens,
            access,
            hint_feeds: HintFeeds::default(),
            tasks,
            own_url: Arc::default(),
            drained: CancellationToken::new(),
            rotation: tokio::sync::Mutex::default(),
            outage: Outage::default(),
            metrics,
            planner,
            traces,
            modules,
        }))
    }

    /// The store's interface for turns.
    pub fn turns(&self) -> &dyn Turns {
        self.store.as_ref()
    }

    /// The store's interface for reading what turns wrote.
    pub fn records(&self) -> &dyn Records {
        self.store.as_ref()
    }

    /// The store's interface for the requests of clients that turns keep.
    pub fn clients(&self) -> &dyn ClientRequests {
        self.store.as_ref()
    }

    /// The store's interface for approvals.
    pub fn approvals(&self) -> &dyn Approvals {
        self.store.as_ref()
    }

    pub(crate) const fn whatsapp(&self) -> &Arc<WhatsApp> {
        &self.modules.whatsapp
    }

    /// The store's interface for event streams.
    pub fn streams(&self) -> &dyn Streams {
        self.store.as_ref()
    }

    /// The store's interface for tenants and users.
    pub fn people(&self) -> &dyn People {
        self.store.as_ref()
    }

    /// Reads the configuration again and replaces tools, assistants, safety profiles, budgets and WhatsApp's numbers and keywords; running turns keep the old ones.
    pub async fn reload(&self) -> Result<(), Vec<ConfigViolation>> {
        let mut applied = self.applied.lock().await;
        let (flags, environment) = (self.config.flags.clone(), self.config.environment.clone());
        let (modules, clock, token) = (self.modules.clone(), self.clock.clone(), self.operator_token.clone());
        // Reading files and compiling schemas blocks, so it must not run on a thread that serves requests.
        let read = move || setup::read_with(&flags, &environment, &modules, &clock, &[token.expose_secret()]);
        let (config, setup) = tokio::task::spawn_blocking(read)
            .await
            .unwrap_or_else(|error| Err(vec![ConfigViolation::new("", format!("reading the configuration stopped: {error}"))]))?;
        put_budgets(&config.budgets, self.administration_store.as_ref(), &self.runtime, &self.clock).await?;
        self.modules
            .whatsapp
            .reload(resolve_tenants(config.whatsapp.clone(), &config.assistants, self.administration_store.as_ref(), &self.clock).await?);
        self.runtime.reload(setup);
        self.planner.follow(self.runtime.setup());
        self.connect_mcp_servers(&config);
        *applied = config;
        Ok(())
    }

    /// Says where this process listens; the first address counts.
    pub fn listens_at(&self, url: String) {
        if self.own_url.set(url).is_err() {
            tracing::debug!("the address of this process is known already");
        }
    }

    /// Where people reach this server, without a slash at the end.
    pub(crate) fn base_url(&self) -> String {
        base_url(self.config.public_url.as_deref(), self.own_url.get(), self.config.listen)
    }

    /// Builds the tools again from the configuration in force, because MCP servers offer others.
    pub(crate) async fn take_late_tools(&self) {
        let applied = self.applied.lock().await;
        let (config, modules, clock, token) = (applied.clone(), self.modules.clone(), self.clock.clone(), self.operator_token.clone());
        let build = move || setup::build(&config, &modules, &clock, &[token.expose_secret()]);
        match tokio::task::spawn_blocking(build).await {
            Ok(Ok(setup)) => {
                self.runtime.reload(setup);
                self.planner.follow(self.runtime.setup());
            }
            // The same configuration was valid before.
            Ok(Err(violations)) => tracing::error!(?violations, "the tools of MCP servers cannot be taken over"),
            Err(error) => tracing::error!(%error, "the tools of MCP servers cannot be taken over"),
        }
    }

    /// Writes an act that is no write of the store into the audit log, right after the act. The act has happened, so a failure is
    /// only logged.
    pub(crate) async fn record(&self, chain: Uuid, author: Author, act: Act) {
        let (action, subject) = (act.action, act.subject.clone());
        if let Err(error) = self.store.record(chain, author, act, self.clock.now()).await {
            tracing::error!(%error, action, subject, "an act is missing in the audit log");
        }
    }

    /// Whether a module of this name is on.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        self.modules.all().iter().any(|module| module.schema().name == name) && self.modules.on.has(name)
    }

    /// Whether any tenant has an API key.
    pub async fn has_key(&self) -> Result<bool, StoreError> {
        self.has_key_that(|_| true).await
    }

    /// Whether any tenant has a key that somebody made on purpose and that still counts: the demo key and expired keys protect nothing.
    pub async fn has_protecting_key(&self) -> Result<bool, StoreError> {
        let demo = self.administration_store.setting(DEMO_KEY.to_owned()).await?;
        let now = self.clock.now();
        let counts = |key: &KeyRow| self.config.auth.key_ends(key).is_none_or(|end| now < end);
        self.has_key_that(|key| counts(key) && demo.as_deref() != Some(key.id.to_string().as_str())).await
    }

    async fn has_key_that(&self, wanted: impl Fn(&KeyRow) -> bool) -> Result<bool, StoreError> {
        for tenant in self.people().tenants().await? {
            let mut page = Page { limit: 100, ..Page::default() };
            loop {
                let keys = self.administration_store.keys(tenant.id, page).await?;
                if keys.iter().any(&wanted) {
                    return Ok(true);
                }
                match keys.last().filter(|_| keys.len() >= page.limit as usize) {
                    Some(last) => page.after = Some(last.id),
                    None => break,
                }
            }
        }
        Ok(false)
    }

    /// Makes the demo key at the first start, if there is no other key. Returns `None` afterwards: a key is shown only once.
    pub async fn make_demo_key(&self) -> Result<Option<String>, StartError> {
        let made_before = self.administration_store.setting(DEMO_KEY.to_owned()).await?.is_some();
        if made_before || self.config.admin_key.is_some() || self.has_key().await? {
            return Ok(None);
        }
        let user_id = sample::DEMO_USER.to_string();
        if self.people().principal(sample::DEMO_ID, user_id.clone()).await?.is_none() {
            self.administration_store.put_people(sample::DEMO_ID, sample::demo_user_alone()?).await?;
        }
        let key = new_secret(rand::random());
        let row = NewKey {
            id: self.clock.new_id(),
            tenant_id: sample::DEMO_ID,
            digest: KeyDigest::of(&key),
            user_id: Some(user_id),
            scopes: Scopes { chat: true, tools: true, read: true, ..Scopes::default() },
            name: Some("demo key of the first start".to_owned()),
            expires_at: None,
            created_at: self.clock.now(),
            allow_ips: Vec::new(),
            safety_mode: None,
            collection: None,
            root_id: None,
        };
        let id = self.administration_store.create_key(row, Author::server()).await?.id;
        self.administration_store.put_setting(DEMO_KEY.to_owned(), id.to_string()).await?;
        Ok(Some(key))
    }
}

pub(crate) fn base_url(configured: Option<&str>, own: Option<&String>, listen: SocketAddr) -> String {
    let known = configured.or(own.map(String::as_str)).map(|url| url.trim_end_matches('/').to_owned());
    known.unwrap_or_else(|| format!("http://{listen}"))
}

/// Opens the configured database and brings its schema up to date.
async fn open_database(config: &Config, clock: &Clock) -> Result<OpenDatabase, StartError> {
    match &config.database {
        Database::Sqlite(file) => {
            database_file::prepare(file)?;
            let opened = SqliteStore::open(file, clock, MODULES);
            Ok(OpenDatabase::Sqlite(opened.map_err(|error| database_file::diagnose(file, error))?))
        }
        Database::Postgres(url) => {
            let opened = PostgresStore::open(postgres_options(config, url), clock, MODULES).await;
            Ok(OpenDatabase::Postgres(opened.map_err(|error| StartError::of_postgres(config, error))?))
        }
    }
}

/// The flight search. Only Amadeus has a token that is stored, and the token is stored sealed.
#[cfg(feature = "flights")]
fn open_flights(config: &Config, client: &reqwest::Client, database: &OpenDatabase, clock: &Clock) -> Result<Arc<Flights>, StartError> {
    let keys = database.store().secret_keys();
    if config.flights.amadeus.is_some() && keys.newest().is_none() {
        return Err(StartError::Unsealed);
    }
    let seal = config.flights.amadeus.as_ref().map(|_| werkruf_store::Seal::new(keys));
    Ok(Arc::new(Flights::new(config.flights.clone(), client, database.flights(), seal, clock.clone())))
}

/// The configured connection options for the PostgreSQL at this address.
pub(crate) fn postgres_options(config: &Config, url: &SecretString) -> PostgresOptions {
    let PostgresConfig { schema, connections, poll_only, lease_ttl } = config.postgres.clone();
    let pool_size = usize::try_from(connections).unwrap_or(usize::MAX);
    PostgresOptions { schema, pool_size, poll_only, lease_ttl, ..PostgresOptions::new(url.expose_secret()) }
}
