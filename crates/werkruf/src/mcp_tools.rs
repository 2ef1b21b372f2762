//! The MCP servers of the configuration: connects to them, takes their tools over, and alerts the operator of changed ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use werkruf_llm::{Egress, HttpLimits, tool_client};
use werkruf_runtime::Notification;
use werkruf_store::Seal;
use werkruf_tools::{McpServices, OAuthServices, ToolConfig};

use crate::app::{App, base_url};
use crate::config::Config;

/// Connects to the servers that the configuration names, and follows their tools for as long as the server runs.
pub async fn start(app: &Arc<App>, stop: &CancellationToken) {
    let config = app.applied.lock().await.clone();
    app.connect_mcp_servers(&config);
    let (app, stopped) = (Arc::clone(app), stop.clone());
    app.clone().tasks.spawn(async move {
        tokio::select! {
            () = follow(&app) => {}
            () = stopped.cancelled() => {}
        }
    });
}

impl App {
    /// Connects to the MCP servers of a valid configuration, and to no others.
    pub(crate) fn connect_mcp_servers(&self, config: &Config) {
        let declared = config.tools.iter().filter_map(|section| match section.config() {
            Ok(ToolConfig::Mcp(server)) => Some(*server),
            _ => None,
        });
        match tool_client(&HttpLimits::default(), Egress::new(config.egress.clone())) {
            Ok(client) => {
                let services = McpServices {
                    pins: self.database.tool_pins(),
                    clock: self.clock.clone(),
                    tasks: self.tasks.clone(),
                    oauth: self.oauth_services(config),
                };
                let variable = |name: &str| config.environment.lookup(name).map(str::to_owned);
                self.modules.mcp.apply(&declared.collect::<Vec<_>>(), &client, &services, &variable);
            }
            // The same client was made for the HTTP tools.
            Err(error) => tracing::error!(%error, "no HTTP client for MCP servers"),
        }
    }

    /// What the logins of people at other servers need.
    fn oauth_services(&self, config: &Config) -> OAuthServices {
        let (configured, own, listen) = (self.config.public_url.clone(), Arc::clone(&self.own_url), self.config.listen);
        OAuthServices {
            store: self.database.connections(),
            seal: Seal::new(self.store.secret_keys()),
            clock: self.clock.clone(),
            egress: Egress::new(config.egress.clone()),
            random: rand::random,
            base_url: Arc::new(move || base_url(configured.as_deref(), own.get(), listen)),
        }
    }
}

async fn follow(app: &App) {
    let mut told = BTreeSet::new();
    loop {
        app.modules.mcp.changed().await;
        app.take_late_tools().await;
        alert(app, &mut told);
    }
}

/// Raises an alert for each tool whose definition has changed, and ends those of tools that are accepted.
fn alert(app: &App, told: &mut BTreeSet<String>) {
    let changed: BTreeSet<String> = app.modules.mcp.states().into_iter().flat_map(|server| server.changed).collect();
    for name in changed.difference(told) {
        let message = format!(
            "The definition of the tool {name} has changed, so it is disabled. `werkruf tools changes` shows the change, and `werkruf tools accept {name}` accepts it."
        );
        app.runtime.conditions().raise(Notification::ToolChanged, name, message);
    }
    for name in told.difference(&changed) {
        app.runtime.conditions().clear(Notification::ToolChanged, name);
    }
    *told = changed;
}
