//! [`Knowledge`] on PostgreSQL: rows and numbered changes, from which every process keeps its own index up to date.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use werkruf_contract::Uuid;
use werkruf_store::postgres::{Columns, DbRole, Statement, all, clean, clean_json, clean_or_null, first, only, p, record};
use werkruf_store::{Author, PostgresStore, StoreError, StoreFuture};

use crate::background::compute;
use crate::postgres_write::{batch, claim_unembedded, put_rights, put_vectors, renew_claims, unembedded};
use crate::rights::rights_act;
use crate::{
    Added, ChangeMark, ChangePage, ChangedChunk, ChangedVector, ChunkRow, CollectionRights, CollectionRow, DocumentRow, Grantee, Knowledge,
    LanguageCount, NewDocuments, NewRights, NewVector, REMEMBERED_CHANGES, ReadableCollection, TermScan, Trust, UnembeddedChunk,
};

crate::reading::readings!();

const RIGHTS: &str = "SELECT read_roles, write_roles, trust FROM collections WHERE tenant_id = $1 AND name = $2";

impl Knowledge for PostgresStore {
    fn add_documents(&self, documents: NewDocuments) -> StoreFuture<'_, Added> {
        Box::pin(async move {
            let tenant_id = documents.tenant_id;
            let batch = compute(move || batch(&documents)).await?;
            let batch = batch.as_str();
            let values = [p(&batch), p(&REMEMBERED_CHANGES)];
            let sql = "SELECT * FROM add_documents($1::jsonb, $2)";
            only(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, added)
        })
    }

    fn document(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Option<DocumentRow>> {
        let sql = format!("{DOCUMENT} WHERE {READABLE} AND d.tenant_id = $1 AND d.collection = $3 AND d.document_id = $4");
        Box::pin(async move {
            let (tenant_id, roles) = asker(&grantee);
            let (collection, document_id) = (clean(&collection), clean(&document_id));
            let values = [p(&tenant_id), p(&roles), p(&collection), p(&document_id)];
            first(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, document)
        })
    }

    fn documents(&self, grantee: Grantee, collection: String, after: Option<String>, limit: u32) -> StoreFuture<'_, Vec<DocumentRow>> {
        let sql = format!(
            "{DOCUMENT} WHERE {READABLE} AND d.tenant_id = $1 AND d.collection = $3 AND d.document_id > $4 ORDER BY d.document_id LIMIT $5"
        );
        Box::pin(async move {
            let ((tenant_id, roles), after) = (asker(&grantee), after.unwrap_or_default());
            let (collection, after, limit) = (clean(&collection), clean(&after), i64::from(limit));
            let values = [p(&tenant_id), p(&roles), p(&collection), p(&after), p(&limit)];
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, document)
        })
    }

    fn document_chunks(&self, grantee: Grantee, collection: String, document_id: String) -> StoreFuture<'_, Vec<ChunkRow>> {
        let sql = format!(
            "{CHUNK} JOIN collections AS o ON o.tenant_id = d.tenant_id AND o.name = d.collection
            WHERE {READABLE} AND d.tenant_id = $1 AND d.collection = $3 AND d.document_id = $4 ORDER BY c.position"
        );
        Box::pin(async move {
            let (tenant_id, roles) = asker(&grantee);
            let (collection, document_id) = (clean(&collection), clean(&document_id));
            let values = [p(&tenant_id), p(&roles), p(&collection), p(&document_id)];
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, chunk)
        })
    }

    fn delete_document(&self, tenant_id: Uuid, collection: String, document_id: String) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let (collection, document_id) = (clean(&collection), clean(&document_id));
            let values = [p(&tenant_id), p(&collection), p(&document_id), p(&REMEMBERED_CHANGES)];
            let sql = "SELECT delete_document($1, $2, $3, $4, $5)";
            only(&self.query_once(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| columns.flag())
        })
    }

    fn collections(&self, grantee: Grantee) -> StoreFuture<'_, Vec<String>> {
        let sql = format!("SELECT name FROM collections AS o WHERE {READABLE} AND tenant_id = $1 ORDER BY name");
        Box::pin(async move {
            let (tenant_id, roles) = asker(&grantee);
            all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&roles)]).await?, |columns| columns.text())
        })
    }

    fn all_collections(&self) -> StoreFuture<'_, Vec<(Uuid, String)>> {
        let sql = "SELECT tenant_id, name FROM collections ORDER BY tenant_id, name";
        Box::pin(async move { all(&self.query(DbRole::System, sql, &[]).await?, |columns| Ok((columns.id()?, columns.text()?))) })
    }

    fn collection_languages(&self, tenant_id: Uuid, name: String) -> StoreFuture<'_, Vec<LanguageCount>> {
        Box::pin(async move {
            let name = clean(&name);
            all(&self.query(DbRole::Tenant(tenant_id), LANGUAGES, &[p(&tenant_id), p(&name)]).await?, language)
        })
    }

    fn scan_terms(&self, tenant_id: Uuid, collection: String, mut scan: TermScan) -> StoreFuture<'_, TermScan> {
        let sql = "SELECT chunk, terms FROM chunk_terms WHERE tenant_id = $1 AND collection = $2";
        Box::pin(async move {
            let collection = clean(&collection);
            let rows = self.query(DbRole::Tenant(tenant_id), sql, &[p(&tenant_id), p(&collection)]).await?;
            all(&rows, |columns| {
                scan.read(columns.int()?, columns.bytes()?);
                Ok(())
            })?;
            Ok(scan)
        })
    }

    fn vector_size(&self, model: String) -> StoreFuture<'_, Option<usize>> {
        let sql = "SELECT octet_length(vector)::bigint / 4 FROM chunk_vectors WHERE model = $1 AND vector IS NOT NULL LIMIT 1";
        Box::pin(async move {
            let model = clean(&model);
            let size = first(&self.query(DbRole::System, sql, &[p(&model)]).await?, |columns| columns.int())?;
            Ok(size.and_then(|size| usize::try_from(size).ok()))
        })
    }

    fn collection(&self, grantee: Grantee, name: String, model: Option<String>) -> StoreFuture<'_, Option<CollectionRow>> {
        Box::pin(async move { count_collection(self, &grantee, &name, model.as_deref()).await })
    }

    fn newest_change(&self, grantee: Grantee, collection: String) -> StoreFuture<'_, Option<ReadableCollection>> {
        let sql = newest();
        Box::pin(async move {
            let ((tenant_id, roles), collection) = (asker(&grantee), clean(&collection));
            let values = [p(&tenant_id), p(&roles), p(&collection)];
            first(&self.query(DbRole::Tenant(tenant_id), &sql, &values).await?, readable_collection)
        })
    }

    fn rights(&self, tenant_id: Uuid, collection: String) -> StoreFuture<'_, Option<CollectionRights>> {
        Box::pin(async move {
            let collection = clean(&collection);
            first(&self.query(DbRole::Tenant(tenant_id), RIGHTS, &[p(&tenant_id), p(&collection)]).await?, self::rights)
        })
    }

    fn put_rights(&self, tenant_id: Uuid, collection: String, rights: NewRights, by: Author, now: Timestamp) -> StoreFuture<'_, Trust> {
        let change = Arc::new((clean(&collection).into_owned(), rights, by, self.recorder()));
        Box::pin(self.with(DbRole::Tenant(tenant_id), move |transaction| {
            let change = Arc::clone(&change);
            Box::pin(async move {
                let (collection, rights, by, recorder) = &*change;
                let name = collection.as_str();
                // Locked, so that the record of the change has the rights that were in force until then.
                let locked = format!("{RIGHTS} FOR UPDATE");
                let before = first(&transaction.query(&locked, &[p(&tenant_id), p(&name)]).await?, self::rights)?;
                let trust = put_rights(transaction, tenant_id, collection, rights, now).await?;
                let act = rights_act(collection, before.as_ref(), &rights.with(trust));
                record(transaction, recorder, tenant_id, by, &[act], now).await?;
                Ok(trust)
            })
        }))
    }

    fn changed_chunks(&self, tenant_id: Uuid, collection: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedChunk>> {
        Box::pin(async move {
            let ChangePage { after, until, limit } = page;
            let (collection, limit) = (clean(&collection), i64::from(limit));
            let values = [p(&tenant_id), p(&collection), p(&after.change), p(&after.chunk), p(&until), p(&limit)];
            all(&self.query(DbRole::Tenant(tenant_id), CHANGED_CHUNKS, &values).await?, changed_chunk)
        })
    }

    fn changed_vectors(&self, tenant_id: Uuid, collection: String, model: String, page: ChangePage) -> StoreFuture<'_, Vec<ChangedVector>> {
        Box::pin(async move {
            let ChangePage { after, until, limit } = page;
            let (collection, model, limit) = (clean(&collection), clean(&model), i64::from(limit));
            let values = [p(&tenant_id), p(&collection), p(&after.change), p(&after.chunk), p(&until), p(&limit), p(&model)];
            all(&self.query(DbRole::Tenant(tenant_id), CHANGED_VECTORS, &values).await?, |columns| {
                let mark = ChangeMark { change: columns.int()?, chunk: columns.int()? };
                Ok(ChangedVector { mark, vector: crate::reading::floats(columns.bytes()?) })
            })
        })
    }

    fn removed_chunks(&self, tenant_id: Uuid, collection: String, after: i64, until: i64) -> StoreFuture<'_, Vec<i64>> {
        let sql = "SELECT chunk FROM removed_chunks WHERE tenant_id = $1 AND collection = $2 AND change > $3 AND change <= $4
            ORDER BY change, chunk";
        Box::pin(async move {
            let collection = clean(&collection);
            let values = [p(&tenant_id), p(&collection), p(&after), p(&until)];
            all(&self.query(DbRole::Tenant(tenant_id), sql, &values).await?, |columns| columns.int())
        })
    }

    fn chunks(&self, tenant_id: Uuid, numbers: Vec<i64>) -> StoreFuture<'_, Vec<ChunkRow>> {
        let sql = format!(
            "{CHUNK} JOIN unnest($2) WITH ORDINALITY AS wanted (number, place) ON wanted.number = c.number
            WHERE c.tenant_id = $1 ORDER BY wanted.place"
        );
        Box::pin(async move { all(&self.query(DbRole::Tenant(tenant_id), &sql, &[p(&tenant_id), p(&numbers)]).await?, chunk) })
    }

    fn unembedded(&self, model: String, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        Box::pin(async move { unembedded(self, &model, after, limit).await })
    }

    fn claim_unembedded(&self, model: String, owner: Uuid, after: i64, limit: u32) -> StoreFuture<'_, Vec<UnembeddedChunk>> {
        Box::pin(async move { claim_unembedded(self, &model, owner, after, limit).await })
    }

    fn claim_ttl(&self) -> Option<Duration> {
        Some(self.lease_ttl())
    }

    fn renew_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        Box::pin(async move { renew_claims(self, owner).await })
    }

    fn release_claims(&self, owner: Uuid) -> StoreFuture<'_, ()> {
        let sql = "DELETE FROM embedding_claims WHERE owner = $1";
        Box::pin(async move { self.query(DbRole::System, sql, &[p(&owner)]).await.map(|_| ()) })
    }

    fn put_vectors(&self, model: String, vectors: Vec<NewVector>) -> StoreFuture<'_, u64> {
        Box::pin(async move { put_vectors(self, &model, &vectors).await })
    }
}

