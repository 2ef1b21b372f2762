//! Writes of documents and vectors on SQLite. Each function runs inside the writer's transaction.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use werkruf_store::StoreError;
use werkruf_store::sqlite::{Id, Stamp, all};

use crate::rights::role_list;
use crate::{Added, NewDocument, NewDocuments, NewRights, NewVector, REMEMBERED_CHANGES, Trust};

/// `terms`: the stored terms of every chunk, in order.
pub(crate) fn add(c: &Connection, batch: &NewDocuments, terms: &[Vec<u8>]) -> Result<Added, StoreError> {
    let (tenant, now) = (Id::from(batch.tenant_id), Stamp::from(batch.now));
    c.prepare_cached("INSERT INTO collections (tenant_id, name, change, created_at) VALUES (?1, ?2, 0, ?3) ON CONFLICT DO NOTHING")?
        .execute(params![tenant, batch.collection, now])?;
    let mut added = Added::default();
    let mut change = None;
    let mut terms = terms.iter();
    for document in &batch.documents {
        let terms: Vec<&Vec<u8>> = terms.by_ref().take(document.chunks.len()).collect();
        let mut statement = c.prepare_cached(
            "SELECT id, digest, version, created_at FROM documents WHERE tenant_id = ?1 AND collection = ?2 AND document_id = ?3",
        )?;
        let known: Option<(String, String, i64, String)> = statement
            .query_row(params![tenant, batch.collection, document.document_id], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        if known.as_ref().is_some_and(|(_, digest, ..)| *digest == document.digest) {
            added.unchanged += 1;
            continue;
        }
        let change = match change {
            Some(change) => change,
            None => *change.insert(next_change(c, &tenant, &batch.collection)?),
        };
        let (version, created_at) = match known {
            Some((id, _, version, created_at)) => {
                delete_chunks(c, &tenant, &batch.collection, &id, change)?;
                added.replaced += 1;
                (version + 1, Some(created_at))
            }
            None => {
                added.accepted += 1;
                (1, None)
            }
        };
        insert(c, batch, (document, &terms), change, version, created_at.as_deref(), &now)?;
        added.chunks += document.chunks.len() as u64;
    }
    Ok(added)
}

fn insert(
    c: &Connection,
    batch: &NewDocuments,
    (document, terms): (&NewDocument, &[&Vec<u8>]),
    change: i64,
    version: i64,
    created_at: Option<&str>,
    now: &Stamp,
) -> Result<(), StoreError> {
    let (tenant, id) = (Id::from(batch.tenant_id), Id::from(document.id));
    c.prepare_cached(
        "INSERT INTO documents (tenant_id, id, collection, document_id, title, language, guessed, metadata, digest, version,
           ingestion_run_id, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, coalesce(?12, ?13), ?13)",
    )?
    .execute(params![
        tenant,
        id,
        batch.collection,
        document.document_id,
        document.title,
        document.language,
        document.guessed,
        document.metadata,
        document.digest,
        version,
        batch.ingestion_run_id,
        created_at,
        now,
    ])?;
    let mut statement = c.prepare_cached(
        "INSERT INTO chunks (tenant_id, id, collection, document, position, heading, content, change)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut with_terms = c.prepare_cached("INSERT INTO chunk_terms (tenant_id, collection, chunk, terms) VALUES (?1, ?2, ?3, ?4)")?;
    for (position, ((chunk_id, chunk), terms)) in (0_i64..).zip(document.chunks.iter().zip(terms)) {
        let chunk_id = Id::from(*chunk_id);
        statement.execute(params![tenant, chunk_id, batch.collection, id, position, chunk.heading, chunk.content, change])?;
        with_terms.execute(params![tenant, batch.collection, c.last_insert_rowid(), terms])?;
    }
    Ok(())
}

/// Deletes a document; false when there is none.
pub(crate) fn remove(c: &Connection, tenant: &Id, collection: &str, document_id: &str) -> Result<bool, StoreError> {
    let mut statement = c.prepare_cached("SELECT id FROM documents WHERE tenant_id = ?1 AND collection = ?2 AND document_id = ?3")?;
    let known: Option<String> = statement.query_row(params![tenant, collection, document_id], |row| row.get(0)).optional()?;
    let Some(id) = known else { return Ok(false) };
    let change = next_change(c, tenant, collection)?;
    delete_chunks(c, tenant, collection, &id, change)?;
    Ok(true)
}

fn delete_chunks(c: &Connection, tenant: &Id, collection: &str, id: &str, change: i64) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO removed_chunks (tenant_id, collection, change, chunk)
         SELECT ?1, ?2, ?4, number FROM chunks WHERE tenant_id = ?1 AND document = ?3",
    )?
    .execute(params![tenant, collection, id, change])?;
    c.prepare_cached(
        "DELETE FROM chunk_terms WHERE tenant_id = ?1 AND collection = ?2
         AND chunk IN (SELECT number FROM chunks WHERE tenant_id = ?1 AND document = ?3)",
    )?
    .execute(params![tenant, collection, id])?;
    c.prepare_cached("DELETE FROM chunks WHERE tenant_id = ?1 AND document = ?2")?.execute(params![tenant, id])?;
    let deleted = c.prepare_cached("DELETE FROM documents WHERE tenant_id = ?1 AND id = ?2")?.execute(params![tenant, id])?;
    if deleted != 1 {
        return Err(StoreError::Moved { what: "document", id: id.to_owned() });
    }
    Ok(())
}

