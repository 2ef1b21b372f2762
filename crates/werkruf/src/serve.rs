//! `werkruf serve`: binds, prints the address, serves until a signal, then lets running turns finish.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use werkruf_store::{Act, Author, SERVER_CHAIN};

use crate::announcement::announce;
use crate::app::App;
use crate::config::{Config, Connections};
use crate::installation::put_budgets;
use crate::listen::{Bounds, IsOperator, Listener, Proxies, Tls};
use crate::lockfile::{LockFile, LockNote, reachable};
use crate::start_error::StartError;
use crate::{api, identity, mcp_tools, retention, telemetry};

/// How long connections may take to close after the last turn has ended.
const CLOSING: Duration = Duration::from_secs(2);

/// How often the files of the certificate are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(2);

const PLAIN_HTTP: &str = "this server speaks plain HTTP to other machines, so keys and data can be read on the way; set [tls], or put a proxy with HTTPS in front and name it in trusted_proxies";

const OPEN_METRICS: &str = "metrics are served to other machines without a key: they tell how much this server does, which tools it has and what it costs; use a loopback address, or let only the scraper reach this one";

/// Connections to the address of `[metrics]` at most.
const METRICS_CONNECTIONS: u32 = 64;

/// The exit code that shells use for an end by SIGINT.
const INTERRUPTED: u8 = 130;

/// Serves until a signal. The exit code is 0 after an orderly shutdown.
pub async fn serve(config: Config, json: bool) -> Result<ExitCode, StartError> {
    let logging = telemetry::start(&config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let mut signals = Signals::listen()?;
    let app = App::open(config).await?;
    app.metrics.follow_log(logging.writer());
    if !app.config.listen.ip().is_loopback() && app.config.admin_key.is_none() && app.tokens.is_empty() && !app.has_protecting_key().await?
    {
        return Err(StartError::Unprotected(app.config.listen));
    }
    warn_about_folder(&app);
    let tls = open_tls(&app)?;
    let Connections { all: connections, per_address } = app.config.connections;
    let bounds = Bounds { connections, per_address, ..Bounds::default() };
    let listener = Listener::bind(app.config.listen, bounds, app.tasks.clone())
        .await
        .map(|listener| listener.trusting(Proxies::of(&app.config.trusted_proxies)).reserving_for(operator_check(&app)))
        .map(|listener| listener.with_tls(tls.clone()))
        .map_err(|source| StartError::Listen { address: app.config.listen, source })?;
    let address = listener.address().map_err(|source| StartError::Io { what: "the bound address is unknown".to_owned(), source })?;
    app.listens_at(url(address, &app.config));
    let metrics = bind_metrics(&app).await?;
    let mut lock = write_lock_file(&app, address, tls.as_deref())?;
    let key = if address.ip().is_loopback() { app.make_demo_key().await? } else { None };
    let metrics_address = metrics.as_ref().and_then(|listener| listener.address().ok());
    announce(&app, &url(address, &app.config), metrics_address, key.as_deref(), json).await?;

    let stop = CancellationToken::new();
    // Before the first turn: a search of a resumed turn must not build an index itself.
    watch_knowledge(&app, &stop);
    put_budgets(&app.config.budgets, app.administration_store.as_ref(), &app.runtime, &app.clock).await.map_err(StartError::Config)?;
    // Turns that an earlier process left unfinished resume before new requests are accepted.
    app.runtime.recover().await?;
    let runtime = app.runtime.clone();
    app.tasks.spawn(async move { runtime.run_background().await });
    let runtime = app.runtime.clone();
    app.tasks.spawn(async move { runtime.save_partial_text().await });
    send_and_alert(&app);
    mcp_tools::start(&app, &stop).await;

    if app.config.database.file().is_none() {
        let (watched, stopped) = (Arc::clone(&app), stop.clone());
        app.tasks.spawn(async move {
            tokio::select! {
                () = api::outage::watch(&watched) => {}
                () = stopped.cancelled() => {}
            }
        });
    }
    watch_rows(&app, &stop);
    watch_embedder(&app, &stop);
    watch_certificate(&app, tls.as_ref(), &stop);
    serve_metrics(&app, metrics, &stop);
    let mut server = Box::pin(listener.serve(api::router(Arc::clone(&app)), stop.clone()));
    loop {
        tokio::select! {
            () = &mut server => {
                return Err(StartError::Io { what: "the listener stopped".to_owned(), source: std::io::Error::other("it gave no reason") });
            }
            signal = signals.next() => match signal {
                SignalRequest::Stop => break,
                SignalRequest::Reload => {
                    tls.iter().for_each(|tls| tls.read_again());
                    reload(&app).await;
                }
            },
            () = certificate_replaced(tls.as_deref()) => name_certificate(lock.as_mut(), tls.as_deref()),
        }
    }
    stop.cancel();
    tracing::info!("stopping: no new turns; a second signal ends at once");
    let code = tokio::select! {
        () = wind_down(&app, server) => ExitCode::SUCCESS,
        () = signals.stop() => ExitCode::from(INTERRUPTED),
    };
    drop(lock);
    Ok(code)
}

/// The files of the database are for their owner only, and so is a folder that the server makes. A folder that the operator made is left
/// as it is.
fn warn_about_folder(app: &App) {
    let folder = app.config.database.file().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && let Ok(found) = std::fs::metadata(folder)
        && found.permissions().mode() & 0o077 != 0
    {
        let mode = format!("{:o}", found.permissions().mode() & 0o7777);
        tracing::warn!(folder = %folder.display(), mode, "other users may open the folder of the database; `chmod 700` closes it");
    }
}

fn operator_check(app: &Arc<App>) -> IsOperator {
    let app = Arc::clone(app);
    Arc::new(move |headers| identity::has_operator_credential(&app, headers))
}

/// Sends rows of the outbox, and tells the operator what is wrong, until the server drains.
fn send_and_alert(app: &Arc<App>) {
    let runtime = app.runtime.clone();
    app.tasks.spawn(async move { runtime.run_outbox().await });
    let (runtime, sources) = (app.runtime.clone(), app.alert_sources());
    app.tasks.spawn(async move { runtime.run_alerts(sources).await });
}

/// Deletes rows that are older than their retention, and follows changes of keys, for as long as the server runs.
fn watch_rows(app: &Arc<App>, stop: &CancellationToken) {
    let (retained, stopped) = (Arc::clone(app), stop.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            () = retention::watch(&retained) => {}
            () = stopped.cancelled() => {}
        }
    });
    let (watched, stopped) = (Arc::clone(app), stop.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            () = identity::watch(watched) => {}
            () = stopped.cancelled() => {}
        }
    });
}

