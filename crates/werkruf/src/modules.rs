//! The product modules that are compiled in. This is the only file that lists them.
//!
//! The feature `flights` leaves a module out. A database has the tables of every module in this list, whether or not a module is on.

use std::sync::Arc;

use werkruf_contract::Clock;
#[cfg(feature = "flights")]
use werkruf_flights::{FlightStore, Flights};
use werkruf_knowledge::{Knowledge, KnowledgeBase};
use werkruf_store::{ConnectionStore, Module, Modules, PostgresStore, SqliteStore, Store, ToolPins};
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

/// An open database, by the traits of the kernel and of each module.
#[derive(Debug, Clone)]
pub enum OpenDatabase {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

impl OpenDatabase {
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    pub fn tool_pins(&self) -> Arc<dyn ToolPins> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    pub fn connections(&self) -> Arc<dyn ConnectionStore> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    pub fn workspace(&self) -> Arc<dyn Workspace> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    #[cfg(feature = "flights")]
    pub fn flights(&self) -> Arc<dyn FlightStore> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    pub fn knowledge(&self) -> Arc<dyn Knowledge> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
