//! [`Knowledge`] on SQLite: rows and a log of changes.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use werkruf_contract::Uuid;
use werkruf_store::sqlite::{Columns, Id, all, first, record};
use werkruf_store::{Author, SqliteStore, StoreError, StoreFuture};

use crate::background::compute;
use crate::rights::rights_act;
use crate::sqlite_write::{add, put, put_rights, remove};
use crate::{
    Added, ChangeMark, ChangePage, ChangedChunk, ChangedVector, ChunkRow, CollectionRights, CollectionRow, DocumentRow, Grantee, Knowledge,
    LanguageCount, NewDocuments, NewRights, NewVector, ReadableCollection, TermScan, Trust, UnembeddedChunk, stored_terms,
};

crate::reading::readings!();

fn stored_rights(c: &Connection, tenant_id: Uuid, collection: &str) -> Result<Option<CollectionRights>, StoreError> {
    let mut statement = c.prepare_cached("SELECT read_roles, write_roles, trust FROM collections WHERE tenant_id = ?1 AND name = ?2")?;
    first(&mut statement, params![Id::from(tenant_id), collection], rights)
}

impl Knowledge for SqliteStore {
    fn add_documents(&self, batch: NewDocuments) -> StoreFuture<'_, Added> {
        Box::pin(async move {
            // Takes about as long as the writes, so it does not run on the writer's thread.
            let (terms, batch) = compute(move || (stored_terms(&batch), batch)).await?;
            self.write_rows(move |c| add(c, &batch, &terms)).await
        })
    }

    fn document(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Option<DocumentRow>> {
        Box::pin(self.look_up(move |c| {
            let sql = format!("{DOCUMENT} WHERE {READABLE} AND d.tenant_id = ?1 AND d.collection = ?3 AND d.document_id = ?4");
            let mut statement = c.prepare_cached(&sql)?;
            first(&mut statement, params![Id::from(grantee.tenant_id()), grantee.roles_json(), collection, document_id], document)
        }))
    }

    fn documents(&self, grantee: Grantee, collection: String, after: Option<String>, limit: u32) -> StoreFuture<'_, Vec<DocumentRow>> {
        Box::pin(self.read_rows(move |c| {
            let sql = format!(
                "{DOCUMENT} WHERE {READABLE} AND d.tenant_id = ?1 AND d.collection = ?3 AND d.document_id > ?4
                ORDER BY d.document_id LIMIT ?5"
            );
            let after = after.unwrap_or_default();
            let mut statement = c.prepare_cached(&sql)?;
            all(&mut statement, params![Id::from(grantee.tenant_id()), grantee.roles_json(), collection, after, limit], document)
        }))
    }

    fn document_chunks(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Vec<ChunkRow>> {
        Box::pin(self.read_rows(move |c| {
            let sql = format!(
                "{CHUNK} JOIN collections AS o ON o.tenant_id = d.tenant_id AND o.name = d.collection
                WHERE {READABLE} AND d.tenant_id = ?1 AND d.collection = ?3 AND d.document_id = ?4 ORDER BY c.position"
            );
            let mut statement = c.prepare_cached(&sql)?;
            all(&mut statement, params![Id::from(grantee.tenant_id()), grantee.roles_json(), collection, document_id], chunk)
        }))
    }

    fn delete_document(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, bool> {
        Box::pin(self.write_rows(move |c| remove(c, &Id::from(tenant_id), &collection, &document_id)))
    }

    fn purge_deleted(&self) -> StoreFuture<'_, bool> {
        // Deleted rows are overwritten with zeros in their pages, but the WAL still has the old pages.
        Box::pin(self.empty_wal())
    }

    fn collections(&self, grantee: Grantee) -> StoreFuture<'_, Vec<String>> {
        Box::pin(self.read_rows(move |c| {
            let sql = format!("SELECT name FROM collections AS o WHERE {READABLE} AND tenant_id = ?1 ORDER BY name");
            let mut statement = c.prepare_cached(&sql)?;
            all(&mut statement, params![Id::from(grantee.tenant_id()), grantee.roles_json()], |columns| columns.text())
        }))
    }

    fn all_collections(&self) -> StoreFuture<'_, Vec<(Uuid, String)>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached("SELECT tenant_id, name FROM collections ORDER BY tenant_id, name")?;
            all(&mut statement, [], |columns| Ok((columns.id()?, columns.text()?)))
        }))
    }

    fn collection_languages(&self, tenant_id: Uuid, name: String) -> StoreFuture<'_, Vec<LanguageCount>> {
        Box::pin(self.read_rows(move |c| languages(c, &Id::from(tenant_id), &name)))
    }

    fn scan_terms(&self, tenant_id: Uuid, collection: String, mut scan: TermScan) -> StoreFuture<'_, TermScan> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached("SELECT chunk, terms FROM chunk_terms WHERE tenant_id = ?1 AND collection = ?2")?;
            let mut rows = statement.query(params![Id::from(tenant_id), collection])?;
            while let Some(row) = rows.next()? {
                scan.read(row.get(0)?, row.get_ref(1)?.as_bytes().unwrap_or_default());
            }
            Ok(scan)
        }))
    }

    fn vector_size(&self, model: String) -> StoreFuture<'_, Option<usize>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement =
                c.prepare_cached("SELECT length(vector) / 4 FROM chunk_vectors WHERE model = ?1 AND vector IS NOT NULL LIMIT 1")?;
            first(&mut statement, params![model], |columns| columns.small()).map(|size| size.map(|size| size as usize))
        }))
    }

    fn collection(&self, grantee: Grantee, name: String, model: Option<String>) -> StoreFuture<'_, Option<CollectionRow>> {
        Box::pin(self.read_rows(move |c| collection(c, &grantee, &name, model.as_deref())))
    }

    fn newest_change(&self, grantee: Grantee, collection: String) -> StoreFuture<'_, Option<ReadableCollection>> {
        Box::pin(self.look_up(move |c| newest(c, &grantee, &collection)))
    }

    fn rights(&self, tenant_id: Uuid, collection: String) -> StoreFuture<'_, Option<CollectionRights>> {
        Box::pin(self.look_up(move |c| stored_rights(c, tenant_id, &collection)))
    }

    fn put_rights(&self, tenant_id: Uuid, collection: String, rights: NewRights, by: Author, now: Timestamp) -> StoreFuture<'_, Trust> {
        let recorder = self.recorder();
        Box::pin(self.write_rows(move |c| {
            let before = stored_rights(c, tenant_id, &collection)?;
            let trust = put_rights(c, &Id::from(tenant_id), &collection, &rights, now)?;
            record(c, &recorder, tenant_id, &by, &[rights_act(&collection, before.as_ref(), &rights.with(trust))], now)?;
            Ok(trust)
        }))
    }

    fn changed_chunks(&self, tenant_id: Uuid, collection: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedChunk>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached(CHANGED_CHUNKS)?;
            all(
                &mut statement,
                params![Id::from(tenant_id), collection, page.after.change, page.after.chunk, page.until, page.limit],
                changed_chunk,
            )
        }))
    }

    fn changed_vectors(&self, tenant_id: Uuid, collection: String, model: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedVector>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached(CHANGED_VECTORS)?;
            let wanted = params![Id::from(tenant_id), collection, page.after.change, page.after.chunk, page.until, page.limit, model];
            all(&mut statement, wanted, |columns| {
                let mark = ChangeMark { change: columns.int()?, chunk: columns.int()? };
                Ok(ChangedVector { mark, vector: crate::reading::floats(columns.bytes()?) })
            })
        }))
    }

    fn removed_chunks(&self, tenant_id: Uuid, collection: String, after: i64, until: i64) -> StoreFuture<'_, Vec<i64>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached(
                "SELECT chunk FROM removed_chunks WHERE tenant_id = ?1 AND collection = ?2 AND change > ?3 AND change <= ?4",
            )?;
            all(&mut statement, params![Id::from(tenant_id), collection, after, until], |columns| columns.int())
        }))
    }

    fn chunks(&self, tenant_id: Uuid, numbers: Vec<i64>) -> StoreFuture<'_, Vec<ChunkRow>> {
        Box::pin(self.look_up(move |c| {
            let mut statement = c.prepare_cached(&format!("{CHUNK} WHERE c.number = ?2 AND c.tenant_id = ?1"))?;
            let tenant = Id::from(tenant_id);
            let mut found = Vec::with_capacity(numbers.len());
            for number in numbers {
                found.extend(first(&mut statement, params![tenant, number], chunk)?);
            }
            Ok(found)
        }))
    }

    fn unembedded(&self, model: String, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        Box::pin(self.read_rows(move |c| {
            let mut statement = c.prepare_cached(UNEMBEDDED)?;
            all(&mut statement, params![model, after, limit], unembedded_chunk)
        }))
    }

    fn put_vectors(&self, model: String, vectors: Vec<NewVector>) -> StoreFuture<'_, u64> {
        Box::pin(self.write_rows(move |c| put(c, &model, &vectors)))
    }
}