/// Binds the address of `[metrics]`, if there is one.
async fn bind_metrics(app: &App) -> Result<Option<Listener>, StartError> {
    let Some(address) = app.config.metrics_listen else { return Ok(None) };
    if !address.ip().is_loopback() {
        tracing::warn!(code = "open_metrics", %address, "{OPEN_METRICS}");
    }
    let bounds = Bounds { connections: METRICS_CONNECTIONS, per_address: METRICS_CONNECTIONS, ..Bounds::default() };
    Listener::bind(address, bounds, app.tasks.clone()).await.map(Some).map_err(|source| StartError::Listen { address, source })
}

/// Serves metrics on their own address for as long as the server runs.
fn serve_metrics(app: &Arc<App>, listener: Option<Listener>, stop: &CancellationToken) {
    if let Some(listener) = listener {
        let serving = listener.serve(api::metrics_router(Arc::clone(app)), stop.clone());
        app.tasks.spawn(serving);
    }
}

/// Builds and maintains the indexes of the knowledge base, and removes deleted text, in the background for as long as the server runs.
fn watch_knowledge(app: &Arc<App>, stop: &CancellationToken) {
    if !app.config.modules.knowledge {
        return;
    }
    let (knowledge, stopped) = (Arc::clone(&app.knowledge), stop.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            () = knowledge.library().run() => {}
            () = knowledge.purge_in_background() => {}
            () = stopped.cancelled() => {}
        }
    });
}

/// Embeds new chunks in the background for as long as the server runs.
fn watch_embedder(app: &Arc<App>, stop: &CancellationToken) {
    let Some(embedder) = app.knowledge.embedder().cloned() else { return };
    let (knowledge, stopped) = (Arc::clone(&app.knowledge), stop.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            () = embedder.run(knowledge.library()) => {}
            () = stopped.cancelled() => {}
        }
    });
}

