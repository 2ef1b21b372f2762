//! The seeds' search functions in SQL: their shape, separation of tenants, deletion, and hits by word and by vector.

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use werkruf_contract::{Clock, Uuid};
use werkruf_store::{PostgresOptions, PostgresStore};

use crate::story_tests::MODULES;
use crate::testbed::fresh_database;
use crate::{Knowledge, NewDocument, NewDocuments, NewVector, chunks};

const TENANT: Uuid = Uuid::from_u128(0xa);
const OTHER_TENANT: Uuid = Uuid::from_u128(0xb);

/// Document id, language and text.
const DOCUMENTS: [(&str, Option<&str>, &str); 6] = [
    ("miles", Some("de"), "Nicht genutzte Treuepunkte verfallen nach drei Jahren, und die Meilen bleiben dem Kunden erhalten."),
    ("baggage", Some("de-AT"), "Die Koffer werden am Schalter abgegeben. Das Gepäck wiegt höchstens dreißig Kilo."),
    ("seats", Some("en"), "Award seats can be cancelled until the day before departure."),
    ("tickets", Some("es"), "Las cancelaciones de los billetes cuestan cincuenta euros."),
    ("refunds", Some("fr"), "Les billets remboursés sont crédités en dix jours."),
    ("code", None, "Q7730 xylophone"),
];

/// A connection beside the store.
#[expect(clippy::disallowed_methods, reason = "the connection ends with the test that opened it")]
async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A store, and a connection beside it.
struct Database {
    store: Arc<PostgresStore>,
    client: Client,
    clock: Clock,
}

impl Database {
    async fn open() -> Self {
        let (clock, url) = (Clock::system(0), fresh_database());
        let store =
            PostgresStore::open(PostgresOptions { pool_size: 4, ..PostgresOptions::new(url.clone()) }, &clock, MODULES).await.unwrap();
        let client = connect(&url).await;
        Self { store, client, clock }
    }

    async fn add(&self, tenant_id: Uuid, collection: &str, documents: &[(&str, Option<&str>, &str)]) {
        let document = |(id, language, text): &(&str, Option<&str>, &str)| NewDocument {
            id: self.clock.new_id(),
            document_id: (*id).to_owned(),
            title: if *id == "endless" { (0..300_000).map(|number| format!("w{number} ")).collect() } else { format!("Page {id}") },
            language: language.map(str::to_owned),
            guessed: false,
            metadata: "{}".to_owned(),
            digest: self.clock.new_id().to_string(),
            chunks: chunks(text).into_iter().map(|chunk| (self.clock.new_id(), chunk)).collect(),
        };
        let batch = NewDocuments {
            tenant_id,
            collection: collection.to_owned(),
            ingestion_run_id: "ingest_1".to_owned(),
            documents: documents.iter().map(document).collect(),
            now: self.clock.now(),
        };
        self.store.add_documents(batch).await.unwrap();
    }

    async fn set_role(&self, role: &str, tenant: &str) {
        let sql = format!("SET ROLE {role}; SET werkruf.tenant TO '{tenant}'; SET search_path TO public");
        self.client.batch_execute(&sql).await.unwrap();
    }

