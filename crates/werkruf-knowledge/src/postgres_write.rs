//! Writes of documents and vectors on PostgreSQL. Vectors are written for every tenant, and therefore as `werkruf_system`.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::types::Type;
use werkruf_contract::{Uuid, hex};
use werkruf_store::postgres::{DbRole, Fault, Transaction, all, clean, clean_json, ms, only, p};
use werkruf_store::{PostgresStore, StoreError};

use crate::postgres::unembedded_chunk;
use crate::rights::role_list;
use crate::{Chunk, NewDocuments, NewRights, NewVector, REMEMBERED_CHANGES, Trust, UnembeddedChunk, stored_terms};

/// The batch as the JSON document that `add_documents` takes. Metadata stays text in it.
pub(crate) fn batch(batch: &NewDocuments) -> String {
    let mut terms = stored_terms(batch).into_iter();
    let mut chunk = |(id, chunk): &(Uuid, Chunk)| {
        let terms = hex(&terms.next().unwrap_or_default());
        json!({"id": id, "heading": chunk.heading, "content": chunk.content, "terms": terms})
    };
    let documents = batch.documents.iter().map(|document| {
        json!({"id": document.id, "document_id": document.document_id, "title": document.title, "language": document.language,
            "guessed": document.guessed, "metadata": clean_json(&document.metadata), "digest": document.digest,
            "chunks": Value::from_iter(document.chunks.iter().map(&mut chunk))})
    });
    let whole = json!({"tenant_id": batch.tenant_id, "collection": batch.collection, "ingestion_run_id": batch.ingestion_run_id,
        "now": ms(batch.now), "documents": Value::from_iter(documents)});
    clean_json(&whole.to_string()).into_owned()
}

pub(crate) async fn put_rights(
    transaction: &Transaction,
    tenant_id: Uuid,
    collection: &str,
    rights: &NewRights,
    now: Timestamp,
) -> Result<Trust, Fault> {
    let sql = "INSERT INTO collections (tenant_id, name, change, created_at, read_roles, write_roles, trust)
        VALUES ($1, $2, 0, $3, $4::json, $5::json, coalesce($6, $7)) ON CONFLICT (tenant_id, name)
        DO UPDATE SET read_roles = excluded.read_roles, write_roles = excluded.write_roles, trust = coalesce($6, collections.trust)
        RETURNING trust";
    let (read, write) = (role_list(&rights.read), role_list(&rights.write));
    let (collection, now, read, write, trust) =
        (clean(collection), ms(now), clean_json(&read), clean_json(&write), rights.trust.map(Trust::name));
    let trusted = Trust::Trusted.name();
    let values = [p(&tenant_id), p(&collection), p(&now), p(&read), p(&write), p(&trust), p(&trusted)];
    let stored = all(&transaction.query(sql, &values).await?, |columns| columns.parsed(Trust::parse))?.pop();
    Ok(stored.ok_or_else(|| StoreError::Broken("the rights of a collection were not stored".to_owned()))?)
}

const UNEMBEDDED: &str = "SELECT c.number, c.tenant_id, c.collection, d.title, c.heading, c.content
    FROM chunks c JOIN documents d ON d.tenant_id = c.tenant_id AND d.id = c.document
    WHERE c.number > $2 AND NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.chunk = c.number AND v.model = $1)
    ORDER BY c.number LIMIT $3";

pub(crate) async fn unembedded(store: &PostgresStore, model: &str, after: i64, limit: u32) -> Result<Vec<UnembeddedChunk>, StoreError> {
    let (model, limit) = (clean(model), i64::from(limit));
    let values = [p(&model), p(&after), p(&limit)];
    all(&store.query(DbRole::System, UNEMBEDDED, &values).await?, unembedded_chunk)
}

pub(crate) async fn claim_unembedded(
    store: &PostgresStore,
    model: &str,
    owner: Uuid,
    after: i64,
    limit: u32,
) -> Result<Vec<UnembeddedChunk>, StoreError> {
    let (model, ttl_ms, limit) = (clean(model), claim_ms(store), i64::from(limit));
    let values = [p(&model), p(&owner), p(&ttl_ms), p(&after), p(&limit)];
    all(&store.query(DbRole::System, "SELECT * FROM claim_unembedded($1, $2, $3, $4, $5)", &values).await?, unembedded_chunk)
}

pub(crate) async fn renew_claims(store: &PostgresStore, owner: Uuid) -> Result<(), StoreError> {
    let ttl_ms = claim_ms(store);
    let sql = "UPDATE embedding_claims SET until = clock_timestamp() + make_interval(secs => $2 / 1000.0) WHERE owner = $1";
    store.query(DbRole::System, sql, &[p(&owner), p(&ttl_ms)]).await?;
    Ok(())
}

fn claim_ms(store: &PostgresStore) -> i64 {
    i64::try_from(store.lease_ttl().as_millis()).unwrap_or(i64::MAX)
}

pub(crate) async fn put_vectors(store: &PostgresStore, model: &str, vectors: &[NewVector]) -> Result<u64, StoreError> {
    let numbers: Vec<i64> = vectors.iter().map(|new| new.number).collect();
    let bytes: Vec<Option<Vec<u8>>> = vectors.iter().map(|new| new.vector.as_deref().map(bytes)).collect();
    let model = clean(model);
    let values = [p(&model), p(&numbers), (&bytes as _, Type::BYTEA_ARRAY), p(&REMEMBERED_CHANGES)];
    let rows = store.query(DbRole::System, "SELECT put_vectors($1, $2, $3, $4)", &values).await?;
    only(&rows, |columns| columns.int()).map(|stored| u64::try_from(stored).unwrap_or(0))
}

fn bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}
