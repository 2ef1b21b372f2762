//! The MCP servers of the configuration: connects to them, takes their tools over, and alerts the operator of changed ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use werkruf_contract::Uuid;
use werkruf_llm::{Egress, HttpLimits, tool_client};
use werkruf_runtime::Notification;
use werkruf_store::{ConnectionRow, Seal};
use werkruf_tools::{McpServerConfig, McpServices, OAuthServices, ToolConfig, ToolSection};

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
        let Some(client) = mcp_client(config) else { return };
        let variable = |name: &str| config.environment.lookup(name).map(str::to_owned);
        self.modules.mcp.apply(&declared(config), &client, &self.mcp_services(config), &variable);
    }

    /// Ends what an erased person had at MCP servers: sessions at once, tokens as soon as their servers answer. The erasure does not wait for them.
    pub(crate) async fn end_connections(&self, tenant_id: Uuid, user_id: &str, rows: Vec<ConnectionRow>) {
        self.modules.mcp.close_person(tenant_id, user_id);
        let config = self.applied.lock().await.clone();
        let Some(client) = mcp_client(&config) else { return };
        let variable = |name: &str| config.environment.lookup(name).map(str::to_owned);
        self.modules.mcp.revoke(rows, &declared(&config), &client, &self.mcp_services(&config), &variable);
    }

    fn mcp_services(&self, config: &Config) -> McpServices {
        McpServices {
            pins: self.database.tool_pins(),
            clock: self.clock.clone(),
            tasks: self.tasks.clone(),
            oauth: self.oauth_services(config),
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
            tasks: self.modules.mcp.token_tasks(),
            random: rand::random,
            base_url: Arc::new(move || base_url(configured.as_deref(), own.get(), listen)),
        }
    }
}

/// The MCP servers that the configuration declares.
fn declared(config: &Config) -> Vec<McpServerConfig> {
    let of_section = |section: &ToolSection| match section.config() {
        Ok(ToolConfig::Mcp(server)) => Some(*server),
        _ => None,
    };
    config.tools.iter().filter_map(of_section).collect()
}

fn mcp_client(config: &Config) -> Option<reqwest::Client> {
    let client = tool_client(&HttpLimits::default(), Egress::new(config.egress.clone()));
    // The same client was made for the HTTP tools.
    client.inspect_err(|error| tracing::error!(%error, "no HTTP client for MCP servers")).ok()
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
