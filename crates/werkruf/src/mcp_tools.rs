//! The MCP servers of the configuration: connects to them, takes their tools over, and alerts the operator of changed ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use werkruf_runtime::Notification;

use crate::app::App;

/// Connects to the servers that the configuration names, and follows their tools for as long as the server runs.
pub(crate) async fn start(app: &Arc<App>, stop: &CancellationToken) {
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
