//! Documents on both databases: adding, replacing and deleting them, and the indexes that follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use werkruf_contract::{Clock, Principal, Role, Uuid};
use werkruf_store::{Author, Modules, PostgresOptions, PostgresStore, SqliteStore};

use crate::testbed::fresh_database;
use crate::{
    Added, ChangeMark, ChangePage, CollectionRights, Grantee, Knowledge, Library, NewDocument, NewDocuments, NewRights, NewVector, SCHEMA,
    SearchQuery, Trust, chunks,
};

pub(crate) const MODULES: Modules = &[SCHEMA];

/// An opened store and what the tests need beside it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Arc<dyn Knowledge>,
    pub(crate) clock: Clock,
    pub(crate) tenant: Uuid,
    pub(crate) now: Timestamp,
}

impl World {
    pub(crate) fn new(store: Arc<dyn Knowledge>, clock: Clock) -> Self {
        let (tenant, now) = (clock.new_id(), clock.now());
        Self { store, clock, tenant, now }
    }

    pub(crate) fn id(&self) -> Uuid {
        self.clock.new_id()
    }

    fn later(&mut self, ms: i64) -> Timestamp {
        self.now = self.now.checked_add(SignedDuration::from_millis(ms)).unwrap();
        self.now
    }
}

impl World {
    fn batch(&self, collection: &str, documents: &[(&str, &str)]) -> NewDocuments {
        let documents = documents.iter().map(|(id, text)| NewDocument {
            id: self.id(),
            document_id: (*id).to_owned(),
            title: format!("About {id}"),
            language: Some("en".to_owned()),
            guessed: true,
            metadata: r#"{"z": 1, "a":[]}"#.to_owned(),
            digest: (*text).to_owned(),
            chunks: chunks(text).into_iter().map(|chunk| (self.id(), chunk)).collect(),
        });
        NewDocuments {
            tenant_id: self.tenant,
            collection: collection.to_owned(),
            ingestion_run_id: "ingest_1".to_owned(),
            documents: documents.collect(),
            now: self.now,
        }
    }

    /// Into collection `a`.
    pub(crate) async fn add(&self, documents: &[(&str, &str)]) -> Added {
        self.store.add_documents(self.batch("a", documents)).await.unwrap()
    }

    async fn delete(&self, id: &str) -> bool {
        self.store.delete_document(self.tenant, "a".to_owned(), id.to_owned()).await.unwrap()
    }

    fn library(&self) -> Library {
        Library::new(Arc::clone(&self.store), None, usize::MAX)
    }

    async fn found(&self, library: &Library, text: &str) -> BTreeSet<String> {
        let query = SearchQuery {
            grantee: Grantee::everything(self.tenant),
            collection: "a".to_owned(),
            text: text.to_owned(),
            top: 200,
            ..SearchQuery::default()
        };
        library.search(query).await.unwrap().hits.into_iter().map(|(row, _)| row.document_id).collect()
    }
}

