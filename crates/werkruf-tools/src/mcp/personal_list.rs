//! The tools of a server at which each person has an account: listed with the account of somebody who has connected.
//!
//! Until somebody has, and after a restart, the pinned definitions are offered.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Tool;
use tokio_util::sync::CancellationToken;
use werkruf_contract::Deadline;
use werkruf_store::ConnectionKey;

use super::bearer::Bearer;
use super::link::Connection;
use super::oauth::FaultKind;
use super::personal::{PersonalServer, Service};
use super::session::Session;

/// How often the pins and the connections of people are looked at.
const LOOK: Duration = Duration::from_secs(3);

/// Follows the tools of the server until `stop`.
pub(super) async fn follow(session: Arc<Session>, server: Arc<PersonalServer>, stop: CancellationToken) {
    tokio::select! {
        () = run(&session, &server) => {}
        () = stop.cancelled() => {}
    }
}

async fn run(session: &Session, server: &PersonalServer) {
    let mut list = pinned(session).await;
    session.compare(&list).await;
    let every = Duration::from_secs(session.offer.config.refresh_s);
    loop {
        let connection = match listed(server).await {
            Ok(Some((fresh, service))) => {
                list = fresh;
                session.compare(&list).await;
                Connection::Up(service.peer().clone())
            }
            Ok(None) => Connection::Absent,
            Err(why) => {
                tracing::warn!(server = server.name(), "the tools of an MCP server cannot be listed: {why}");
                Connection::Down(why)
            }
        };
        session.link.set(connection);
        let (again, known) = (Deadline::after(every), people(server).await);
        loop {
            tokio::select! {
                () = server.connected.notified() => break,
                () = session.compare.notified() => session.compare(&list).await,
                () = tokio::time::sleep(LOOK) => server.close_idle(),
            }
            if !session.offer.offered().changed.is_empty() {
                // Somebody may have accepted the change, at another process too.
                session.compare(&list).await;
            }
            if again.passed() || people(server).await != known {
                break;
            }
        }
    }
}

/// Who has connected an account, also at another process; nobody while the store does not answer.
async fn people(server: &PersonalServer) -> HashSet<ConnectionKey> {
    server.connector.people().await.unwrap_or_default().into_iter().collect()
}

/// The definitions as the store has them. One that has changed stays as the server offered it.
async fn pinned(session: &Session) -> Vec<Tool> {
    let pins = session.offer.pins().await.unwrap_or_default();
    let text = |pin: werkruf_store::ToolPin| pin.change.map_or(pin.definition, |change| change.definition);
    pins.into_iter().filter_map(|pin| serde_json::from_str(&text(pin)).ok()).collect()
}

/// Why a person's account has no list.
enum NoList {
    /// The server does not accept the account.
    Refused,
    Failed(String),
}

/// The list of the server, asked with the account of one person after the other until one works; `None` if nobody has one that is accepted.
async fn listed(server: &PersonalServer) -> Result<Option<(Vec<Tool>, Service)>, String> {
    let people = server.connector.people().await.map_err(|fault| fault.to_string())?;
    let mut why = None;
    for person in people {
        match list_as(server, &person).await {
            Ok(found) => return Ok(Some(found)),
            Err(NoList::Refused) => {}
            Err(NoList::Failed(error)) => why = Some(error),
        }
    }
    why.map_or(Ok(None), Err)
}

/// A token that the server refuses is renewed once.
async fn list_as(server: &PersonalServer, person: &ConnectionKey) -> Result<(Vec<Tool>, Service), NoList> {
    let mut bad = None;
    for _ in 0..2 {
        let found = server.connector.token(person, bad.as_ref()).await.map_err(|fault| match fault.kind {
            FaultKind::NeedsConnection => NoList::Refused,
            _ => NoList::Failed(fault.to_string()),
        })?;
        let (token, bearer) = (found.token, Arc::new(Bearer::default()));
        bearer.set(token.clone());
        let opened = match server.open(&bearer).await {
            Ok(service) => Session::list(service.peer()).await.map(|list| (list, service)),
            Err(error) => Err(error),
        };
        match (opened, bearer.take_refusal()) {
            (Ok(found), _) => return Ok(found),
            (Err(_), Some(refusal)) if !refusal.lacks_scope => bad = Some(token),
            (Err(_), Some(_)) => return Err(NoList::Refused),
            (Err(error), None) => return Err(NoList::Failed(error)),
        }
    }
    Err(NoList::Refused)
}
