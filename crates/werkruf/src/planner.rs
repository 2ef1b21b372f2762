//! Gives the offline model access to the current tools. The model is built before the tools, and the tools change with
//! every reload.

use std::sync::{Arc, PoisonError, RwLock};

use werkruf_llm::OfflineProvider;
use werkruf_runtime::Setup;

/// The current tools. It holds the setup and not the runtime: the runtime holds the provider, and a reference cycle would
/// never be freed.
#[derive(Clone, Default)]
pub struct Planner {
    setup: Arc<RwLock<Option<Arc<Setup>>>>,
}

impl Planner {
    /// Replaces the tools.
    pub fn follow(&self, setup: Arc<Setup>) {
        *self.setup.write().unwrap_or_else(PoisonError::into_inner) = Some(setup);
    }

    /// A provider that lets the tools propose calls, without a language model.
    pub fn provider(&self) -> OfflineProvider {
        let planner = self.clone();
        OfflineProvider::new(Arc::new(move |message| {
            let setup = planner.setup.read().unwrap_or_else(PoisonError::into_inner).clone();
            setup.map(|setup| setup.registry.propose(message)).unwrap_or_default()
        }))
    }
}
