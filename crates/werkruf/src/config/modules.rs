//! Which modules are on. A module is on when the configuration file has its section; without a file all are on.

use super::file::Document;
use super::violation::ConfigViolation;

/// The modules that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModulesOn {
    pub workspace: bool,
    pub flights: bool,
    pub knowledge: bool,
    pub ask_gpt: bool,
}

impl ModulesOn {
    /// Every module.
    pub const ALL: Self = Self { workspace: true, flights: true, knowledge: true, ask_gpt: true };

    /// The names of the modules that are on.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [
            ("workspace", self.workspace),
            ("flights", self.flights && cfg!(feature = "flights")),
            ("knowledge", self.knowledge),
            ("ask_gpt", self.ask_gpt),
        ];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }

    /// Whether the module of this name is on.
    pub(crate) fn has(self, name: &str) -> bool {
        match name {
            "workspace" => self.workspace,
            "flights" => self.flights,
            "knowledge" => self.knowledge,
            "ask_gpt" => self.ask_gpt,
            _ => false,
        }
    }

    pub(super) fn of(document: &Document, violations: &mut Vec<ConfigViolation>) -> Self {
        if document.path.is_none() {
            return Self::ALL;
        }
        let file = &document.file;
        if cfg!(not(feature = "flights")) && file.flights.is_some() {
            violations.push(document.violation("/flights", "this werkruf is built without the flight search; remove the section"));
        }
        Self {
            workspace: file.workspace.is_some(),
            flights: file.flights.is_some(),
            knowledge: file.knowledge.is_some(),
            ask_gpt: file.ask_gpt.is_some(),
        }
    }
}