const DOCUMENT: &str = "SELECT d.document_id, d.collection, d.title, d.language, d.metadata, d.digest, d.version,
    (SELECT count(*) FROM chunks c WHERE c.tenant_id = d.tenant_id AND c.document = d.id), d.ingestion_run_id, d.created_at, d.updated_at
    FROM documents d JOIN collections AS o ON o.tenant_id = d.tenant_id AND o.name = d.collection";
/// Whether the roles `$2` (a JSON array; NULL: all of the tenant) may read the collection `o`.
const READABLE: &str = "($2::text IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(o.read_roles) AS named
    WHERE named = '*' OR named IN (SELECT json_array_elements_text($2::json))))";
const CHUNK: &str = "SELECT c.number, c.id, d.document_id, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document";
const LANGUAGES: &str = "SELECT language, guessed, count(*) FROM documents WHERE tenant_id = $1 AND collection = $2
    GROUP BY language, guessed ORDER BY language, guessed";
const CHANGED_CHUNKS: &str = "SELECT c.change, c.number, d.document_id, c.position, d.language, d.guessed, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document
    WHERE c.tenant_id = $1 AND c.collection = $2 AND (c.change, c.number) > ($3, $4) AND c.change <= $5
    ORDER BY c.change, c.number LIMIT $6";
