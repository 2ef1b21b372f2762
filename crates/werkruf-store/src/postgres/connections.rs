//! [`Connections`] on PostgreSQL. A link is found by its token before its tenant is known, so links are read and written over all tenants.

use std::sync::Arc;

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::audit::record;
use super::fault::Fault;
use super::flush::{DbRole, Statement, Transaction};
use super::param::{clean_or_null, ms, p};
use super::row::{all, connection, connection_request, first};
use super::text::clean;
use crate::connections::{MAX_OF_SERVER, MAX_REQUESTS, MAX_TRIES};
use crate::reading::{CONNECTION, CONNECTION_REQUEST};
use crate::{
    Author, ConnectionChange, ConnectionKey, ConnectionRequest, ConnectionRow, Connections, KeyDigest, NewConnectionRequest, OpenedLink,
    StoreError, StoreFuture,
};

const EXPIRED: &str = "DELETE FROM connection_requests WHERE expires_at <= $1";
/// The id is new: a conflict is this very statement, committed by an attempt whose answer was lost.
const INSERT: &str = "INSERT INTO connection_requests (tenant_id, id, user_id, server, scope, digest, opened, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, false, $7, $8) ON CONFLICT (tenant_id, id) DO NOTHING";
const SURPLUS: &str = "DELETE FROM connection_requests WHERE tenant_id = $1 AND user_id = $2 AND id NOT IN (
    SELECT id FROM connection_requests WHERE tenant_id = $1 AND user_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3)";
/// Before the connection is written, and an erasure deletes in the same order: each waits for the other at this row.
const FINISHED: &str = "DELETE FROM connection_requests WHERE tenant_id = $1 AND id = $2 AND user_id = $3 AND server = $4 RETURNING true";
const PUT: &str = "INSERT INTO connections (tenant_id, user_id, server, sealed, expires_at, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $6)
    ON CONFLICT (tenant_id, user_id, server) DO UPDATE
      SET sealed = excluded.sealed, expires_at = excluded.expires_at, updated_at = excluded.updated_at RETURNING true";

