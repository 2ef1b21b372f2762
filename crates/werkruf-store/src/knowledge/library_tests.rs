use jiff::Timestamp;
use tempfile::TempDir;
use werkruf_contract::Clock;

use super::*;
use crate::SqliteStore;
use crate::knowledge::{NewDocument, NewDocuments, NewVector, chunks};

struct Room {
    store: Arc<SqliteStore>,
    library: Library,
    clock: Clock,
    folder: TempDir,
}

const TENANT: Uuid = Uuid::from_u128(7);

fn room(most_bytes: usize) -> Room {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system(0);
    let store = SqliteStore::open(folder.path().join("k.db"), &clock).unwrap();
    let library = Library::new(Arc::clone(&store) as Arc<dyn Knowledge>, most_bytes);
    Room { store, library, clock, folder }
}

impl Room {
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

    fn asked(collection: &str, text: &str) -> SearchQuery {
        SearchQuery { tenant_id: TENANT, collection: collection.to_owned(), text: text.to_owned(), top: 10, ..SearchQuery::default() }
    }

    async fn found(&self, asked: SearchQuery) -> Vec<String> {
        let found = self.library.search(asked).await.unwrap();
        found.hits.into_iter().map(|(row, _)| row.document_id).collect()
    }
}

#[tokio::test]
async fn an_index_stays_in_step_with_its_rows() {
    let room = room(usize::MAX);
    assert!(room.found(Room::asked("a", "walrus")).await.is_empty());
    let added = room.add("a", &[("one", "A walrus sleeps."), ("two", "A heron fishes.")]).await;
    assert_eq!((added.accepted, added.replaced, added.unchanged, added.chunks), (2, 0, 0, 2));
    assert_eq!(room.found(Room::asked("a", "walruses")).await, ["one"]);
    let added = room.add("a", &[("one", "A walrus sleeps."), ("two", "Another walrus dives."), ("three", "Nothing.")]).await;
    assert_eq!((added.accepted, added.replaced, added.unchanged), (1, 1, 1));
    assert_eq!(room.found(Room::asked("a", "walrus")).await.len(), 2);
    assert!(room.found(Room::asked("a", "heron")).await.is_empty());
    assert!(room.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    assert!(!room.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    assert_eq!(room.found(Room::asked("a", "walrus")).await, ["two"]);
    assert_eq!(room.store.document(TENANT, "a".to_owned(), "two".to_owned()).await.unwrap().unwrap().version, 2);
    let foreign = SearchQuery { tenant_id: Uuid::from_u128(8), ..Room::asked("a", "walrus") };
    assert!(room.found(foreign).await.is_empty(), "another tenant has nothing");
}

#[tokio::test]
async fn vectors_of_two_models_never_meet() {
    let room = room(usize::MAX);
    room.add("a", &[("one", "First."), ("two", "Second.")]).await;
    let pending = room.store.unembedded("m1".to_owned(), 0, 10).await.unwrap();
    assert_eq!(pending.len(), 2);
    let vectors = |axis: usize| {
        let unit = move |place: usize| (0..3).map(|at| if at == (place + axis) % 3 { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
        pending.iter().enumerate().map(|(place, chunk)| NewVector { number: chunk.number, vector: Some(unit(place)) }).collect::<Vec<_>>()
    };
    assert_eq!(room.store.put_vectors("m1".to_owned(), vectors(0)).await.unwrap(), 2);
    assert!(room.store.unembedded("m1".to_owned(), 0, 10).await.unwrap().is_empty());
    let ask =
        |model: &str, vector: [f32; 3]| SearchQuery { vector: Some((model.to_owned(), vector.to_vec())), ..Room::asked("a", "unknown") };
    assert_eq!(room.found(ask("m1", [0.0, 1.0, 0.0])).await.first().unwrap(), "two");
    assert!(room.found(ask("m2", [0.0, 1.0, 0.0])).await.is_empty(), "none of that model yet");
    assert_eq!(room.store.unembedded("m2".to_owned(), 0, 10).await.unwrap().len(), 2);
    assert_eq!(room.store.put_vectors("m2".to_owned(), vectors(1)).await.unwrap(), 2);
    assert_eq!(room.found(ask("m2", [0.0, 1.0, 0.0])).await.first().unwrap(), "one");
    let row = room.store.collection(TENANT, "a".to_owned(), Some("m2".to_owned())).await.unwrap().unwrap();
    assert_eq!((row.chunks, row.embedded, row.failed, row.documents), (2, 2, 0, 2));
}

#[tokio::test]
async fn memory_is_bounded_and_what_was_let_go_comes_back() {
    let room = room(1);
    room.add("a", &[("one", "A walrus sleeps.")]).await;
    room.add("b", &[("two", "A walrus wakes.")]).await;
    assert_eq!(room.found(Room::asked("a", "walrus")).await, ["one"]);
    let alone = room.library.bytes();
    assert_eq!(room.found(Room::asked("b", "walrus")).await, ["two"]);
    assert!(room.library.bytes() < alone * 2, "only one index is kept");
    assert_eq!(room.found(Room::asked("a", "walrus")).await, ["one"]);
}

#[tokio::test]
async fn a_deleted_document_leaves_no_word_in_the_files() {
    let room = room(usize::MAX);
    room.add("a", &[("one", "The password is xylophonequartet."), ("two", "Something else.")]).await;
    let pending = room.store.unembedded("m".to_owned(), 0, 10).await.unwrap();
    room.store.put_vectors("m".to_owned(), vec![NewVector { number: pending[0].number, vector: Some(vec![1.0; 4]) }]).await.unwrap();
    assert!(room.store.delete_document(TENANT, "a".to_owned(), "one".to_owned()).await.unwrap());
    for entry in std::fs::read_dir(room.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(17).any(|window| window == b"xylophonequartet."), "{}", path.display());
    }
}
