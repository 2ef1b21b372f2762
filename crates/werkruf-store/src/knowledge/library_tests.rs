use jiff::Timestamp;
use tempfile::TempDir;
use werkruf_contract::Clock;

use super::*;
use crate::SqliteStore;
use crate::knowledge::{NewDocument, NewDocuments, NewVector, chunks};

struct Fixture {
    store: Arc<SqliteStore>,
    library: Library,
    clock: Clock,
    folder: TempDir,
}

const TENANT: Uuid = Uuid::from_u128(7);

fn fixture(max_bytes: usize) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("k.db"), &clock).unwrap();
    let library = Library::new(Arc::clone(&store) as Arc<dyn Knowledge>, None, max_bytes);
    Fixture { store, library, clock, folder }
}

impl Fixture {
    async fn add(&self, collection: &str, documents: &[(&str, &str)]) -> crate::knowledge::Added {
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
        SearchQuery { tenant_id: TENANT, collection: collection.to_owned(), text: text.to_owned(), top: 10, ..SearchQuery::default() }
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
    assert_eq!(fixture.store.document(TENANT, "a".to_owned(), "two".to_owned()).await.unwrap().unwrap().version, 2);
    let foreign = SearchQuery { tenant_id: Uuid::from_u128(8), ..Fixture::query("a", "walrus") };
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
    let row = fixture.store.collection(TENANT, "a".to_owned(), Some("m2".to_owned())).await.unwrap().unwrap();
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
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(17).any(|window| window == b"xylophonequartet."), "{}", path.display());
    }
}