const DOCUMENT: &str = "SELECT d.document_id, d.collection, d.title, d.language, d.metadata, d.digest, d.version,
    (SELECT count(*) FROM chunks c WHERE c.tenant_id = d.tenant_id AND c.document = d.id), d.ingestion_run_id, d.created_at, d.updated_at
    FROM documents d JOIN collections AS o ON o.tenant_id = d.tenant_id AND o.name = d.collection";
/// Whether the roles `?2` (a JSON array; NULL: all of the tenant) may read the collection `o`.
const READABLE: &str = "(?2 IS NULL OR EXISTS (SELECT 1 FROM json_each(o.read_roles) AS named
    WHERE named.value = '*' OR named.value IN (SELECT value FROM json_each(?2))))";
const CHUNK: &str = "SELECT c.number, c.id, d.document_id, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document";
const CHANGED_CHUNKS: &str = "SELECT c.change, c.number, d.document_id, c.position, d.language, d.guessed, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document
    WHERE c.tenant_id = ?1 AND c.collection = ?2 AND (c.change, c.number) > (?3, ?4) AND c.change <= ?5
    ORDER BY c.change, c.number LIMIT ?6";
const CHANGED_VECTORS: &str = "SELECT change, chunk, vector FROM chunk_vectors
    WHERE tenant_id = ?1 AND collection = ?2 AND (change, chunk) > (?3, ?4) AND change <= ?5 AND model = ?7 AND vector IS NOT NULL
    ORDER BY change, chunk LIMIT ?6";