const CHANGED_VECTORS: &str = "SELECT change, chunk, vector FROM chunk_vectors
    WHERE tenant_id = $1 AND collection = $2 AND (change, chunk) > ($3, $4) AND change <= $5 AND model = $7 AND vector IS NOT NULL
    ORDER BY change, chunk LIMIT $6";

fn newest() -> String {
    format!("SELECT change, trust FROM collections AS o WHERE {READABLE} AND tenant_id = $1 AND name = $3")
}

/// The tenant of a grantee, and the roles as [`READABLE`] wants them.
fn asker(grantee: &Grantee) -> (Uuid, Option<Cow<'static, str>>) {
    (grantee.tenant_id(), grantee.roles_json().map(|roles| Cow::Owned(clean_json(&roles).into_owned())))
}

async fn count_collection(
    store: &PostgresStore,
    grantee: &Grantee,
    name: &str,
    model: Option<&str>,
) -> Result<Option<CollectionRow>, StoreError> {
    let ((tenant_id, roles), clean_name, model) = (asker(grantee), clean(name), clean_or_null(model));
    let (values, newest, of_grantee) = ([p(&tenant_id), p(&clean_name), p(&model)], newest(), [p(&tenant_id), p(&roles), p(&clean_name)]);
    let of = |sql| Statement { sql, params: &values[..2] };
    let vectors = "SELECT count(vector), count(*) - count(vector) FROM chunk_vectors
        WHERE tenant_id = $1 AND collection = $2 AND model = $3";
    let found = store
        .run(
            DbRole::Tenant(tenant_id),
            &[
                Statement { sql: &newest, params: &of_grantee },
                of(LANGUAGES),
                of("SELECT count(*) FROM chunks WHERE tenant_id = $1 AND collection = $2"),
                Statement { sql: vectors, params: &values },
            ],
        )
        .await?;
    let [newest, languages, chunks, vectors] = &found[..] else { return Ok(None) };
    let Some(ReadableCollection { change, .. }) = first(newest, readable_collection)? else { return Ok(None) };
    let languages = all(languages, language)?;
    let (embedded, failed) = only(vectors, |columns| Ok((columns.int()?, columns.int()?)))?;
    Ok(Some(CollectionRow {
        name: name.to_owned(),
        change,
        documents: languages.iter().map(|count| count.documents).sum(),
        chunks: only(chunks, |columns| columns.int())?,
        embedded,
        failed,
        languages,
    }))
}

fn language(columns: &mut Columns<'_>) -> Result<LanguageCount, StoreError> {
    Ok(LanguageCount { code: columns.text_or_null()?, guessed: columns.flag()?, documents: columns.int()? })
}

fn added(columns: &mut Columns<'_>) -> Result<Added, StoreError> {
    let mut count = || columns.int().map(|count| u64::try_from(count).unwrap_or(0));
    Ok(Added { accepted: count()?, replaced: count()?, unchanged: count()?, chunks: count()? })
}

#[cfg(test)]
#[path = "postgres_claims_tests.rs"]
mod claims_tests;
#[cfg(test)]
#[path = "postgres_search_tests.rs"]
mod search_tests;
#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