    async fn by_words(&self, collection: &str, text: &str) -> Vec<String> {
        let sql = "SELECT document_id FROM werkruf.text_search_chunks(query_text => $1, match_count => 100, collection => $2)";
        self.client.query(sql, &[&text, &collection]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    async fn by_vector(&self, collection: &str, vector: &[f32]) -> Vec<(String, f64)> {
        let sql =
            "SELECT document_id, similarity FROM werkruf.match_chunks(query_embedding => $1::text, match_count => 100, collection => $2)";
        let literal = format!("{vector:?}");
        self.client.query(sql, &[&literal, &collection]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

#[tokio::test]
async fn a_word_is_found_in_the_language_of_its_document() {
    let database = Database::open().await;
    database.add(TENANT, "mixed", &DOCUMENTS).await;
    database.set_role("werkruf_app", &TENANT.to_string()).await;
    for (question, first) in [
        ("Treuepunkt", "miles"),
        ("Wann verfällt eine Meile?", "miles"),
        ("Wo ist der Koffer?", "baggage"),
        ("cancelling award seats before departures", "seats"),
        ("¿Cuánto cuesta la cancelación?", "tickets"),
        ("billet rembourse", "refunds"),
        ("q7730", "code"),
        ("\"award seats\"", "seats"),
    ] {
        let found = database.by_words("mixed", question).await;
        assert_eq!(found.first().map(String::as_str), Some(first), "{question}: {found:?}");
    }
    for nothing in ["xyzzy", "", "award -seats", "\"departure award\""] {
        assert!(database.by_words("mixed", nothing).await.is_empty(), "{nothing}");
    }
    assert!(database.by_words("other", "Treuepunkte").await.is_empty(), "another collection");
    // A tsvector holds 1 MB at most.
    database.add(TENANT, "other", &[("endless", None, "Found by its content.")]).await;
    assert_eq!(database.by_words("other", "content").await, ["endless"]);
    let both = database.by_words("mixed", "award miles Treuepunkte verfallen").await;
    assert_eq!(both[..2], ["miles", "seats"], "more of the words rank higher");
    let sql = "SELECT bm25 FROM werkruf.text_search_chunks('Meilen Koffer', 1, 'mixed')";
    let limited = database.client.query(sql, &[]).await.unwrap();
    assert!(limited.len() == 1 && limited[0].get::<_, f64>(0) > 0.0);
}

#[tokio::test]
async fn a_deleted_document_leaves_no_word_behind() {
    let database = Database::open().await;
    database.add(TENANT, "default", &DOCUMENTS).await;
    database.client.batch_execute("ANALYZE werkruf.documents, werkruf.chunks").await.unwrap();
    let samples: String = {
        let sql = "SELECT coalesce(json_agg(found)::text, '') FROM pg_stats AS found WHERE schemaname = 'werkruf'";
        database.client.query_one(sql, &[]).await.unwrap().get(0)
    };
    assert!(!samples.contains("xylophon") && samples.contains("document_id"), "statistics hold no words of texts");
    assert!(database.store.delete_document(TENANT, "default".to_owned(), "code".to_owned()).await.unwrap());
    database.add(TENANT, "default", &[("miles", Some("de"), "Ein anderer Text.")]).await;
    database.set_role("werkruf_system", "").await;
    let tables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'werkruf'::regnamespace AND relkind = 'r'";
    for table in database.client.query(tables, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0)) {
        let sql = format!("SELECT coalesce(string_agg(found::text, ' '), '') FROM werkruf.{table} AS found");
        let text: String = database.client.query_one(&sql, &[]).await.unwrap().get(0);
        for word in ["xylophon", "q7730", "treuepunkt"] {
            assert!(!text.to_lowercase().contains(word), "{word} is left in {table}");
        }
    }
    database.set_role("werkruf_app", &TENANT.to_string()).await;
    assert!(database.by_words("default", "xylophone Treuepunkte").await.is_empty());
    assert_eq!(database.by_words("default", "anderer Text").await, ["miles"]);
}

#[tokio::test]
async fn a_search_shows_each_role_the_rows_of_its_tenant() {
    let database = Database::open().await;
    database.add(TENANT, "default", &DOCUMENTS).await;
    database.add(OTHER_TENANT, "default", &[("theirs", Some("de"), "Meilen und Meilen.")]).await;
    let vectors = database.store.unembedded("m".to_owned(), 0, 100).await.unwrap();
    let vectors = vectors.iter().map(|chunk| NewVector { number: chunk.number, vector: Some(vec![1.0, 0.0]) }).collect();
    database.store.put_vectors("m".to_owned(), vectors).await.unwrap();
    for (role, tenant, words, vectors) in [
        ("werkruf_app", TENANT.to_string(), &["miles"][..], DOCUMENTS.len()),
        ("werkruf_app", OTHER_TENANT.to_string(), &["theirs"], 1),
        ("werkruf_app", Uuid::from_u128(0xc).to_string(), &[], 0),
        ("werkruf_app", String::new(), &[], 0),
        ("werkruf_operator", String::new(), &["miles", "theirs"], DOCUMENTS.len() + 1),
    ] {
        database.set_role(role, &tenant).await;
        // As the seed writes it.
        let sql = "SELECT document_id, content FROM werkruf.text_search_chunks(query_text => 'Miles & More Meilen', match_count => 6)";
        let mut found: Vec<String> = database.client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        found.sort_unstable();
        assert_eq!(found, words, "{role} of {tenant:?}");
        assert_eq!(database.by_vector("default", &[1.0, 0.0]).await.len(), vectors, "{role} of {tenant:?}");
    }
}

#[tokio::test]
async fn the_functions_have_the_shape_that_the_seeds_call() {
    let database = Database::open().await;
    database.add(TENANT, "default", &[("walrus", Some("en"), "Two walruses were sleeping.")]).await;
    let pending = database.store.unembedded("m".to_owned(), 0, 1).await.unwrap();
    let vector = NewVector { number: pending[0].number, vector: Some(vec![1.5, -0.25, 1e-9]) };
    database.store.put_vectors("m".to_owned(), vec![vector]).await.unwrap();
    for _ in 0..2 {
        database.store.add_compat_views().await.unwrap();
    }
    database.set_role("werkruf_operator", "").await;
    for (sql, score) in [
        ("SELECT * FROM text_search_chunks(query_text => 'a sleeping walrus', match_count => 6)", "bm25"),
        ("SELECT * FROM match_chunks(query_embedding => '[3, -0.5, 2e-9]', match_count => 6)", "similarity"),
        ("SELECT * FROM match_chunks(query_embedding => ARRAY[3, -0.5, 2e-9]::real[])", "similarity"),
    ] {
        let row = database.client.query_one(sql, &[]).await.unwrap();
        let names: Vec<&str> = row.columns().iter().map(tokio_postgres::Column::name).collect();
        assert_eq!(names, ["id", "document_id", "title", "content", score]);
        let text = |name: &str| row.get::<_, String>(name);
        assert_eq!((text("document_id"), text("title")), ("walrus".to_owned(), "Page walrus".to_owned()));
        assert_eq!(text("content"), "Two walruses were sleeping.");
        assert!(row.get::<_, Uuid>("id") != Uuid::nil() && row.get::<_, f64>(score) > 0.0);
    }
}

#[tokio::test]
async fn chunks_are_found_by_vector_with_and_without_pgvector() {
    let database = Database::open().await;
    database.add(TENANT, "mixed", &DOCUMENTS).await;
    let vector = |at: usize| {
        let (sin, cos) = (at as f32 * 0.16).sin_cos();
        vec![sin, cos, 0.01]
    };
    let pending = database.store.unembedded("m".to_owned(), 0, 100).await.unwrap();
    let refused = pending.len() - 1;
    let new = |(at, number): (usize, i64)| NewVector { number, vector: (at != refused).then(|| vector(at)) };
    let vectors = pending.iter().map(|chunk| chunk.number).enumerate().map(new).collect();
    database.store.put_vectors("m".to_owned(), vectors).await.unwrap();
    for installed in [false, true] {
        if installed {
            database.client.batch_execute("RESET ROLE; CREATE EXTENSION vector SCHEMA public").await.unwrap();
        }
        database.set_role("werkruf_app", &TENANT.to_string()).await;
        let found = database.by_vector("mixed", &vector(0)).await;
        let ids: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["miles", "baggage", "seats", "tickets", "refunds"]);
        for (at, (id, similarity)) in found.iter().enumerate() {
            assert!((similarity - (at as f64 * 0.16).cos()).abs() < 0.001, "{id}: {similarity}");
        }
    }
    let wrong = database.client.query("SELECT * FROM werkruf.match_chunks('[1, 2]', 3, 'mixed')", &[]).await.unwrap_err();
    let wrong = wrong.as_db_error().unwrap().message();
    assert_eq!(wrong, "the embedding has 2 dimensions, those of collection mixed have 3");
    assert!(database.client.query("SELECT * FROM werkruf.match_chunks('[1, 2]', 3, 'none')", &[]).await.unwrap().is_empty());
}
