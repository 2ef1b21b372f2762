//! All MCP servers of the configuration. A reload keeps the connections of those whose declaration is the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use werkruf_contract::{Clock, ToolObject, Uuid};
use werkruf_store::{ConnectionRow, ToolPins};

use super::config::{McpServerConfig, Reach};
use super::link::{Connection, Link};
use super::oauth::{Connector, LoginSettings, OAuthServices};
use super::offer::Offer;
use super::personal::PersonalServer;
use super::personal_list;
use super::session::Session;
use super::tool::McpTool;
use crate::declared_fields::Variables;

/// How long an end of the process waits for tokens: a request to an authorization server takes ten seconds at most.
const SETTLE: Duration = Duration::from_secs(12);

/// What connections need.
#[derive(Clone)]
pub struct McpServices {
    pub pins: Arc<dyn ToolPins>,
    pub clock: Clock,
    pub tasks: TaskTracker,
    /// For servers at which people have accounts of their own.
    pub oauth: OAuthServices,
}

/// The servers of a process. Nothing is opened before [`McpServers::apply`].
#[derive(Default)]
pub struct McpServers {
    running: Mutex<Vec<RunningServer>>,
    changed: Arc<Notify>,
    /// Renewals and revocations of people's tokens.
    token_tasks: TaskTracker,
}

struct RunningServer {
    digest: String,
    session: Arc<Session>,
    stop: CancellationToken,
}

/// A valid declaration, with its variables.
struct Declared {
    config: McpServerConfig,
    reach: Reach,
    login: Option<LoginSettings>,
    digest: String,
}

/// A tool that a server offers.
pub struct OfferedTool {
    /// The name of the server.
    pub server: String,
    /// The server's own name of the tool.
    pub own_name: String,
    pub tool: Arc<dyn ToolObject>,
}

/// A server as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerState {
    pub name: String,
    /// `connecting`, `connected`, `failed` or `needs_connection`.
    pub state: &'static str,
    /// The protocol that was agreed on.
    pub protocol: Option<String>,
    /// Why there is no connection.
    pub error: Option<String>,
    /// The names of the tools that are offered.
    pub tools: Vec<String>,
    /// The names of the tools whose definition has changed.
    pub changed: Vec<String>,
    /// Tools that cannot be offered: the server's own name, and why.
    pub refused: Vec<(String, String)>,
}

impl McpServers {
    fn lock(&self) -> MutexGuard<'_, Vec<RunningServer>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to these servers, which are valid declarations, and to no others. Where `client` may reach other addresses than before, connections
    /// to addresses are opened again.
    pub fn apply(&self, declared: &[McpServerConfig], client: &reqwest::Client, services: &McpServices, env: Variables<'_>) {
        let mut running = self.lock();
        let mut earlier = std::mem::take(&mut *running);
        for config in declared {
            let (Ok(reach), Ok(login)) = (config.reach(env), config.login(env)) else { continue };
            let digest = config.digest(&reach, login.as_ref(), &services.oauth.egress);
            let kept = earlier.iter().position(|server| server.digest == digest).map(|at| earlier.swap_remove(at));
            running.push(kept.unwrap_or_else(|| self.start(Declared { config: config.clone(), reach, login, digest }, client, services)));
        }
        earlier.iter().for_each(|server| server.stop.cancel());
        self.changed.notify_one();
    }

    fn start(&self, declared: Declared, client: &reqwest::Client, services: &McpServices) -> RunningServer {
        let Declared { config, reach, login, digest } = declared;
        let personal = login.and_then(|login| personal(&config, &reach, login, client, services));
        let link = Arc::new(Link::new(config.concurrency, personal.clone()));
        let session = Arc::new(Session {
            reach,
            offer: Offer::new(config, Arc::clone(&link), Arc::clone(&services.pins), services.clock.clone()),
            link,
            client: client.clone(),
            tasks: services.tasks.clone(),
            changed: Arc::clone(&self.changed),
            compare: Notify::new(),
        });
        let stop = CancellationToken::new();
        match personal {
            Some(personal) => services.tasks.spawn(personal_list::follow(Arc::clone(&session), personal, stop.clone())),
            None => services.tasks.spawn(Arc::clone(&session).run(stop.clone())),
        };
        RunningServer { digest, session, stop }
    }

    /// The server of this name, if people have accounts of their own there.
    pub fn personal(&self, name: &str) -> Option<Arc<PersonalServer>> {
        self.all_personal().into_iter().find(|server| server.name() == name)
    }

