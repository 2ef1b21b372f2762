//! The product modules that are compiled in: their schemas, their tools, and the open database by their traits.
//!
//! No other file lists the schemas. `config/modules.rs` says which modules are on, and `docs/writing-a-module.md` names every place that a new
//! module needs. The feature `flights` leaves a module out. A database has the tables of every module in this list, whether or not a module is on.

use std::sync::Arc;

use werkruf_contract::Clock;
#[cfg(feature = "flights")]
use werkruf_flights::{FlightStore, Flights};
use werkruf_knowledge::{Knowledge, KnowledgeBase};
use werkruf_store::{
    AdministrationStore, ChannelStore, ClientStore, ConnectionStore, ConsoleStore, IdentityStore, Module, Modules, MonitoringStore,
    PostgresStore, SqliteStore, Store, ToolPins,
};
use werkruf_tools::{AskGpt, McpServers};
use werkruf_workspace::{Workspace, WorkspaceModule};

use crate::config::{Config, ModulesOn};
#[cfg(feature = "flights")]
use crate::config_check_store::ClosedFlights;
use crate::config_check_store::ClosedStore;
use crate::whatsapp::WhatsApp;

/// The schemas of all modules with tables.
pub const MODULES: Modules = &[
    werkruf_workspace::SCHEMA,
    #[cfg(feature = "flights")]
    werkruf_flights::SCHEMA,
    werkruf_knowledge::SCHEMA,
];

/// The modules of a process, ready to give their tools.
#[derive(Clone)]
pub(crate) struct OpenModules {
    /// A reload keeps the modules of the start, because the routes do so too.
    pub(crate) on: ModulesOn,
    pub(crate) workspace: Arc<WorkspaceModule>,
    #[cfg(feature = "flights")]
    pub(crate) flights: Arc<Flights>,
    pub(crate) knowledge: Arc<KnowledgeBase>,
    pub(crate) ask_gpt: Arc<AskGpt>,
    /// No module, but like them it outlives a reload.
    pub(crate) whatsapp: Arc<WhatsApp>,
    /// The same: connections outlive a reload.
    pub(crate) mcp: Arc<McpServers>,
}

impl OpenModules {
    /// Modules without a database, for checking a configuration: tools can be built, but not called.
    pub(crate) fn closed(config: &Config, client: &reqwest::Client, clock: &Clock) -> Self {
        Self {
            on: config.modules,
            workspace: Arc::new(WorkspaceModule::new(Arc::new(ClosedStore), clock.clone())),
            #[cfg(feature = "flights")]
            flights: Arc::new(Flights::new(config.flights.clone(), client, Arc::new(ClosedFlights), None, clock.clone())),
            knowledge: Arc::new(KnowledgeBase::new(Arc::new(ClosedStore), None, clock.clone())),
            ask_gpt: Arc::new(AskGpt),
            whatsapp: Arc::new(WhatsApp::new(client.clone(), config.whatsapp.clone())),
            mcp: Arc::default(),
        }
    }

    /// All of them, in the order in which models see their tools.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Module>> {
        vec![
            self.workspace.clone(),
            #[cfg(feature = "flights")]
            self.flights.clone(),
            self.knowledge.clone(),
            self.ask_gpt.clone(),
        ]
    }
}

/// An open database, by the traits of the kernel, of single parts of the server and of each module.
#[derive(Debug, Clone)]
pub enum OpenDatabase {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

/// Methods that return an open database as one trait.
macro_rules! handles {
    ($($(#[$when:meta])? $name:ident: $handle:ident,)*) => {
        impl OpenDatabase {
            $($(#[$when])?
            pub fn $name(&self) -> Arc<dyn $handle> {
                match self {
                    Self::Sqlite(store) => store.clone(),
                    Self::Postgres(store) => store.clone(),
                }
            })*
        }
    };
}

handles! {
    store: Store,
    console_store: ConsoleStore,
    client_store: ClientStore,
    monitoring_store: MonitoringStore,
    administration_store: AdministrationStore,
    identity_store: IdentityStore,
    channel_store: ChannelStore,
    tool_pins: ToolPins,
    connections: ConnectionStore,
    workspace: Workspace,
    #[cfg(feature = "flights")]
    flights: FlightStore,
    knowledge: Knowledge,
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