const UNEMBEDDED: &str = "SELECT c.number, c.tenant_id, c.collection, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document
    WHERE c.number > ?2 AND NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.chunk = c.number AND v.model = ?1)
    ORDER BY c.number LIMIT ?3";

fn newest(c: &Connection, grantee: &Grantee, collection: &str) -> Result<Option<ReadableCollection>, StoreError> {
    let sql = format!("SELECT change, trust FROM collections AS o WHERE {READABLE} AND tenant_id = ?1 AND name = ?3");
    let mut statement = c.prepare_cached(&sql)?;
    first(&mut statement, params![Id::from(grantee.tenant_id()), grantee.roles_json(), collection], readable_collection)
}

fn languages(c: &Connection, tenant: &Id, name: &str) -> Result<Vec<LanguageCount>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT language, guessed, count(*) FROM documents WHERE tenant_id = ?1 AND collection = ?2 GROUP BY language, guessed",
    )?;
    all(&mut statement, params![tenant, name], |columns| {
        Ok(LanguageCount { code: columns.text_or_null()?, guessed: columns.flag()?, documents: columns.int()? })
    })
}

fn collection(c: &Connection, grantee: &Grantee, name: &str, model: Option<&str>) -> Result<Option<CollectionRow>, StoreError> {
    let Some(ReadableCollection { change, .. }) = newest(c, grantee, name)? else { return Ok(None) };
    let tenant = &Id::from(grantee.tenant_id());
    let mut row = CollectionRow { name: name.to_owned(), change, ..CollectionRow::default() };
    row.languages = languages(c, tenant, name)?;
    row.documents = row.languages.iter().map(|language| language.documents).sum();
    let mut statement = c.prepare_cached("SELECT count(*) FROM chunks WHERE tenant_id = ?1 AND collection = ?2")?;
    row.chunks = statement.query_row(params![tenant, name], |row| row.get(0))?;
    let mut statement = c.prepare_cached(
        "SELECT count(vector), count(*) - count(vector) FROM chunk_vectors WHERE tenant_id = ?1 AND collection = ?2 AND model = ?3",
    )?;
    (row.embedded, row.failed) = statement.query_row(params![tenant, name, model], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Some(row))
}
