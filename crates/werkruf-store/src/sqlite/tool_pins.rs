//! [`ToolPins`] on SQLite.

use jiff::Timestamp;
use rusqlite::params;

use super::SqliteStore;
use super::audit::record;
use super::row::{self, all, first};
use super::text::{Id, Stamp};
use crate::reading::TOOL_PIN;
use crate::tool_pins::accepted;
use crate::{Author, INSTALLATION, SERVER_CHAIN, SeenTool, StoreError, StoreFuture, ToolPin, ToolPins};

impl ToolPins for SqliteStore {
    fn tool_pins(&self) -> StoreFuture<'_, Vec<ToolPin>> {
        Box::pin(self.readers.list(|c| {
            let sql = format!("SELECT {TOOL_PIN} FROM tool_pins WHERE tenant_id = ?1 ORDER BY name");
            all(&mut *c.prepare_cached(&sql)?, params![Id::from(INSTALLATION)], row::tool_pin)
        }))
    }

    fn see_tool(&self, seen: SeenTool, now: Timestamp) -> StoreFuture<'_, ToolPin> {
        let sql = format!(
            "INSERT INTO tool_pins (tenant_id, name, server, digest, definition, accepted_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (tenant_id, name) DO UPDATE SET
               changed_digest = iif(digest = excluded.digest, NULL, excluded.digest),
               changed_definition = iif(digest = excluded.digest, NULL, excluded.definition),
               changed_at = CASE WHEN digest = excluded.digest THEN NULL WHEN changed_digest = excluded.digest THEN changed_at
                                 ELSE excluded.accepted_at END
             RETURNING {TOOL_PIN}"
        );
        Box::pin(self.writer.submit(move |c| {
            let values = params![Id::from(INSTALLATION), seen.name, seen.server, seen.digest, seen.definition, Stamp::from(now)];
            let pin = first(&mut *c.prepare_cached(&sql)?, values, row::tool_pin)?;
            pin.ok_or_else(|| StoreError::Moved { what: "tool", id: seen.name.clone() })
        }))
    }

    fn accept_tool(&self, name: String, digest: String, by: Author, now: Timestamp) -> StoreFuture<'_, Option<ToolPin>> {
        let recorder = self.recorder.clone();
        Box::pin(self.writer.submit(move |c| {
            let sql = format!("SELECT {TOOL_PIN} FROM tool_pins WHERE tenant_id = ?1 AND name = ?2");
            let Some(before) = first(&mut *c.prepare_cached(&sql)?, params![Id::from(INSTALLATION), name], row::tool_pin)? else {
                return Ok(None);
            };
            let sql = format!(
                "UPDATE tool_pins SET digest = changed_digest, definition = changed_definition, accepted_at = ?4,
                   changed_digest = NULL, changed_definition = NULL, changed_at = NULL
                 WHERE tenant_id = ?1 AND name = ?2 AND changed_digest = ?3 RETURNING {TOOL_PIN}"
            );
            let values = params![Id::from(INSTALLATION), name, digest, Stamp::from(now)];
            let Some(pin) = first(&mut *c.prepare_cached(&sql)?, values, row::tool_pin)? else { return Ok(None) };
            record(c, &recorder, SERVER_CHAIN, &by, &[accepted(&pin, &before.digest)], now)?;
            Ok(Some(pin))
        }))
    }
}