fn next_change(c: &Connection, tenant: &Id, collection: &str) -> Result<i64, StoreError> {
    let mut statement =
        c.prepare_cached("UPDATE collections SET change = change + 1 WHERE tenant_id = ?1 AND name = ?2 RETURNING change")?;
    let change = statement.query_row(params![tenant, collection], |row| row.get(0)).optional()?;
    let change: i64 = change.ok_or_else(|| StoreError::Moved { what: "collection", id: collection.to_owned() })?;
    c.prepare_cached("DELETE FROM removed_chunks WHERE tenant_id = ?1 AND collection = ?2 AND change < ?3")?.execute(params![
        tenant,
        collection,
        change - REMEMBERED_CHANGES
    ])?;
    Ok(change)
}

pub(crate) fn put_rights(c: &Connection, tenant: &Id, collection: &str, rights: &NewRights, now: Timestamp) -> Result<Trust, StoreError> {
    let mut statement = c.prepare_cached(
        "INSERT INTO collections (tenant_id, name, change, created_at, read_roles, write_roles, trust)
         VALUES (?1, ?2, 0, ?3, ?4, ?5, coalesce(?6, ?7))
         ON CONFLICT DO UPDATE SET read_roles = excluded.read_roles, write_roles = excluded.write_roles, trust = coalesce(?6, trust)
         RETURNING trust",
    )?;
    let (read, write, trust) = (role_list(&rights.read), role_list(&rights.write), rights.trust.map(Trust::name));
    let values = params![tenant, collection, Stamp::from(now), read, write, trust, Trust::Trusted.name()];
    let stored = all(&mut statement, values, |columns| columns.parsed(Trust::parse))?.pop();
    stored.ok_or_else(|| StoreError::Broken("the rights of a collection were not stored".to_owned()))
}

pub(crate) fn put(c: &Connection, model: &str, vectors: &[NewVector]) -> Result<u64, StoreError> {
    let mut changes: Vec<((String, String), i64)> = Vec::new();
    let mut stored = 0;
    for new in vectors {
        let mut statement = c.prepare_cached("SELECT tenant_id, collection FROM chunks WHERE number = ?1")?;
        let chunk = all(&mut statement, params![new.number], |columns| Ok((columns.id()?, columns.text()?)))?.pop();
        let Some((tenant_id, collection)) = chunk else { continue };
        let (tenant, key) = (Id::from(tenant_id), (tenant_id.to_string(), collection.clone()));
        let change = match changes.iter().find(|(known, _)| *known == key) {
            Some((_, change)) => *change,
            None => {
                let change = next_change(c, &tenant, &collection)?;
                changes.push((key, change));
                change
            }
        };
        let bytes = new.vector.as_ref().map(|vector| vector.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        c.prepare_cached(
            "INSERT INTO chunk_vectors (chunk, tenant_id, collection, model, vector, change) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (chunk, model) DO UPDATE SET vector = excluded.vector, change = excluded.change",
        )?
        .execute(params![new.number, tenant, collection, model, bytes, change])?;
        stored += 1;
    }
    Ok(stored)
}
