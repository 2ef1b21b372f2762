//! [`ToolPins`] on PostgreSQL: one row per tool, shared by all processes.

use std::sync::Arc;

use jiff::Timestamp;

use super::PostgresStore;
use super::audit::record;
use super::flush::DbRole;
use super::param::{ms, p};
use super::row::{self, all, first};
use super::text::clean;
use crate::reading::{TOOL_PIN, qualified};
use crate::tool_pins::accepted;
use crate::{Author, INSTALLATION, SERVER_CHAIN, SeenTool, StoreError, StoreFuture, ToolPin, ToolPins};

impl ToolPins for PostgresStore {
    fn tool_pins(&self) -> StoreFuture<'_, Vec<ToolPin>> {
        Box::pin(async move {
            let sql = format!("SELECT {TOOL_PIN} FROM tool_pins WHERE tenant_id = $1 ORDER BY name COLLATE \"C\"");
            all(&self.query(DbRole::Tenant(INSTALLATION), &sql, &[p(&INSTALLATION)]).await?, row::tool_pin)
        })
    }

    fn see_tool(&self, seen: SeenTool, now: Timestamp) -> StoreFuture<'_, ToolPin> {
        let sql = format!(
            "INSERT INTO tool_pins AS pin (tenant_id, name, server, digest, definition, accepted_at) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (tenant_id, name) DO UPDATE SET
               changed_digest = CASE WHEN pin.digest = excluded.digest THEN NULL ELSE excluded.digest END,
               changed_definition = CASE WHEN pin.digest = excluded.digest THEN NULL ELSE excluded.definition END,
               changed_at = CASE WHEN pin.digest = excluded.digest THEN NULL WHEN pin.changed_digest = excluded.digest THEN pin.changed_at
                                 ELSE excluded.accepted_at END
             RETURNING {}",
            qualified(TOOL_PIN, "pin")
        );
        Box::pin(async move {
            let (name, server, digest) = (clean(&seen.name), clean(&seen.server), clean(&seen.digest));
            let (definition, now) = (clean(&seen.definition), ms(now));
            let values = [p(&INSTALLATION), p(&name), p(&server), p(&digest), p(&definition), p(&now)];
            let pin = first(&self.query(DbRole::Tenant(INSTALLATION), &sql, &values).await?, row::tool_pin)?;
            pin.ok_or_else(|| StoreError::Moved { what: "tool", id: seen.name.clone() })
        })
    }

    fn accept_tool(&self, name: String, digest: String, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ToolPin>> {
        let act = Arc::new((self.recorder.clone(), by, clean(&name).into_owned(), clean(&digest).into_owned()));
        Box::pin(self.with(DbRole::System, move |transaction| {
            let act = Arc::clone(&act);
            Box::pin(async move {
                let (recorder, by, name, digest) = (&act.0, &act.1, act.2.as_str(), act.3.as_str());
                let sql = format!("SELECT {TOOL_PIN} FROM tool_pins WHERE tenant_id = $1 AND name = $2 FOR UPDATE");
                let Some(before) = first(&transaction.query(&sql, &[p(&INSTALLATION), p(&name)]).await?, row::tool_pin)? else {
                    return Ok(None);
                };
                if transaction.is_retry() && before.digest == digest && before.change.is_none() {
                    return Ok(Some(before));
                }
                let sql = format!(
                    "UPDATE tool_pins SET digest = changed_digest, definition = changed_definition, accepted_at = $4,
                       changed_digest = NULL, changed_definition = NULL, changed_at = NULL
                     WHERE tenant_id = $1 AND name = $2 AND changed_digest = $3 RETURNING {TOOL_PIN}"
                );
                let at = ms(now);
                let rows = transaction.query(&sql, &[p(&INSTALLATION), p(&name), p(&digest), p(&at)]).await?;
                let Some(pin) = first(&rows, row::tool_pin)? else { return Ok(None) };
                record(transaction, recorder, SERVER_CHAIN, by, &[accepted(&pin, &before.digest)], now).await?;
                Ok(Some(pin))
            })
        }))
    }
}
