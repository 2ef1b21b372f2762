//! Collects the calls that tools propose for a sentence.

use std::sync::Arc;

use jiff::civil::Date;
use serde_json::Value;
use werkruf_contract::{Clock, ToolObject};
use werkruf_store::{Modules, SqliteStore};

/// Proposed calls: tool name and arguments.
pub type Calls = Vec<(String, Value)>;

/// Tools over an empty database, on a given day.
pub struct Planner {
    pub tools: Vec<Arc<dyn ToolObject>>,
    pub today: Date,
    _folder: tempfile::TempDir,
}

impl Planner {
    pub fn new(today: Date, modules: Modules, tools: impl FnOnce(Arc<SqliteStore>, Clock) -> Vec<Arc<dyn ToolObject>>) -> Self {
        let clock = Clock::system(0);
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("w.db"), &clock, modules).unwrap();
        Self { tools: tools(store, clock), today, _folder: folder }
    }

    /// The proposed calls. A tool must accept the arguments that it proposes.
    pub fn propose(&self, text: &str, locale: &str) -> Calls {
        let mut proposed = Calls::new();
        for tool in &self.tools {
            let Some(arguments) = tool.propose(text, locale, self.today) else { continue };
            let name = tool.spec().name.to_string();
            assert!(tool.normalize(arguments.clone()).is_ok(), "{name} does not accept {arguments}");
            proposed.push((name, arguments));
        }
        proposed
    }

    /// Checks all sentences and reports all mismatches together.
    pub fn check<'a>(&self, locale: &str, expected: impl IntoIterator<Item = (&'a str, Calls)>) {
        let (mut wrong, mut all) = (Vec::new(), 0);
        for (text, wanted) in expected {
            all += 1;
            let proposed = self.propose(text, locale);
            if proposed != wanted {
                wrong.push(format!("{text:?}\n  wanted   {wanted:?}\n  proposed {proposed:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
