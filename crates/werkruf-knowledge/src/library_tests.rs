use jiff::Timestamp;
use tempfile::TempDir;
use werkruf_contract::Clock;

use super::*;
use werkruf_store::SqliteStore;

use crate::{NewDocument, NewDocuments, NewVector, SCHEMA, chunks};

struct Fixture {
    store: Arc<SqliteStore>,
    library: Library,
    clock: Clock,
    folder: TempDir,
}

const TENANT: Uuid = Uuid::from_u128(7);

impl Fixture {
    /// Another process on the same database.
    fn other(&self) -> Library {
        Library::new(Arc::clone(&self.store) as Arc<dyn Knowledge>, None, usize::MAX)
    }

    /// Adds a document through the library, as the server does.
    async fn write(&self, library: &Library, id: &str, text: &str) {
        library.write(TENANT, "a", async { Ok(self.add("a", &[(id, text)]).await) }).await.unwrap();
    }

    async fn delete(&self, library: &Library, id: &str) -> bool {
        let deleting = self.store.delete_document(TENANT, "a".to_owned(), id.to_owned());
        library.write(TENANT, "a", deleting).await.unwrap()
    }
}

/// Every hit with its scores.
async fn all_hits(library: &Library, text: &str) -> Vec<(String, Hit)> {
    let found = library.search(SearchQuery { top: 1_000, ..Fixture::query("a", text) }).await.unwrap();
    assert!(!found.building);
    found.hits.into_iter().map(|(row, hit)| (row.document_id, hit)).collect()
}

/// Waits until every index is built.
async fn until_built(library: &Library) {
    while library.building() > 0 {
        tokio::task::yield_now().await;
    }
}

fn fixture(max_bytes: usize) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("k.db"), &clock, &[SCHEMA]).unwrap();
    let library = Library::new(Arc::clone(&store) as Arc<dyn Knowledge>, None, max_bytes);
    Fixture { store, library, clock, folder }
}

impl Fixture {
    async fn add(&self, collection: &str, documents: &[(&str, &str)]) -> crate::Added {
        let documents = documents
            .iter()
            .map(|(id, text)| NewDocument {
                id: self.clock.new_id(),
                document_id: (*id).to_owned(),
                title: String::new(),
                language: Some("en".to_owned()),
                guessed: true,
                metadata: "{}".to_owned(),
                digest: format!("{text:?}"),
                chunks: chunks(text).into_iter().map(|chunk| (self.clock.new_id(), chunk)).collect(),
            })
            .collect();
        let batch = NewDocuments {
            tenant_id: TENANT,
            collection: collection.to_owned(),
            ingestion_run_id: "ingest_1".to_owned(),
            documents,
            now: Timestamp::UNIX_EPOCH,
        };
        self.store.add_documents(batch).await.unwrap()
    }

    fn query(collection: &str, text: &str) -> SearchQuery {
        SearchQuery {
            grantee: Grantee::everything(TENANT),
            collection: collection.to_owned(),
            text: text.to_owned(),
            top: 10,
            ..SearchQuery::default()
        }
    }

    async fn found(&self, query: SearchQuery) -> Vec<String> {
        let found = self.library.search(query).await.unwrap();
        found.hits.into_iter().map(|(row, _)| row.document_id).collect()
    }
}

