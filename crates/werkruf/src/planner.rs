//! Where the offline model finds the tools: it is made before they are, and they change with every reload.

use std::sync::{Arc, PoisonError, RwLock};

use werkruf_llm::OfflineProvider;
use werkruf_runtime::Setup;

/// The tools as they are now. Holds the setup and not the runtime, which holds the provider: a circle would never be freed.
#[derive(Clone, Default)]
pub struct Planner {
    setup: Arc<RwLock<Option<Arc<Setup>>>>,
}

impl Planner {
    /// From now on these are the tools.
    pub fn follow(&self, setup: Arc<Setup>) {
        *self.setup.write().unwrap_or_else(PoisonError::into_inner) = Some(setup);
    }

    /// A provider that asks the tools themselves.
    pub fn provider(&self) -> OfflineProvider {
        let planner = self.clone();
        OfflineProvider::new(Arc::new(move |text, locale, today| {
            let setup = planner.setup.read().unwrap_or_else(PoisonError::into_inner).clone();
            setup.map(|setup| setup.registry.propose(text, locale, today)).unwrap_or_default()
        }))
    }
}