fn names(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

async fn documents_are_added_replaced_and_deleted(mut world: World) {
    let (tenant, first_time, of_a) = (world.tenant, world.now, || "a".to_owned());
    let added = world.add(&[("b", "A walrus sleeps."), ("B", "A heron fishes."), ("ä", "Nothing.")]).await;
    assert_eq!(added, Added { accepted: 3, replaced: 0, unchanged: 0, chunks: 3 });
    world.later(1000);
    let added = world.add(&[("b", "A walrus sleeps."), ("B", "# Birds\n\nAnother heron."), ("c", "New.")]).await;
    assert_eq!(added, Added { accepted: 1, replaced: 1, unchanged: 1, chunks: 2 });
    let row = world.store.document(Grantee::everything(tenant), of_a(), "B".to_owned()).await.unwrap().unwrap();
    assert_eq!((row.version, row.chunks, row.title.as_str(), row.collection.as_str()), (2, 1, "About B", "a"));
    assert_eq!((row.created_at, row.updated_at), (first_time, world.now));
    assert_eq!((row.metadata.as_str(), row.ingestion_run_id.as_str()), (r#"{"z": 1, "a":[]}"#, "ingest_1"));
    let parts = world.store.document_chunks(Grantee::everything(tenant), of_a(), "B".to_owned()).await.unwrap();
    assert_eq!((parts.len(), parts[0].heading.as_str(), parts[0].content.as_str()), (1, "Birds", "Another heron."));
    assert_eq!(world.store.chunks(tenant, vec![i64::MAX, parts[0].number]).await.unwrap(), parts);

    // Ordered by bytes, whatever the locale of the database.
    let page = world.store.documents(Grantee::everything(tenant), of_a(), None, 3).await.unwrap();
    assert_eq!(page.iter().map(|row| row.document_id.as_str()).collect::<Vec<_>>(), ["B", "b", "c"]);
    let page = world.store.documents(Grantee::everything(tenant), of_a(), Some("c".to_owned()), 3).await.unwrap();
    assert_eq!(page.iter().map(|row| row.document_id.as_str()).collect::<Vec<_>>(), ["ä"]);

    assert!(world.delete("b").await);
    assert!(!world.delete("b").await);
    assert!(world.store.document_chunks(Grantee::everything(tenant), of_a(), "b".to_owned()).await.unwrap().is_empty());
    let row = world.store.collection(Grantee::everything(tenant), of_a(), None).await.unwrap().unwrap();
    assert_eq!((row.change, row.documents, row.chunks, row.languages.len()), (3, 3, 3, 1));
    assert_eq!(world.store.collections(Grantee::everything(tenant)).await.unwrap(), ["a"]);

    let stranger = world.id();
    assert!(world.store.collections(Grantee::everything(stranger)).await.unwrap().is_empty());
    assert!(world.store.document(Grantee::everything(stranger), of_a(), "B".to_owned()).await.unwrap().is_none());
    assert!(world.store.chunks(stranger, vec![parts[0].number]).await.unwrap().is_empty());
    assert!(!world.store.delete_document(stranger, of_a(), "B".to_owned()).await.unwrap());
    assert_eq!(world.store.newest_change(Grantee::everything(stranger), of_a()).await.unwrap(), None);
}

/// Two libraries over one database stand for two servers.
async fn every_index_follows_its_rows(world: World) {
    let (one, other) = (world.library(), world.library());
    assert!(world.found(&one, "walrus").await.is_empty());
    world.add(&[("one", "A walrus sleeps."), ("two", "A heron fishes.")]).await;
    for library in [&one, &other] {
        assert_eq!(world.found(library, "walruses").await, names(&["one"]));
    }
    world.add(&[("two", "Another walrus dives."), ("three", "Nothing.")]).await;
    for library in [&one, &other] {
        assert_eq!(world.found(library, "walrus").await, names(&["one", "two"]));
        assert!(world.found(library, "heron").await.is_empty());
    }
    assert!(world.delete("one").await);
    for library in [&one, &other, &world.library()] {
        assert_eq!(world.found(library, "walrus").await, names(&["two"]));
    }
}

/// Two servers that build and maintain their indexes in the background, and write to one collection.
async fn servers_follow_each_other(world: World) {
    let (one, other) = (world.library(), world.library());
    let write = async |library: &Library, text: &str| {
        library.write(world.tenant, "a", async { Ok(world.add(&[("shared", text)]).await) }).await.unwrap();
    };
    let exchange = async {
        for version in 0..5 {
            write(&one, &format!("Walrus version{version}.")).await;
            assert_eq!(world.found(&one, "walrus").await, names(&["shared"]), "a server sees its own writes");
            // The search waits for the changes of the other server, but not for ever.
            while world.found(&other, "walrus").await.is_empty() {}
            write(&other, &format!("Heron version{version}.")).await;
            while world.found(&one, "heron").await.is_empty() {}
            assert!(world.found(&one, "walrus").await.is_empty());
            let deleting = world.store.delete_document(world.tenant, "a".to_owned(), "shared".to_owned());
            assert!(one.write(world.tenant, "a", deleting).await.unwrap());
            assert!(world.found(&other, "heron").await.is_empty(), "a deleted text is not found on any server");
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(one.run(), other.run()) } => unreachable!("they never return"),
        () = exchange => {}
    }
}

/// A reader that has read up to a change never finds an older change afterwards.
async fn concurrent_writers_make_one_log(world: World) {
    const WRITERS: usize = 8;
    const EACH: usize = 5;
    world.add(&[("first", "A walrus.")]).await;
    let writing = join_all((0..WRITERS).map(|writer| {
        let world = world.clone();
        async move {
            for turn in 0..EACH {
                world.add(&[(&format!("{writer}-{turn}"), &format!("Walrus {turn} of {writer}."))]).await;
            }
        }
    }));
    let all = i64::try_from(WRITERS * EACH).unwrap() + 1;
    let reading = async {
        let (mut read, mut mark) = (Vec::new(), ChangeMark::default());
        while mark.change < all {
            let newest = world.store.newest_change(Grantee::everything(world.tenant), "a".to_owned()).await.unwrap().unwrap().change;
            let some = world
                .store
                .changed_chunks(world.tenant, "a".to_owned(), ChangePage { after: mark, until: newest, limit: 1000 })
                .await
                .unwrap();
            read.extend(some.into_iter().map(|chunk| chunk.mark));
            // Continue after that change, as an index does.
            mark = ChangeMark { change: newest, chunk: i64::MAX };
        }
        read
    };
    let (_, read) = futures_util::future::join(writing, reading).await;
    assert_eq!(read.iter().map(|mark| mark.change).collect::<Vec<_>>(), (1..=all).collect::<Vec<_>>());
    // All writers replace the same document: one version stays, and the index agrees with the rows.
    join_all((0..WRITERS).map(|writer| {
        let world = world.clone();
        async move { world.add(&[("first", &format!("Heron {writer}."))]).await }
    }))
    .await;
    let row = world.store.document(Grantee::everything(world.tenant), "a".to_owned(), "first".to_owned()).await.unwrap().unwrap();
    assert_eq!((row.version, row.chunks), (1 + i64::try_from(WRITERS).unwrap(), 1));
    assert_eq!(world.found(&world.library(), "heron").await, names(&["first"]));
}

async fn a_chunk_has_one_vector_of_each_model(world: World) {
    world.add(&[("one", "First."), ("two", "Second."), ("three", "Third.")]).await;
    let numbers = |model: &str| {
        let (store, model) = (Arc::clone(&world.store), model.to_owned());
        async move { store.unembedded(model, 0, 10).await.unwrap().into_iter().map(|chunk| chunk.number).collect::<Vec<_>>() }
    };
    let pending = numbers("m1").await;
    assert!(pending.len() == 3 && pending.is_sorted(), "{pending:?}");
    let page = world.store.unembedded("m1".to_owned(), pending[0], 1).await.unwrap();
    assert_eq!((page.len(), page[0].number, page[0].tenant_id, page[0].collection.as_str()), (1, pending[1], world.tenant, "a"));
    assert!(world.delete("three").await);
    let vectors = |refused: bool| {
        let vector = |at: usize| if refused && at == 1 { None } else { Some(vec![1.5, -0.25, 1e-9]) };
        pending.iter().enumerate().map(|(at, number)| NewVector { number: *number, vector: vector(at) }).collect::<Vec<_>>()
    };
    assert_eq!(world.store.put_vectors("m1".to_owned(), vectors(true)).await.unwrap(), 2, "one chunk was deleted");
    assert!(numbers("m1").await.is_empty(), "a refused chunk is not sent again");
    let count = |model: &str| world.store.collection(Grantee::everything(world.tenant), "a".to_owned(), Some(model.to_owned()));
    let row = count("m1").await.unwrap().unwrap();
    assert_eq!((row.chunks, row.embedded, row.failed, row.change), (2, 1, 1, 3));
    let changed = |model: &str| {
        world.store.changed_vectors(
            world.tenant,
            "a".to_owned(),
            model.to_owned(),
            ChangePage { after: ChangeMark::default(), until: i64::MAX, limit: 10 },
        )
    };
    let read = changed("m1").await.unwrap();
    assert_eq!((read.len(), read[0].mark, &read[0].vector[..]), (1, ChangeMark { change: 3, chunk: pending[0] }, &[1.5, -0.25, 1e-9][..]));
    assert_eq!(numbers("m2").await.len(), 2);
    assert_eq!(world.store.put_vectors("m2".to_owned(), vectors(false)).await.unwrap(), 2);
    assert_eq!(changed("m2").await.unwrap().len(), 2);
    assert_eq!(changed("m1").await.unwrap(), read, "two servers with different models keep each other's vectors");
    assert!(numbers("m1").await.is_empty() && numbers("m2").await.is_empty());
    assert_eq!(world.store.removed_chunks(world.tenant, "a".to_owned(), 1, 2).await.unwrap(), [pending[2]]);
    assert!(world.store.removed_chunks(world.tenant, "a".to_owned(), 2, i64::MAX).await.unwrap().is_empty());
    assert!(world.store.removed_chunks(world.tenant, "a".to_owned(), 0, 1).await.unwrap().is_empty());
    // A vector is deleted with its chunk.
    assert!(world.delete("one").await);
    assert_eq!(count("m2").await.unwrap().unwrap().embedded, 1);
}

/// A collection that a person may not read is as good as not there, from the commit that changed the rights.
async fn rights_count_in_every_read(world: World) {
    let person = |roles: &[&str]| Principal {
        tenant_id: world.tenant,
        tenant_slug: "t".to_owned(),
        user_id: "1".to_owned(),
        name: String::new(),
        roles: (1..).zip(roles).map(|(id, name)| Role { id, name: (*name).to_owned() }).collect(),
        branch_id: None,
        locale: "de".to_owned(),
        time_zone: "UTC".to_owned(),
        permissions: Vec::new(),
    };
    let of_a = || "a".to_owned();
    let (guest, hr) = (Grantee::person(&person(&["guest", "gu\"est'"])), Grantee::person(&person(&["guest", "hr"])));
    let (key, admin) = (Grantee::nobody(world.tenant), Grantee::everything(world.tenant));
    let library = world.library();
    let sees = async |grantee: &Grantee| {
        let query =
            SearchQuery { grantee: grantee.clone(), collection: of_a(), text: "walrus".to_owned(), top: 5, ..SearchQuery::default() };
        let found = library.search(query).await.unwrap();
        let all = [
            found.exists,
            !found.hits.is_empty(),
            world.store.newest_change(grantee.clone(), of_a()).await.unwrap().is_some(),
            world.store.collections(grantee.clone()).await.unwrap() == ["a"],
            world.store.collection(grantee.clone(), of_a(), None).await.unwrap().is_some(),
            !world.store.documents(grantee.clone(), of_a(), None, 10).await.unwrap().is_empty(),
            world.store.document(grantee.clone(), of_a(), "one".to_owned()).await.unwrap().is_some(),
            !world.store.document_chunks(grantee.clone(), of_a(), "one".to_owned()).await.unwrap().is_empty(),
        ];
        assert!(all.iter().all(|one| *one == all[0]), "{grantee:?}: {all:?}");
        all[0]
    };
    assert_eq!(world.store.rights(world.tenant, of_a()).await.unwrap(), None);
    world.add(&[("one", "A walrus sleeps.")]).await;
    assert_eq!(world.store.rights(world.tenant, of_a()).await.unwrap(), Some(CollectionRights::default()));
    for grantee in [&guest, &hr, &key, &admin] {
        assert!(sees(grantee).await);
    }
    let new = |rights: &CollectionRights, trust| NewRights { read: rights.read.clone(), write: rights.write.clone(), trust };
    let put = async |rights: &CollectionRights| {
        world.store.put_rights(world.tenant, of_a(), new(rights, Some(rights.trust)), Author::server(), world.now).await.unwrap()
    };
    let only_hr = CollectionRights { read: vec!["hr".to_owned()], write: vec!["lead".to_owned()], trust: Trust::Untrusted };
    put(&only_hr).await;
    assert_eq!(world.store.rights(world.tenant, of_a()).await.unwrap(), Some(only_hr.clone()));
    assert_eq!((sees(&guest).await, sees(&hr).await, sees(&key).await, sees(&admin).await), (false, true, false, true));
    let readable = world.store.newest_change(hr.clone(), of_a()).await.unwrap().unwrap();
    assert_eq!((readable.change, readable.trust), (1, Trust::Untrusted), "rights are no change of the documents");
    assert!(only_hr.may_read(&hr) && !only_hr.may_read(&guest) && !only_hr.may_write(&hr) && only_hr.may_write(&admin));
    put(&CollectionRights { read: vec!["gu\"est'".to_owned()], ..only_hr.clone() }).await;
    assert_eq!((sees(&guest).await, sees(&hr).await, sees(&key).await), (true, false, false));
    put(&CollectionRights { read: Vec::new(), ..only_hr.clone() }).await;
    assert_eq!((sees(&guest).await, sees(&hr).await, sees(&admin).await), (false, false, true));
    // Rights can be set before the first document.
    for (trust, stored) in [(None, Trust::Trusted), (Some(Trust::Untrusted), Trust::Untrusted), (None, Trust::Untrusted)] {
        let put = world.store.put_rights(world.tenant, "b".to_owned(), new(&only_hr, trust), Author::server(), world.now).await.unwrap();
        assert_eq!(put, stored, "a put that names no trust leaves it");
    }
    world.store.add_documents(world.batch("b", &[("two", "A heron.")])).await.unwrap();
    assert_eq!(world.store.rights(world.tenant, "b".to_owned()).await.unwrap(), Some(only_hr));
    assert_eq!(world.store.collections(guest).await.unwrap(), Vec::<String>::new());
    assert_eq!(world.store.collections(hr).await.unwrap(), ["b"]);
}

/// A new store on PostgreSQL.
pub(crate) async fn fresh() -> (Arc<PostgresStore>, Clock) {
    let clock = Clock::system(0);
    let options = PostgresOptions { pool_size: 4, ..PostgresOptions::new(fresh_database()) };
    (PostgresStore::open(options, &clock, MODULES).await.unwrap(), clock)
}

macro_rules! on_both_databases {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (folder, clock) = (tempfile::tempdir().unwrap(), super::Clock::system(0));
                let store = super::SqliteStore::open(folder.path().join("w.db"), &clock, super::MODULES).unwrap();
                super::$case(super::World::new(store, clock)).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (store, clock) = super::fresh().await;
                super::$case(super::World::new(store, clock)).await;
            })+
        }
    };
}

on_both_databases! {
    documents_are_added_replaced_and_deleted,
    every_index_follows_its_rows,
    servers_follow_each_other,
    concurrent_writers_make_one_log,
    a_chunk_has_one_vector_of_each_model,
    rights_count_in_every_read,
}
