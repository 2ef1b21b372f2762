//! What every command knows: its global options, its environment and its configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::CliError;
use super::{Globals, print};
use crate::config::{Config, Environment, Flags};

/// One run of the program: its options and its environment.
pub(super) struct Session {
    pub(super) globals: Globals,
    pub(super) listen: Option<String>,
    pub(super) environment: Environment,
    /// Whether the command may make the database.
    pub(super) makes_database: bool,
    /// Warnings about the configuration are printed once.
    warned: Arc<AtomicBool>,
}

impl Session {
    pub(super) fn new(globals: Globals, environment: Environment, makes_database: bool) -> Self {
        Self { globals, listen: None, environment, makes_database, warned: Arc::default() }
    }

    pub(super) fn flags(&self) -> Flags {
        Flags { config: self.globals.config.clone(), listen: self.listen.clone(), database: self.globals.database.clone() }
    }

    /// For `serve`, which logs its warnings itself.
    pub(super) fn config_for_server(&self) -> Result<Config, CliError> {
        Ok(Config::load(&self.flags(), &self.environment)?)
    }

    pub(super) fn config(&self) -> Result<Config, CliError> {
        let config = self.config_for_server()?;
        if !self.warned.swap(true, Ordering::Relaxed) {
            config.warnings.iter().for_each(|warning| print::warning(warning, self.globals.json));
        }
        Ok(config)
    }

    /// For commands in which the operator acts, not a user.
    pub(super) fn without_user(&self) -> Self {
        let globals = Globals { user: None, ..self.globals.clone() };
        let (environment, warned) = (self.environment.clone(), Arc::clone(&self.warned));
        Self { globals, listen: None, environment, makes_database: self.makes_database, warned }
    }

    /// For commands that concern neither a single tenant nor a user.
    pub(super) fn without_tenant(&self) -> Self {
        let mut session = self.without_user();
        session.globals.tenant = None;
        session
    }
}