/// Lets running turns finish. The server future is polled meanwhile: it closes its listener and still answers clients that
/// wait for a turn.
async fn wind_down(app: &App, server: impl Future<Output = ()>) {
    let turns = async {
        app.runtime.drain().await;
        app.drained.cancel();
    };
    // A stalled client must not keep the process alive: connections still open a moment after the last turn are cut.
    let grace_period = async {
        app.drained.cancelled().await;
        tokio::time::sleep(CLOSING).await;
    };
    let connections = async {
        tokio::select! {
            () = server => {}
            () = grace_period => {}
        }
    };
    tokio::join!(turns, connections);
    app.modules.mcp.stop();
    app.modules.mcp.tokens_settled().await;
    app.traces.flush().await;
    app.tasks.close();
    let _ = tokio::time::timeout(CLOSING, app.tasks.wait()).await;
}

async fn reload(app: &App) {
    match app.reload().await {
        Ok(()) => {
            // SIGHUP: only the operator can send it.
            app.record(SERVER_CHAIN, Author::operator(), Act::new("server.reload", "configuration")).await;
            tracing::info!("configuration read again");
        }
        Err(violations) => {
            for violation in violations {
                tracing::error!(path = violation.path, line = violation.line, "configuration not taken over: {}", violation.message);
            }
        }
    }
}

/// Opens the certificate; without one, warns if other machines can reach this server and nothing else speaks HTTPS for it.
fn open_tls(app: &App) -> Result<Option<Arc<Tls>>, StartError> {
    let config = &app.config;
    if let Some(files) = &config.tls {
        let tls = Tls::open(files.clone()).map_err(|fault| StartError::Config(vec![config.certificate_violation(&fault)]))?;
        return Ok(Some(Arc::new(tls)));
    }
    let has_proxy = !config.trusted_proxies.is_empty() || config.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if !config.listen.ip().is_loopback() && !has_proxy {
        tracing::warn!(code = "plain_http", "{PLAIN_HTTP}");
    }
    Ok(None)
}

fn watch_certificate(app: &App, tls: Option<&Arc<Tls>>, stop: &CancellationToken) {
    let Some(tls) = tls.cloned() else { return };
    let stopped = stop.clone();
    app.tasks.spawn(async move {
        tokio::select! {
            () = tls.watch(CERTIFICATE_INTERVAL) => {}
            () = stopped.cancelled() => {}
        }
    });
}

/// Waits until the certificate was replaced; forever without TLS.
async fn certificate_replaced(tls: Option<&Tls>) {
    match tls {
        Some(tls) => tls.replaced().await,
        None => std::future::pending().await,
    }
}

/// Writes the new certificate into the lock file, so that commands trust it.
fn name_certificate(lock: Option<&mut LockFile>, tls: Option<&Tls>) {
    if let (Some(lock), Some(tls)) = (lock, tls)
        && let Err(error) = lock.set_certificate(tls.fingerprint())
    {
        tracing::error!(code = "io", %error, "the lock file was not written; commands do not find this server");
    }
}

fn url(address: SocketAddr, config: &Config) -> String {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", reachable(address))
}

/// Writes the lock file. With PostgreSQL there is none: commands open the shared database themselves.
fn write_lock_file(app: &App, address: SocketAddr, tls: Option<&Tls>) -> Result<Option<LockFile>, StartError> {
    let Some(path) = app.config.lock_path() else { return Ok(None) };
    let note = LockNote {
        address: url(address, &app.config),
        token: app.operator_token.expose_secret().to_owned(),
        pid: std::process::id(),
        certificate: tls.map(Tls::fingerprint),
    };
    LockFile::write(&path, note).map(Some).map_err(|source| StartError::Io { what: format!("cannot write {}", path.display()), source })
}

enum SignalRequest {
    Stop,
    Reload,
}

/// The signals this process reacts to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// A write beyond the limit of `ulimit -f` is an error like a full disk. Without a listener the signal would end the process.
    _too_large: Signal,
}

impl Signals {
    fn listen() -> Result<Self, StartError> {
        let listen = |kind| signal(kind).map_err(|source| StartError::Io { what: "cannot listen for signals".to_owned(), source });
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            _too_large: listen(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }
}
