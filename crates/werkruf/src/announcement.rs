//! What `serve` prints when it has started. The log goes to stderr; this goes to stdout.

use std::io::IsTerminal;
use std::net::SocketAddr;

use serde_json::json;

use crate::app::App;
use crate::cli::print;
use crate::identity::operator_link;
use crate::lockfile::reachable;
use crate::provider;
use crate::start_error::StartError;

/// Prints address, the link to the console, model and database.
pub(crate) async fn announce(
    app: &App,
    address: &str,
    metrics: Option<SocketAddr>,
    key: Option<&str>,
    json: bool,
) -> Result<(), StartError> {
    let console = console_url(app, address).await?;
    let model = provider::describe(&app.config.model);
    let database = app.config.database.to_string();
    let curl = key.map(|key| curl(address, key));
    let metrics = metrics.map(|address| format!("http://{}/metrics", reachable(address)));
    if json {
        let line = json!({
            "address": address, "console": console, "model": model, "database": database, "key": key, "curl": curl,
            "four_eyes": app.config.four_eyes, "metrics": metrics,
        });
        print::line(&line.to_string());
        return Ok(());
    }
    print::line(&format!("Werkruf {} listens on {address}", env!("CARGO_PKG_VERSION")));
    print::line(&format!("Console: {console}"));
    if let Some(public) = &app.config.public_url {
        print::line(&format!("Public address: {public}"));
    }
    print::line(&format!("Model: {model}"));
    print::line(&format!("Database: {database}"));
    if let Some(metrics) = metrics {
        print::line(&format!("Metrics: {metrics} (without a key)"));
    }
    if !app.config.four_eyes {
        print::line("Approvals: four_eyes is off, so whoever asks for a call may also approve it");
    }
    match curl {
        Some(curl) => print::line(&format!("Try it (this key is shown once):\n{curl}")),
        None if app.config.admin_key.is_some() => print::line("Key: WERKRUF_ADMIN_KEY has every permission"),
        None => print::line("Key: `werkruf keys create --tenant demo --user 1 --scopes chat,tools,read` makes another"),
    }
    Ok(())
}

/// A link that signs in as the operator. Where other machines reach the server and the output may be kept as a log, it is the bare address: a
/// link in a log is a credential for whoever reads the log.
async fn console_url(app: &App, address: &str) -> Result<String, StartError> {
    let base = app.config.public_url.as_deref().unwrap_or(address).trim_end_matches('/');
    let path = if app.config.listen.ip().is_loopback() || std::io::stdout().is_terminal() {
        operator_link(app).await?
    } else {
        "/console/".to_owned()
    };
    Ok(format!("{base}{path}"))
}

fn curl(address: &str, key: &str) -> String {
    format!(
        "curl -N {address}/api/chat -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"message\": \"Which requests are open for me today?\"}}'"
    )
}
