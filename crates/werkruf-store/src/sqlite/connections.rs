//! [`Connections`] on SQLite.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;

use super::SqliteStore;
use super::audit::record;
use super::row::{all, connection, connection_request, first};
use super::text::{Id, Stamp};
use crate::connections::{MAX_OF_SERVER, MAX_REQUESTS, MAX_TRIES};
use crate::reading::{CONNECTION, CONNECTION_REQUEST};
use crate::{
    Author, ConnectionChange, ConnectionKey, ConnectionRequest, ConnectionRow, Connections, KeyDigest, NewConnectionRequest, OpenedLink,
    StoreError, StoreFuture,
};

impl Connections for SqliteStore {
    fn put_connection_request(&self, request: NewConnectionRequest) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            let ConnectionKey { tenant_id, user_id, server } = &request.key;
            let (tenant, now) = (Id::from(*tenant_id), Stamp::from(request.created_at));
            c.prepare_cached("DELETE FROM connection_requests WHERE expires_at <= ?1")?.execute(params![now])?;
            let sql = "INSERT INTO connection_requests (tenant_id, id, user_id, server, scope, digest, opened, created_at, expires_at)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8)";
            let until = Stamp::from(request.expires_at);
            let values = params![tenant, Id::from(request.id), user_id, server, request.scope, request.digest.0, now, until];
            if c.prepare_cached(sql)?.execute(values)? != 1 {
                return Err(StoreError::Broken("a link was not inserted".to_owned()));
            }
            let surplus = "DELETE FROM connection_requests WHERE tenant_id = ?1 AND user_id = ?2 AND id NOT IN (
                SELECT id FROM connection_requests WHERE tenant_id = ?1 AND user_id = ?2 ORDER BY created_at DESC, id DESC LIMIT ?3)";
            c.prepare_cached(surplus)?.execute(params![tenant, user_id, MAX_REQUESTS])?;
            Ok(())
        }))
    }

    fn connection_link(&self, link: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "SELECT {CONNECTION_REQUEST} FROM connection_requests WHERE digest = ?1 AND opened = 0 AND expires_at > ?2 AND tries < ?3"
        );
        let look =
            move |c: &Connection| first(&mut *c.prepare_cached(&sql)?, params![link.0, Stamp::from(now), MAX_TRIES], connection_request);
        Box::pin(self.readers.look_up(look))
    }

    fn begin_connection_link(&self, link: KeyDigest, until: Timestamp, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "UPDATE connection_requests SET tries = tries + 1, opening_until = ?2
             WHERE digest = ?1 AND opened = 0 AND expires_at > ?3 AND tries < ?4 AND (opening_until IS NULL OR opening_until <= ?3)
             RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(self.writer.submit(move |c| {
            let values = params![link.0, Stamp::from(until), Stamp::from(now), MAX_TRIES];
            first(&mut *c.prepare_cached(&sql)?, values, connection_request)
        }))
    }

    fn release_connection_link(&self, link: KeyDigest) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.submit(move |c| {
            // No row matches where the link was deleted meanwhile.
            c.prepare_cached("UPDATE connection_requests SET opening_until = NULL WHERE digest = ?1 AND opened = 0")?.execute([link.0])?;
            Ok(())
        }))
    }

    fn open_connection_link(&self, link: KeyDigest, opened: OpenedLink, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "UPDATE connection_requests SET digest = ?2, browser = ?3, sealed = ?4, opened = 1
             WHERE digest = ?1 AND opened = 0 AND expires_at > ?5 RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(self.writer.submit(move |c| {
            let values = params![link.0, opened.state.0, opened.browser.0, opened.sealed, Stamp::from(now)];
            first(&mut *c.prepare_cached(&sql)?, values, connection_request)
        }))
    }

    fn take_connection_request(&self, state: KeyDigest, browser: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRequest>> {
        let sql = format!(
            "UPDATE connection_requests SET digest = 'taken ' || id
             WHERE digest = ?1 AND browser = ?2 AND opened = 1 AND expires_at > ?3 RETURNING {CONNECTION_REQUEST}"
        );
        Box::pin(
            self.writer
                .submit(move |c| first(&mut *c.prepare_cached(&sql)?, params![state.0, browser.0, Stamp::from(now)], connection_request)),
        )
    }

    fn put_connection(&self, row: ConnectionRow, request: Uuid, by: Author) -> StoreFuture<'_, bool> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let ConnectionKey { tenant_id, user_id, server } = &row.key;
            let finished = "DELETE FROM connection_requests WHERE tenant_id = ?1 AND id = ?2 AND user_id = ?3 AND server = ?4";
            if c.prepare_cached(finished)?.execute(params![Id::from(*tenant_id), Id::from(request), user_id, server])? != 1 {
                return Ok(false);
            }
            let sql = "INSERT INTO connections (tenant_id, user_id, server, sealed, expires_at, created_at, updated_at)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)
                       ON CONFLICT (tenant_id, user_id, server) DO UPDATE
                         SET sealed = excluded.sealed, expires_at = excluded.expires_at, updated_at = excluded.updated_at";
            let (until, now) = (row.expires_at.map(Stamp::from), Stamp::from(row.updated_at));
            let values = params![Id::from(*tenant_id), user_id, server, row.sealed, until, now];
            if c.prepare_cached(sql)?.execute(values)? != 1 {
                return Err(StoreError::Moved { what: "connection", id: server.clone() });
            }
            record(c, &recorder, *tenant_id, &by, &[row.key.act("connection.create")], row.updated_at)?;
            Ok(true)
        }))
    }

    fn connection(&self, key: ConnectionKey) -> StoreFuture<'_, Option<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE tenant_id = ?1 AND user_id = ?2 AND server = ?3");
        Box::pin(
            self.readers.look_up(move |c| {
                first(&mut *c.prepare_cached(&sql)?, params![Id::from(key.tenant_id), key.user_id, key.server], connection)
            }),
        )
    }

    fn connections_of_person(&self, tenant_id: Uuid, user_id: String) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE tenant_id = ?1 AND user_id = ?2 ORDER BY server");
        Box::pin(self.readers.list(move |c| all(&mut *c.prepare_cached(&sql)?, params![Id::from(tenant_id), user_id], connection)))
    }

    fn connections_of_server(&self, server: String) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections WHERE server = ?1 ORDER BY tenant_id, user_id LIMIT ?2");
        Box::pin(self.readers.list(move |c| all(&mut *c.prepare_cached(&sql)?, params![server, MAX_OF_SERVER], connection)))
    }

    fn all_connections(&self) -> StoreFuture<'_, Vec<ConnectionRow>> {
        let sql = format!("SELECT {CONNECTION} FROM connections");
        Box::pin(self.readers.list(move |c| all(&mut *c.prepare_cached(&sql)?, params![], connection)))
    }

    fn replace_connection(&self, key: ConnectionKey, change: ConnectionChange, now: Timestamp) -> StoreFuture<'_, bool> {
        let sql = "UPDATE connections SET sealed = ?5, expires_at = ?6, updated_at = ?7
                   WHERE tenant_id = ?1 AND user_id = ?2 AND server = ?3 AND sealed = ?4";
        Box::pin(self.writer.submit(move |c| {
            let (tenant, until, now) = (Id::from(key.tenant_id), change.expires_at.map(Stamp::from), Stamp::from(now));
            let values = params![tenant, key.user_id, key.server, change.old, change.sealed, until, now];
            Ok(c.prepare_cached(sql)?.execute(values)? == 1)
        }))
    }

    fn delete_connection(&self, key: ConnectionKey, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ConnectionRow>> {
        let recorder = self.recorder.clone();
        let sql = format!("DELETE FROM connections WHERE tenant_id = ?1 AND user_id = ?2 AND server = ?3 RETURNING {CONNECTION}");
        Box::pin(self.writer.submit(move |c| {
            let values = params![Id::from(key.tenant_id), key.user_id, key.server];
            let Some(row) = first(&mut *c.prepare_cached(&sql)?, values, connection)? else { return Ok(None) };
            record(c, &recorder, key.tenant_id, &by, &[key.act("connection.delete")], now)?;
            Ok(Some(row))
        }))
    }
}