impl Connections for PostgresStore {
    fn put_connection_request(&self, request: NewConnectionRequest) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let ConnectionKey { tenant_id, user_id, server } = &request.key;
            let (user, server, scope) = (clean(user_id), clean(server), clean_or_null(request.scope.as_deref()));
            let (digest, most) = (request.digest.0.as_str(), i64::from(MAX_REQUESTS));
            let (now, until) = (ms(request.created_at), ms(request.expires_at));
            let expired = [p(&now)];
            let insert = [p(tenant_id), p(&request.id), p(&user), p(&server), p(&scope), p(&digest), p(&now), p(&until)];
            let surplus = [p(tenant_id), p(&user), p(&most)];
            let statements = [
                Statement { sql: EXPIRED, params: &expired },
                Statement { sql: INSERT, params: &insert },
                Statement { sql: SURPLUS, params: &surplus },
            ];
            self.run(DbRole::System, &statements).await.map(|_| ())
        })
    }

    fn connection_link(&self, link: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "SELECT {CONNECTION_REQUEST} FROM connection_requests WHERE digest = $1 AND NOT opened AND expires_at > $2 AND tries < $3"
        );
        Box::pin(async move {
            let (digest, now, most) = (link.0.as_str(), ms(now), i64::from(MAX_TRIES));
            first(&self.query(DbRole::System, &sql, &[p(&digest), p(&now), p(&most)]).await?, connection_request)
        })
    }

    fn begin_connection_link(&self, link: KeyDigest, until: Timestamp, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "UPDATE connection_requests SET tries = tries + 1, opening_until = $2
             WHERE digest = $1 AND NOT opened AND expires_at > $3 AND tries < $4 AND (opening_until IS NULL OR opening_until <= $3)
             RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(async move {
            let (digest, until, now, most) = (link.0.as_str(), ms(until), ms(now), i64::from(MAX_TRIES));
            first(&self.query(DbRole::System, &sql, &[p(&digest), p(&until), p(&now), p(&most)]).await?, connection_request)
        })
    }

    fn release_connection_link(&self, link: KeyDigest) -> StoreFuture<'_, ()> {
        // No row matches where the link was deleted meanwhile.
        let sql = "UPDATE connection_requests SET opening_until = NULL WHERE digest = $1 AND NOT opened";
        Box::pin(async move {
            let digest = link.0.as_str();
            self.query(DbRole::System, sql, &[p(&digest)]).await.map(|_| ())
        })
    }

    fn open_connection_link(&self, link: KeyDigest, opened: OpenedLink, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        // A second attempt finds what the first one wrote: its state is new.
        let sql = format!(
            "UPDATE connection_requests SET digest = $2, browser = $3, sealed = $4, opened = true
             WHERE (digest = $1 AND NOT opened AND expires_at > $5) OR (digest = $2 AND opened AND browser = $3) RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(async move {
            let (link, state, browser) = (link.0.as_str(), opened.state.0.as_str(), opened.browser.0.as_str());
            let now = ms(now);
            let values = [p(&link), p(&state), p(&browser), p(&opened.sealed), p(&now)];
            first(&self.query(DbRole::System, &sql, &values).await?, connection_request)
        })
    }

    fn take_connection_request(&self, state: KeyDigest, browser: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "UPDATE connection_requests SET digest = 'taken ' || id
             WHERE digest = $1 AND browser = $2 AND opened AND expires_at > $3 RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(async move {
            let (state, browser, now) = (state.0.as_str(), browser.0.as_str(), ms(now));
            first(&self.query(DbRole::System, &sql, &[p(&state), p(&browser), p(&now)]).await?, connection_request)
        })
    }

    fn put_connection(&self, row: ConnectionRow, request: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let act = Arc::new((self.recorder.clone(), by, row));
        Box::pin(self.with(DbRole::System, move |transaction| {
            let act = Arc::clone(&act);
            Box::pin(async move {
                let (recorder, by, row) = (&act.0, &act.1, &act.2);
                let ConnectionKey { tenant_id, user_id, server } = &row.key;
                let (user, server) = (clean(user_id), clean(server));
                if transaction.query(FINISHED, &[p(tenant_id), p(&request), p(&user), p(&server)]).await?.is_empty() {
                    return Ok(transaction.is_retry() && stored(transaction, row).await?);
                }
                let (until, now) = (row.expires_at.map(ms), ms(row.updated_at));
                let values = [p(tenant_id), p(&user), p(&server), p(&row.sealed), p(&until), p(&now)];
                if transaction.query(PUT, &values).await?.len() != 1 {
                    return Err(StoreError::Moved { what: "connection", id: row.key.server.clone() }.into());
                }
                record(transaction, recorder, *tenant_id, by, &[row.key.act("connection.create")], row.updated_at).await?;
                Ok(true)
            })
        }))
    }

    fn connection(&self, key: ConnectionKey) -> StoreFuture<'_, Option<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE tenant_id = $1 AND user_id = $2 AND server = $3");
        Box::pin(async move {
            let (user, server) = (clean(&key.user_id), clean(&key.server));
            let values = [p(&key.tenant_id), p(&user), p(&server)];
            first(&self.query(DbRole::Tenant(key.tenant_id), &sql, &values).await?, connection)
        })
    }

    fn connections_of_person(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE tenant_id = $1 AND user_id = $2 ORDER BY server COLLATE \"C\"");
        Box::pin(async move {
            let user = clean(&user_id);
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&user)]).await?, connection)
        })
    }

    fn connections_of_server(&self, server: String) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE server = $1 ORDER BY tenant_id, user_id LIMIT $2");
        Box::pin(async move {
            let (server, most) = (clean(&server), i64::from(MAX_OF_SERVER));
            all(&self.query(DbRole::System, &sql, &[p(&server), p(&most)]).await?, connection)
        })
    }

    fn all_connections(&self) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections");
        Box::pin(async move { all(&self.query(DbRole::System, &sql, &[]).await?, connection) })
    }

    fn replace_connection(&self, key: ConnectionKey, change: ConnectionChange, now: Timestamp) -> StoreFuture<'_, bool> {
        // A second attempt finds the bytes that the first one wrote.
        let sql = "UPDATE connections SET sealed = $5, expires_at = $6, updated_at = $7
                   WHERE tenant_id = $1 AND user_id = $2 AND server = $3 AND sealed IN ($4, $5) RETURNING true";
        Box::pin(async move {
            let (user, server) = (clean(&key.user_id), clean(&key.server));
            let (until, now) = (change.expires_at.map(ms), ms(now));
            let values = [p(&key.tenant_id), p(&user), p(&server), p(&change.old), p(&change.sealed), p(&until), p(&now)];
            Ok(self.query(DbRole::Tenant(key.tenant_id), sql, &values).await?.len() == 1)
        })
    }

    fn delete_connection(&self, key: ConnectionKey, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRow>> {
        let act = Arc::new((self.recorder.clone(), by, key));
        let sql = format!("DELETE FROM connections WHERE tenant_id = $1 AND user_id = $2 AND server = $3 RETURNING {CONNECTION}");
        Box::pin(self.with(DbRole::System, move |transaction| {
            let (act, sql) = (Arc::clone(&act), sql.clone());
            Box::pin(async move {
                let (recorder, by, key) = (&act.0, &act.1, &act.2);
                let (user, server) = (clean(&key.user_id), clean(&key.server));
                let rows = transaction.query(&sql, &[p(&key.tenant_id), p(&user), p(&server)]).await?;
                let Some(row) = first(&rows, connection)? else { return Ok(None) };
                record(transaction, recorder, key.tenant_id, by, &[key.act("connection.delete")], now).await?;
                Ok(Some(row))
            })
        }))
    }
}

/// Whether an attempt whose answer was lost has stored this very connection.
async fn stored(transaction: &Transaction, row: &ConnectionRow) -> Result<bool, Fault> {
    let sql = "SELECT true FROM connections WHERE tenant_id = $1 AND user_id = $2 AND server = $3 AND sealed = $4";
    let (user, server) = (clean(&row.key.user_id), clean(&row.key.server));
    Ok(!transaction.query(sql, &[p(&row.key.tenant_id), p(&user), p(&server), p(&row.sealed)]).await?.is_empty())
}