    /// The servers at which people have accounts of their own, in the order of the configuration.
    pub fn all_personal(&self) -> Vec<Arc<PersonalServer>> {
        self.lock().iter().filter_map(|server| server.session.link.personal().cloned()).collect()
    }

    /// For what must not end with its caller: [`OAuthServices::tasks`].
    pub fn token_tasks(&self) -> TaskTracker {
        self.token_tasks.clone()
    }

    /// Waits until tokens that are being renewed are stored, for a while. A new token that is lost costs its person another login.
    pub async fn tokens_settled(&self) {
        self.token_tasks.close();
        if tokio::time::timeout(SETTLE, self.token_tasks.wait()).await.is_err() {
            tracing::warn!("work with tokens of people did not end in time");
        }
        self.token_tasks.reopen();
    }

    /// Tells the authorization servers that the tokens of these connections are not used any more, where the connections are with servers of the
    /// configuration. It returns at once; whether a server could be told is in the log.
    pub fn revoke(
        &self,
        rows: Vec<ConnectionRow>,
        declared: &[McpServerConfig],
        client: &reqwest::Client,
        services: &McpServices,
        env: Variables<'_>,
    ) {
        for row in rows {
            let config = declared.iter().find(|config| config.name == row.key.server);
            let reached =
                config.and_then(|config| config.reach(env).ok().zip(config.login(env).ok().flatten()).map(|found| (config, found)));
            let server = reached.and_then(|(config, (reach, login))| personal(config, &reach, login, client, services));
            match server {
                Some(server) => {
                    self.token_tasks.spawn(async move { server.connector.revoke(&row).await });
                }
                None => {
                    tracing::warn!(server = row.key.server, "a token was deleted here, and its server is not in the configuration any more")
                }
            }
        }
    }

    /// Closes the connections of a person.
    pub fn close_person(&self, tenant_id: Uuid, user_id: &str) {
        self.all_personal().iter().for_each(|server| server.close_person(tenant_id, user_id));
    }

    /// Waits until another tool is offered, or one no longer is.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The tools that are offered, in the order of the configuration.
    pub fn tools(&self) -> Vec<OfferedTool> {
        let sessions: Vec<Arc<Session>> = self.lock().iter().map(|server| Arc::clone(&server.session)).collect();
        let of_server = |session: &Arc<Session>| {
            let server = session.offer.config.name.clone();
            let offered =
                move |tool: Arc<McpTool>| OfferedTool { server: server.clone(), own_name: tool.definition().own_name.clone(), tool };
            session.offer.offered().tools.into_iter().map(offered).collect::<Vec<_>>()
        };
        sessions.iter().flat_map(of_server).collect()
    }

    /// All servers, in the order of the configuration.
    pub fn states(&self) -> Vec<McpServerState> {
        self.lock().iter().map(|server| state(&server.session)).collect()
    }

    /// Compares all tools with the pins again, after a change was accepted.
    pub fn compare(&self) {
        self.lock().iter().for_each(|server| server.session.compare.notify_one());
    }

    /// Ends all connections and programs. The tasks that the services were given end soon after.
    pub fn stop(&self) {
        self.lock().drain(..).for_each(|server| server.stop.cancel());
    }
}

/// The part of a server with an address that has accounts of people.
fn personal(
    config: &McpServerConfig,
    reach: &Reach,
    login: LoginSettings,
    client: &reqwest::Client,
    services: &McpServices,
) -> Option<Arc<PersonalServer>> {
    let Reach::Http { url, headers } = reach else { return None };
    let connector = Connector::new(config.name.clone(), url.clone(), login, client.clone(), services.oauth.clone());
    Some(Arc::new(PersonalServer::new(connector, config.clone(), url.clone(), headers.clone(), client.clone())))
}

fn state(session: &Session) -> McpServerState {
    let offered = session.offer.offered();
    let (state, protocol, error) = match session.link.connection() {
        Connection::Connecting => ("connecting", None, None),
        Connection::Up(peer) => ("connected", peer.peer_info().map(|info| info.protocol_version.as_str().to_owned()), None),
        Connection::Down(why) => ("failed", None, Some(why)),
        Connection::Absent => {
            let hint = format!("nobody has connected an account; `werkruf connect {}` connects one", session.offer.config.name);
            ("needs_connection", None, Some(hint))
        }
    };
    McpServerState {
        name: session.offer.config.name.clone(),
        state,
        protocol,
        error,
        tools: offered.tools.iter().map(|tool| tool.definition().spec.name.to_string()).collect(),
        changed: offered.changed,
        refused: offered.refused,
    }
}