#[tokio::test]
async fn an_index_follows_its_rows() {
    let fixture = fixture(usize::MAX);
    assert!(fixture.found(Fixture::query("a", "walrus")).await.is_empty());
    let added = fixture.add("a", &[("one", "A walrus sleeps."), ("two", "A heron fishes.")]).await;
    assert_eq!((added.accepted, added.replaced, added.unchanged, added.chunks), (2, 0, 0, 2));
    assert_eq!(fixture.found(Fixture::query("a", "walruses")).await, ["one"]);
    let added = fixture.add("a", &[("one", "A walrus sleeps."), ("two", "Another walrus dives."), ("three", "Nothing.")]).await;
    assert_eq!((added.accepted, added.replaced, added.unchanged), (1, 1, 1));
    assert_eq!(fixture.found(Fixture::query("a", "walrus")).await.len(), 2);
    assert!(fixture.found(Fixture::query("a", "heron")).await.is_empty());
    assert!(fixture.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    assert!(!fixture.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    assert_eq!(fixture.found(Fixture::query("a", "walrus")).await, ["two"]);
    assert_eq!(fixture.store.document(Grantee::everything(TENANT), "a".to_owned(), "two".to_owned()).await.unwrap().unwrap().version, 2);
    let foreign = SearchQuery { grantee: Grantee::everything(Uuid::from_u128(8)), ..Fixture::query("a", "walrus") };
    assert!(fixture.found(foreign).await.is_empty(), "another tenant has nothing");
}

#[tokio::test]
async fn vectors_of_two_models_are_never_mixed() {
    let fixture = fixture(usize::MAX);
    fixture.add("a", &[("one", "First."), ("two", "Second.")]).await;
    let pending = fixture.store.unembedded("m1".to_owned(), 0, 10).await.unwrap();
    assert_eq!(pending.len(), 2);
    let vectors = |axis: usize| {
        let unit = move |position: usize| (0..3).map(|at| if at == (position + axis) % 3 { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
        pending
            .iter()
            .enumerate()
            .map(|(position, chunk)| NewVector { number: chunk.number, vector: Some(unit(position)) })
            .collect::<Vec<_>>()
    };
    assert_eq!(fixture.store.put_vectors("m1".to_owned(), vectors(0)).await.unwrap(), 2);
    assert!(fixture.store.unembedded("m1".to_owned(), 0, 10).await.unwrap().is_empty());
    let with_vector = |vector: [f32; 3]| SearchQuery { vector: Some(vector.to_vec()), ..Fixture::query("a", "unknown") };
    let first = async |library: &Library| {
        let found = library.search(with_vector([0.0, 1.0, 0.0])).await.unwrap();
        found.hits.into_iter().next().map(|(row, _)| row.document_id)
    };
    let of = |model: &str| Library::new(Arc::clone(&fixture.store) as Arc<dyn Knowledge>, Some(model.to_owned()), usize::MAX);
    let (one, other) = (of("m1"), of("m2"));
    assert_eq!(first(&one).await.as_deref(), Some("two"));
    assert_eq!(first(&other).await, None, "none of that model yet");
    assert_eq!(fixture.store.unembedded("m2".to_owned(), 0, 10).await.unwrap().len(), 2);
    assert_eq!(fixture.store.put_vectors("m2".to_owned(), vectors(1)).await.unwrap(), 2);
    assert_eq!(first(&other).await.as_deref(), Some("one"));
    let row = fixture.store.collection(Grantee::everything(TENANT), "a".to_owned(), Some("m2".to_owned())).await.unwrap().unwrap();
    assert_eq!((row.chunks, row.embedded, row.failed, row.documents), (2, 2, 0, 2));
}

#[tokio::test]
async fn memory_is_bounded_and_evicted_indexes_are_rebuilt() {
    let fixture = fixture(1);
    fixture.add("a", &[("one", "A walrus sleeps.")]).await;
    fixture.add("b", &[("two", "A walrus wakes.")]).await;
    assert_eq!(fixture.found(Fixture::query("a", "walrus")).await, ["one"]);
    let alone = fixture.library.bytes();
    assert_eq!(fixture.found(Fixture::query("b", "walrus")).await, ["two"]);
    assert!(fixture.library.bytes() < alone * 2, "only one index is kept");
    assert_eq!(fixture.found(Fixture::query("a", "walrus")).await, ["one"]);
}

#[tokio::test]
async fn a_deleted_document_is_erased_from_the_files() {
    let fixture = fixture(usize::MAX);
    fixture.add("a", &[("one", "The password is xylophonequartet."), ("two", "Something else.")]).await;
    let pending = fixture.store.unembedded("m".to_owned(), 0, 10).await.unwrap();
    fixture.store.put_vectors("m".to_owned(), vec![NewVector { number: pending[0].number, vector: Some(vec![1.0; 4]) }]).await.unwrap();
    assert!(fixture.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    assert!(fixture.store.purge_deleted().await.unwrap());
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(17).any(|window| window == b"xylophonequartet."), "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_found_by_the_next_search_of_the_same_process() {
    let fixture = fixture(usize::MAX);
    let library = &fixture.library;
    let writing = async {
        for number in 0..30 {
            let id = format!("d{number}");
            fixture.write(library, &id, &format!("Walrus number{number} sleeps.")).await;
            let question = || Fixture::query("a", &format!("number{number}"));
            assert_eq!(fixture.found(question()).await.first(), Some(&id));
            if number % 3 == 0 {
                assert!(fixture.delete(library, &id).await);
                assert!(!fixture.found(question()).await.contains(&id));
            }
        }
    };
    tokio::select! {
        () = library.run() => unreachable!("it never returns"),
        () = writing => {}
    }
    assert_eq!(all_hits(library, "walrus sleeps").await.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_during_an_ingest_see_whole_results() {
    let fixture = fixture(usize::MAX);
    let library = &fixture.library;
    fixture.write(library, "fixed", "A heron fishes.").await;
    for number in 0..5 {
        fixture.write(library, &format!("d{number}"), "Walrus 0 dives.").await;
    }
    let ingest = async {
        for round in 0..20 {
            for number in 0..5 {
                fixture.write(library, &format!("d{number}"), &format!("Walrus {round} dives.\n\nWalrus {round} sleeps.")).await;
            }
        }
    };
    let searching = async {
        loop {
            assert_eq!(fixture.found(Fixture::query("a", "heron")).await, ["fixed"]);
            let found = fixture.found(SearchQuery { top: 100, ..Fixture::query("a", "walrus") }).await;
            // One document at a time is replaced; only this one may be missing.
            assert!((4..=5).contains(&found.len()), "{found:?}");
        }
    };
    tokio::select! {
        () = library.run() => unreachable!("it never returns"),
        () = searching => unreachable!("it never returns"),
        () = ingest => {}
    }
    // An index that followed 100 writes equals one that another process builds from the rows.
    let found = all_hits(library, "walrus 19 dives").await;
    assert_eq!(found.len(), 5);
    assert_eq!(found, all_hits(&fixture.other(), "walrus 19 dives").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_the_stored_terms_are_searched_until_the_index_is_built() {
    let fixture = fixture(usize::MAX);
    let texts =
        [("one", "Flight LH 441 leaves Munich."), ("two", "The walrus sleeps in Munich, the walrus dives."), ("three", "A walrus.")];
    fixture.add("a", &texts).await;
    fixture.add("b", &[("four", "Another walrus.")]).await;
    let expected = all_hits(&fixture.other(), "walruses munich").await;
    let restarted = fixture.other();
    // The queue is not worked off yet.
    restarted.shared.background.store(true, Ordering::Relaxed);
    let found = async |text: &str| restarted.search(Fixture::query("a", text)).await.unwrap();
    let first = found("walruses munich").await;
    assert!(first.building && first.alpha == 0.0 && !first.wrong_size);
    assert_eq!(restarted.building(), 1);
    let ids: Vec<&str> = first.hits.iter().map(|(row, _)| row.document_id.as_str()).collect();
    assert_eq!(ids, ["two", "three", "one"]);
    assert!((first.hits[0].1.coverage - 1.0).abs() < 1e-6 && first.hits[1].1.coverage < 0.6, "{:?}", first.hits);
    assert_eq!(found("lh441").await.hits[0].0.document_id, "one");
    assert!(found("platypus").await.hits.is_empty());
    // A deletion removes the stored terms too.
    assert!(fixture.delete(&restarted, "three").await);
    assert_eq!(found("walrus").await.hits.len(), 1);
    fixture.add("a", &[("three", "A walrus.")]).await;
    tokio::select! {
        () = restarted.run() => unreachable!("it never returns"),
        () = async { tokio::task::yield_now().await; until_built(&restarted).await } => {}
    }
    let numbers_differ = |hits: Vec<(String, Hit)>| hits.into_iter().map(|(id, hit)| (id, Hit { number: 0, ..hit })).collect::<Vec<_>>();
    assert_eq!(numbers_differ(all_hits(&restarted, "walruses munich").await), numbers_differ(expected));
}

#[tokio::test]
async fn a_vector_of_another_size_is_not_compared() {
    let fixture = fixture(usize::MAX);
    fixture.add("a", &[("one", "First."), ("two", "Second.")]).await;
    let pending = fixture.store.unembedded("m".to_owned(), 0, 10).await.unwrap();
    let vectors = pending.iter().map(|chunk| NewVector { number: chunk.number, vector: Some(vec![1.0, 0.0, 0.0]) }).collect();
    let library = Library::new(Arc::clone(&fixture.store) as Arc<dyn Knowledge>, Some("m".to_owned()), usize::MAX);
    assert_eq!(fixture.store.vector_size("m".to_owned()).await.unwrap(), None);
    assert_eq!(library.put_vectors("m".to_owned(), &pending, vectors).await.unwrap(), 2);
    assert_eq!(fixture.store.vector_size("m".to_owned()).await.unwrap(), Some(3));
    let search = |size: usize| library.search(SearchQuery { vector: Some(vec![1.0; size]), ..Fixture::query("a", "second") });
    let found = search(3).await.unwrap();
    assert!(found.alpha > 0.0 && !found.wrong_size && found.hits.len() == 2);
    let found = search(4).await.unwrap();
    assert!(found.alpha == 0.0 && found.wrong_size);
    assert_eq!(found.hits.iter().map(|(row, _)| row.document_id.as_str()).collect::<Vec<_>>(), ["two"]);
}

#[tokio::test]
async fn searches_that_stop_waiting_leave_one_task_behind() {
    let fixture = fixture(usize::MAX);
    fixture.write(&fixture.library, "one", "A walrus sleeps.").await;
    fixture.add("a", &[("two", "Another walrus.")]).await;
    let shared = &fixture.library.shared;
    shared.background.store(true, Ordering::Relaxed);
    let collection = shared.collection(&(TENANT, "a".to_owned()));
    let applying = collection.applying.lock().await;
    let before = Arc::strong_count(shared);
    for _ in 0..3 {
        let found = fixture.library.search(Fixture::query("a", "walrus")).await.unwrap();
        assert_eq!(found.hits.len(), 1, "the search does not wait for ever");
    }
    assert_eq!(Arc::strong_count(shared), before + 1);
    drop(applying);
    // Each search waits half a second at most, and another process may need the machine meanwhile.
    let mut found = 1;
    for _ in 0..60 {
        if found == 1 {
            found = fixture.library.search(Fixture::query("a", "walrus")).await.unwrap().hits.len();
        }
    }
    assert_eq!(found, 2);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "stands for a database that fails")]
async fn a_write_that_was_committed_is_not_reported_as_failed() {
    let fixture = fixture(usize::MAX);
    let database = rusqlite::Connection::open(fixture.folder.path().join("k.db")).unwrap();
    let writing = async {
        database.execute_batch("ALTER TABLE collections RENAME TO gone").unwrap();
        Ok::<_, StoreError>(7)
    };
    assert_eq!(fixture.library.write(TENANT, "new", writing).await.unwrap(), 7);
}

#[tokio::test]
async fn a_collection_that_does_not_exist_is_not_remembered() {
    let fixture = fixture(usize::MAX);
    for name in 0..50 {
        let name = format!("none-{name}");
        let deleting = fixture.store.delete_document(TENANT, name.clone(), "x".to_owned());
        assert!(!fixture.library.write(TENANT, &name, deleting).await.unwrap());
        let failing = async { Err::<(), _>(StoreError::Unavailable("no disk".to_owned())) };
        assert!(fixture.library.write(TENANT, &name, failing).await.is_err());
        assert!(!fixture.library.search(Fixture::query(&name, "walrus")).await.unwrap().exists);
    }
    assert_eq!(fixture.library.shared.lock().by_key.len(), 0);
    fixture.write(&fixture.library, "one", "A walrus sleeps.").await;
    assert_eq!(fixture.library.shared.lock().by_key.len(), 1);
}
