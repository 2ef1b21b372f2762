//! [`ConsoleSessions`] and [`Hints`] on PostgreSQL. A session is found by its token before its tenant is known, so its table is read and
//! written over all tenants.

use jiff::Timestamp;
use werkruf_contract::Uuid;

use super::PostgresStore;
use super::flush::{DbRole, Statement};
use super::param::{ms, p};
use super::row::{self, all, first};
use crate::console::MAX_SESSIONS;
use crate::hints::{HintDialect, hints_sql};
use crate::reading::CONSOLE_SESSION;
use crate::{ConsoleSession, ConsoleSessions, HintRow, Hints, KeyDigest, LinkUse, NewConsoleSession, StoreFuture};

const EXPIRED: &str = "DELETE FROM console_sessions WHERE expires_at <= $1";
/// The id is new: a conflict is this very statement, committed by an attempt whose answer was lost.
const INSERT: &str = "INSERT INTO console_sessions (tenant_id, id, digest, link, key_id, operator_digest, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant_id, id) DO NOTHING";
const SURPLUS: &str = "DELETE FROM console_sessions WHERE tenant_id = $1 AND link = $2 AND key_id IS NOT DISTINCT FROM $3 AND id NOT IN (
    SELECT id FROM console_sessions WHERE tenant_id = $1 AND link = $2 AND key_id IS NOT DISTINCT FROM $3
    ORDER BY created_at DESC, id DESC LIMIT $4)";

impl ConsoleSessions for PostgresStore {
    fn put_console_session(&self, session: NewConsoleSession) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (tenant, key, operator) = session.holder.columns();
            let (now, until, most) = (ms(session.created_at), ms(session.expires_at), i64::from(MAX_SESSIONS));
            let digest = session.digest.0.as_str();
            let expired = [p(&now)];
            let insert = [p(&tenant), p(&session.id), p(&digest), p(&session.link), p(&key), p(&operator), p(&now), p(&until)];
            let surplus = [p(&tenant), p(&session.link), p(&key), p(&most)];
            let statements = [
                Statement { sql: EXPIRED, params: &expired },
                Statement { sql: INSERT, params: &insert },
                Statement { sql: SURPLUS, params: &surplus },
            ];
            self.run(DbRole::System, &statements).await.map(|_| ())
        })
    }

    fn use_console_link(&self, link: KeyDigest, session: LinkUse) -> StoreFuture<'_, Option<ConsoleSession>> {
        // A second attempt finds the session that the first one made: its token is new.
        let sql = format!(
            "UPDATE console_sessions SET digest = $2, link = false, created_at = $3, expires_at = $4
             WHERE (digest = $1 AND link AND expires_at > $3) OR (digest = $2 AND NOT link) RETURNING {CONSOLE_SESSION}"
        );
        Box::pin(async move {
            let (old, new) = (link.0.as_str(), session.digest.0.as_str());
            let (now, until) = (ms(session.now), ms(session.expires_at));
            first(&self.query(DbRole::System, &sql, &[p(&old), p(&new), p(&now), p(&until)]).await?, row::console_session)
        })
    }

    fn console_session(&self, digest: KeyDigest, now: Timestamp) -> StoreFuture<'_, Option<ConsoleSession>> {
        let sql = format!("SELECT {CONSOLE_SESSION} FROM console_sessions WHERE digest = $1 AND NOT link AND expires_at > $2");
        Box::pin(async move {
            let (digest, now) = (digest.0.as_str(), ms(now));
            first(&self.query(DbRole::System, &sql, &[p(&digest), p(&now)]).await?, row::console_session)
        })
    }

    fn console_sessions_by_id(&self, ids: Vec<Uuid>) -> StoreFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let sql = "SELECT id FROM console_sessions WHERE id = ANY ($1)";
            all(&self.query(DbRole::System, sql, &[p(&ids)]).await?, |columns| columns.id())
        })
    }

    fn delete_console_session(&self, id: Uuid) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let sql = "DELETE FROM console_sessions WHERE id = $1 AND NOT link RETURNING true";
            Ok(self.query(DbRole::System, sql, &[p(&id)]).await?.len() == 1)
        })
    }
}

impl Hints for PostgresStore {
    fn hints(&self, tenant_id: Uuid, since: Uuid, named: Vec<Uuid>) -> StoreFuture<'_, Vec<HintRow>> {
        Box::pin(async move {
            let sql = hints_sql(&HintDialect { parameter: '$', named: "= ANY ($3)", text: "::text", off_index: "" });
            let values = [p(&tenant_id), p(&since), p(&named)];
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, row::hint)
        })
    }
}
