//! A batch that is sent twice, and a move from SQLite.

use werkruf_contract::Clock;
use werkruf_store::SqliteStore;

use crate::story_tests::{MODULES, World, fresh};
use crate::{ChangeMark, ChangePage, Grantee, Knowledge, NewDocument, NewDocuments, NewVector, chunks};

async fn add(world: &World, ids: &[&str]) {
    let document = |id: &&str| NewDocument {
        id: world.id(),
        document_id: (*id).to_owned(),
        title: "T".to_owned(),
        language: None,
        guessed: false,
        metadata: r#"{"b": 1, "a": 2}"#.to_owned(),
        digest: (*id).to_owned(),
        chunks: chunks("A walrus with a \0 in it.").into_iter().map(|chunk| (world.id(), chunk)).collect(),
    };
    let batch = NewDocuments {
        tenant_id: world.tenant,
        collection: "a".to_owned(),
        ingestion_run_id: "r".to_owned(),
        documents: ids.iter().map(document).collect(),
        now: world.now,
    };
    assert_eq!(world.store.add_documents(batch).await.unwrap().accepted, ids.len() as u64);
}

/// Two documents with vectors, of which the newer one is deleted.
async fn add_documents(world: &World) {
    add(world, &["stays", "goes"]).await;
    let pending = world.store.unembedded("m".to_owned(), 0, 10).await.unwrap();
    let vectors = pending.iter().map(|chunk| NewVector { number: chunk.number, vector: Some(vec![0.5, -2.0]) });
    world.store.put_vectors("m".to_owned(), vectors.collect()).await.unwrap();
    assert!(world.store.delete_document(world.tenant, "a".to_owned(), "goes".to_owned()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_sent_twice_is_written_once() {
    let (store, clock) = fresh().await;
    let world = World::new(store, clock);
    add_documents(&world).await;
    let document = |text: &str| NewDocument {
        id: world.id(),
        document_id: "stays".to_owned(),
        title: String::new(),
        language: None,
        guessed: false,
        metadata: "{}".to_owned(),
        digest: text.to_owned(),
        chunks: chunks(text).into_iter().map(|chunk| (world.id(), chunk)).collect(),
    };
    let documents = vec![document("Anew.")];
    let batch =
        NewDocuments { tenant_id: world.tenant, collection: "a".to_owned(), ingestion_run_id: "r".to_owned(), documents, now: world.now };
    let first = world.store.add_documents(batch.clone()).await.unwrap();
    assert_eq!((first.accepted, first.replaced, first.unchanged, first.chunks), (0, 1, 0, 1));
    let change = world.store.newest_change(Grantee::everything(world.tenant), "a".to_owned()).await.unwrap();
    // As a retry sends it: the very same batch, with the same ids.
    assert_eq!(world.store.add_documents(batch).await.unwrap(), first);
    assert_eq!(world.store.newest_change(Grantee::everything(world.tenant), "a".to_owned()).await.unwrap(), change);
    let row = world.store.document(Grantee::everything(world.tenant), "a".to_owned(), "stays".to_owned()).await.unwrap().unwrap();
    assert_eq!((row.version, row.chunks), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn knowledge_moves_and_new_chunks_get_new_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("w.db");
    let clock = Clock::system(0);
    let from = World::new(SqliteStore::open(&file, &clock, MODULES).unwrap(), clock.clone());
    add_documents(&from).await;
    let (tenant, of_a) = (from.tenant, || "a".to_owned());
    let counted = from.store.collection(Grantee::everything(tenant), of_a(), Some("m".to_owned())).await.unwrap().unwrap();
    let vectors = from
        .store
        .changed_vectors(tenant, of_a(), "m".to_owned(), ChangePage { after: ChangeMark::default(), until: i64::MAX, limit: 10 })
        .await
        .unwrap();
    let removed = from.store.removed_chunks(tenant, of_a(), 0, i64::MAX).await.unwrap();
    assert_eq!((counted.embedded, vectors.len(), removed.len()), (1, 1, 1));
    drop(from);

    let (target, _) = fresh().await;
    let moved = target.import_sqlite(file, clock.clone()).await.unwrap();
    for table in ["collections", "documents", "chunks", "chunk_terms", "chunk_vectors", "removed_chunks"] {
        assert_eq!(moved.tables[table].rows, 1, "{table}");
    }
    assert_eq!(target.collection(Grantee::everything(tenant), of_a(), Some("m".to_owned())).await.unwrap().unwrap(), counted);
    let arrived = target
        .changed_vectors(tenant, of_a(), "m".to_owned(), ChangePage { after: ChangeMark::default(), until: i64::MAX, limit: 10 })
        .await
        .unwrap();
    assert_eq!(arrived, vectors);
    let parts = target.document_chunks(Grantee::everything(tenant), of_a(), "stays".to_owned()).await.unwrap();
    assert_eq!(parts[0].content, "A walrus with a \u{fffd} in it.");
    // A new chunk gets a number that was never given.
    let world = World { tenant, ..World::new(target, clock) };
    add(&world, &["next"]).await;
    let number = world.store.document_chunks(Grantee::everything(tenant), of_a(), "next".to_owned()).await.unwrap()[0].number;
    assert!(number > removed[0] && number > parts[0].number, "{number} after {removed:?} and {}", parts[0].number);
}
