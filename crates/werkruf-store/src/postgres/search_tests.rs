//! The seeds' functions in SQL, held against the server's own index: the same chunks in the same order with the same scores.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::Client;
use werkruf_contract::{Clock, Uuid};

use super::migrate::{MIGRATIONS, compat_views, migrate};
use super::story_tests::connect;
use super::{PostgresOptions, PostgresStore};
use crate::knowledge::{Knowledge, Library, NewDocument, NewDocuments, NewVector, SearchQuery, chunks, guess_language};
use crate::testbed::fresh_database;

const TENANT: Uuid = Uuid::from_u128(0xa);

/// Three languages, names in several spellings, compounds, accents, and chunks too short to have a language.
const GERMAN: [&str; 10] = [
    "Nicht genutzte Treuepunkte verfallen nach drei Jahren, und die Prämienmeilen bleiben dem Kunden erhalten.",
    "Der Flug LH 9017 startet abends in München; der Nachtflug ist ein Anschlussflug nach Größenbach.",
    "Das Sperrgepäck wird am Schalter für große Koffer abgegeben. Das Gepäck wiegt höchstens dreißig Kilo.",
    "Die Gebühren für eine Umbuchung betragen fünfzig Euro, und eine Gebühr für die Stornierung kommt hinzu.",
    "Meilen sammelt, wer mit einem Partner fliegt. Die Prämie wird in der Meilentabelle genannt.",
    "Die Freigepäckgrenze steht auf der Bordkarte; wer sie überschreitet, zahlt am Schalter nach.",
    "Statusmeilen zählen für den Kundenstatus, Prämienflüge zählen nicht. M&M nennt das Statusjahr.",
    "Der Schalter öffnet zwei Stunden vor dem Abflug und schließt vierzig Minuten vorher.",
    "Verspätungen werden mit Gutscheinen entschädigt. Der Gutschein verfällt nach einem Jahr.",
    "Kinder unter zwei Jahren fliegen ohne eigenen Sitzplatz; der Sitz kostet sonst den Kindertarif.",
];
const ENGLISH: [&str; 9] = [
    "Award seats can be cancelled until the day before departure, and the miles are added back to the account.",
    "Error E-7730 means that the payment was declined by the bank; error E-7731 means it was paid twice.",
    "Cabin baggage must not weigh more than eight kilos. Heavier bags are checked in at the counter.",
    "Passengers flying on LH-9017 are connecting in Munich. The connection takes forty minutes.",
    "The status of a member is renewed every year if enough miles were earned with partners.",
    "Upgrades are confirmed when the cabin has seats left, and a confirmed upgrade cannot be returned.",
    "A delayed flight is compensated with vouchers; the voucher expires after one year.",
    "Children under two years travel on the lap of a parent and pay a tenth of the fare.",
    "The Boeing 777-300ER has a crew rest above the cabin. Rule 17 a says who may use it.",
];
const SPANISH: [&str; 8] = [
    "La cancelación de los billetes cuesta cincuenta euros, y las cancelaciones tardías cuestan más.",
    "Las millas no utilizadas caducan después de tres años. Una milla caducada no se puede recuperar.",
    "El equipaje de mano no debe pesar más de ocho kilos; el equipaje pesado se factura en el mostrador.",
    "El vuelo LH9017 sale por la noche de Múnich y llega a Bogotá por la mañana.",
    "Los niños menores de dos años viajan sin asiento propio y pagan la décima parte de la tarifa.",
    "El mostrador abre dos horas antes de la salida y cierra cuarenta minutos antes.",
    "Los retrasos se compensan con vales. El vale caduca después de un año y no es transferible.",
    "El asiento se confirma cuando quedan plazas libres en la cabina.",
];
const SHORT: [&str; 3] = ["Tarife", "LH 9017", "E7730: Bank"];

const QUESTIONS: [&str; 24] = [
    "Wann verfallen meine Treuepunkte?",
    "Prämienmeile",
    "Wie schwer darf ein Koffer oder das Gepäck sein?",
    "Freigepaeck Grenze ueberschritten",
    "Gebuehren der Umbuchungen",
    "Nachtfluege nach Muenchen",
    "Was kostet ein Kind ohne Sitzplatz, und wo ist der Schalter?",
    "LH9017",
    "lh-9017 München",
    "M&M Statusmeilen",
    "E7730",
    "error E-7731 payment declined",
    "cancelling award seats before departures",
    "How heavy may cabin bags be?",
    "connections and connecting passengers",
    "777 300ER crew",
    "17a",
    "when does a voucher expire",
    "¿Cuánto cuesta cancelar un billete?",
    "millas caducadas",
    "equipajes pesados en el mostrador",
    "vuelos nocturnos a Bogota",
    "what is the",
    "xyzzy",
];

/// A database, the server's index over it, and somebody beside the server.
struct Shelf {
    store: Arc<PostgresStore>,
    library: Library,
    client: Client,
    clock: Clock,
}

impl Shelf {
    async fn open() -> Self {
        let clock = Clock::system(0);
        let url = fresh_database();
        let store = PostgresStore::open(PostgresOptions { pool_size: 4, ..PostgresOptions::new(url.clone()) }, &clock).await.unwrap();
        let library = Library::new(Arc::clone(&store) as Arc<dyn Knowledge>, usize::MAX);
        Self { store, library, client: connect(&url).await, clock }
    }

    async fn add(&self, collection: &str, texts: &[(String, &str)]) {
        let document = |(id, text): &(String, &str)| NewDocument {
            id: self.clock.new_id(),
            document_id: id.clone(),
            title: format!("Seite {id}"),
            language: guess_language(text).map(|language| language.code().to_owned()),
            guessed: true,
            metadata: "{}".to_owned(),
            digest: (*text).to_owned(),
            chunks: chunks(text).into_iter().map(|chunk| (self.clock.new_id(), chunk)).collect(),
        };
        let documents = texts.iter().map(document).collect();
        let batch = NewDocuments {
            tenant_id: TENANT,
            collection: collection.to_owned(),
            ingestion_run_id: "ingest_1".to_owned(),
            documents,
            now: self.clock.now(),
        };
        self.store.add_documents(batch).await.unwrap();
    }

    /// What the server ranks by words, or by vectors: document and score.
    async fn served(&self, collection: &str, text: &str, vector: Option<Vec<f32>>) -> Vec<(String, f64)> {
        let by_words = vector.is_none();
        let vector = vector.map(|vector| ("m".to_owned(), vector));
        let asked = SearchQuery {
            tenant_id: TENANT,
            collection: collection.to_owned(),
            text: text.to_owned(),
            vector,
            top: 100,
            ..SearchQuery::default()
        };
        let mut listed: Vec<(u32, String, f64)> = Vec::new();
        for (row, hit) in self.library.search(asked).await.unwrap().hits {
            let place = if by_words { hit.rank_bm25.map(|rank| (rank, hit.bm25)) } else { hit.rank_vector.zip(hit.similarity) };
            listed.extend(place.map(|(rank, score)| (rank, row.document_id, f64::from(score))));
        }
        listed.sort_by_key(|(rank, ..)| *rank);
        listed.into_iter().map(|(_, id, score)| (id, score)).collect()
    }

    async fn be(&self, role: &str, tenant: &str) {
        self.client.batch_execute(&format!("SET ROLE {role}; SET werkruf.tenant TO '{tenant}'; SET search_path TO public")).await.unwrap();
    }

    async fn by_words(&self, collection: &str, text: &str) -> Vec<(String, f64)> {
        let sql = "SELECT document_id, bm25 FROM werkruf.text_search_chunks(query_text => $1, match_count => 100, collection => $2)";
        self.client.query(sql, &[&text, &collection]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn by_vector(&self, collection: &str, vector: &[f32]) -> Vec<(String, f64)> {
        let sql =
            "SELECT document_id, similarity FROM werkruf.match_chunks(query_embedding => $1::text, match_count => 100, collection => $2)";
        let literal = format!("{vector:?}");
        self.client.query(sql, &[&literal, &collection]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn compare(&self, collection: &str, questions: &[String]) {
        for question in questions {
            let (served, told) = (self.served(collection, question, None).await, self.by_words(collection, question).await);
            let ids = |list: &[(String, f64)]| list.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&served), ids(&told), "{collection}: {question}\nserver {served:?}\nSQL    {told:?}");
            for ((id, ours), (_, theirs)) in served.iter().zip(&told) {
                assert!((ours - theirs).abs() < 1e-4, "{collection}: {question}: {id} has {ours} and {theirs}");
            }
        }
    }
}

fn numbered<'a>(prefix: &str, texts: &[&'a str]) -> Vec<(String, &'a str)> {
    texts.iter().enumerate().map(|(at, text)| (format!("{prefix}{at}"), *text)).collect()
}

/// Every third word of the texts as a question of its own, and the questions people would ask.
fn questions() -> Vec<String> {
    let texts = GERMAN.iter().chain(&ENGLISH).chain(&SPANISH);
    let mut all: Vec<String> = texts.flat_map(|text| text.split_whitespace()).step_by(3).map(str::to_owned).collect();
    all.extend(QUESTIONS.map(str::to_owned));
    all.sort_unstable();
    all.dedup();
    all
}

#[tokio::test]
async fn sql_ranks_words_as_the_server_does() {
    let shelf = Shelf::open().await;
    let (german, english, spanish) = (numbered("de", &GERMAN), numbered("en", &ENGLISH), numbered("es", &SPANISH));
    let mixed: Vec<_> = [&german[..], &english, &spanish, &numbered("s", &SHORT)].concat();
    for (collection, texts) in [("german", &german), ("english", &english), ("spanish", &spanish), ("mixed", &mixed)] {
        shelf.add(collection, texts).await;
        shelf.be("werkruf_app", &TENANT.to_string()).await;
        shelf.compare(collection, &if collection == "mixed" { questions() } else { QUESTIONS.map(str::to_owned).to_vec() }).await;
    }
    // What goes and comes changes both alike, and leaves no word behind.
    for id in ["de0", "en2", "es1"] {
        assert!(shelf.store.delete_document(TENANT, "mixed".to_owned(), id.to_owned()).await.unwrap());
    }
    shelf.add("mixed", &[("de1".to_owned(), "Der Xylophonflug LH 9018 entfällt."), ("n".to_owned(), GERMAN[0])]).await;
    // As a server that starts now: what a running one knows of compounds may be older.
    let shelf = Shelf { library: Library::new(Arc::clone(&shelf.store) as Arc<dyn Knowledge>, usize::MAX), ..shelf };
    shelf.compare("mixed", &QUESTIONS.map(str::to_owned)).await;
    assert!(shelf.store.delete_document(TENANT, "mixed".to_owned(), "de1".to_owned()).await.unwrap());
    for table in [
        "vocabulary WHERE word LIKE '%xylophon%'",
        "vocabulary WHERE word = '=lh9018'",
        "postings WHERE chunk NOT IN (SELECT number FROM werkruf.chunks)",
    ] {
        let left: i64 = shelf.client.query_one(&format!("SELECT count(*) FROM werkruf.{table}"), &[]).await.unwrap().get(0);
        assert_eq!(left, 0, "{table}");
    }
}

#[tokio::test]
async fn sql_shows_everybody_what_their_rows_show() {
    let shelf = Shelf::open().await;
    shelf.add("default", &numbered("de", &GERMAN)).await;
    for (role, tenant, seen) in [
        ("werkruf_app", TENANT.to_string(), true),
        ("werkruf_app", Uuid::from_u128(0xb).to_string(), false),
        ("werkruf_app", String::new(), false),
        ("werkruf_operator", String::new(), true),
    ] {
        shelf.be(role, &tenant).await;
        // As the seed writes it.
        let sql = "SELECT document_id, content FROM werkruf.text_search_chunks(query_text => 'Miles & More Meilen', match_count => 2)";
        let found = shelf.client.query(sql, &[]).await.unwrap();
        assert_eq!(found.len(), if seen { 2 } else { 0 }, "{role} of {tenant:?}");
    }
}

#[tokio::test]
async fn sql_finds_what_an_older_server_wrote() {
    let mut client = connect(&fresh_database()).await;
    let before = MIGRATIONS.iter().position(|step| step.name == "search").unwrap();
    migrate(&mut client, "werkruf", &MIGRATIONS[..before], Timestamp::UNIX_EPOCH).await.unwrap();
    let batch = format!(
        r#"{{"tenant_id": "{TENANT}", "collection": "default", "ingestion_run_id": "r", "now": "2026-01-01T00:00:00Z", "documents": [{{
          "id": "{TENANT}", "document_id": "walrus", "title": "Animals", "language": "en", "guessed": true, "metadata": "{{}}", "digest": "d",
          "chunks": [{{"id": "{TENANT}", "heading": "Sea", "content": "Two walruses were sleeping."}}]}}]}}"#
    );
    let as_app = format!("SET ROLE werkruf_app; SET werkruf.tenant TO '{TENANT}'; SET search_path TO werkruf");
    client.batch_execute(&as_app).await.unwrap();
    client.query("SELECT * FROM add_documents($1::text::jsonb, 1000)", &[&batch]).await.unwrap();
    let vector: &[u8] = &[1.5_f32, -0.25, 1e-9].map(f32::to_le_bytes).concat();
    client.batch_execute("SET ROLE werkruf_system").await.unwrap();
    client.query("SELECT put_vectors('m', ARRAY(SELECT number FROM chunks), ARRAY[$1::bytea], 1000)", &[&vector]).await.unwrap();
    client.batch_execute("RESET ROLE; RESET search_path").await.unwrap();
    migrate(&mut client, "werkruf", MIGRATIONS, Timestamp::UNIX_EPOCH).await.unwrap();
    for _ in 0..2 {
        compat_views(&mut client, "werkruf").await.unwrap();
    }
    // As the seeds write it, in whatever schema one is.
    client.batch_execute("SET ROLE werkruf_operator; SET werkruf.tenant TO ''; SET search_path TO public").await.unwrap();
    let sql = "SELECT * FROM text_search_chunks(query_text => 'a sleeping walrus', match_count => 6)";
    let found = client.query_one(sql, &[]).await.unwrap();
    let column = |name: &str| found.get::<_, String>(name);
    assert_eq!((found.get::<_, Uuid>("id"), column("document_id"), column("title")), (TENANT, "walrus".to_owned(), "Animals".to_owned()));
    assert_eq!(column("content"), "Two walruses were sleeping.");
    let sql = "SELECT similarity FROM match_chunks(query_embedding => '[3, -0.5, 2e-9]', match_count => 6)";
    assert!((client.query_one(sql, &[]).await.unwrap().get::<_, f64>(0) - 1.0).abs() < 1e-6);
}

#[tokio::test]
async fn sql_ranks_vectors_as_the_server_does() {
    let shelf = Shelf::open().await;
    shelf.add("mixed", &[&numbered("de", &GERMAN)[..], &numbered("en", &ENGLISH)].concat()).await;
    // Far enough apart that rounding to a byte a dimension, as the index does, moves nothing.
    let angle = |at: usize| (at as f32 * 0.16).sin_cos();
    let vector = |at: usize| vec![angle(at).0, angle(at).1, 0.01];
    let pending = shelf.store.unembedded("m".to_owned(), 0, 100).await.unwrap();
    let refused = pending.len() - 1;
    let new = |(at, number): (usize, i64)| NewVector { number, vector: (at != refused).then(|| vector(at)) };
    let vectors = pending.iter().map(|chunk| chunk.number).enumerate().map(new).collect();
    shelf.store.put_vectors("m".to_owned(), vectors).await.unwrap();
    let exact: BTreeMap<bool, Vec<(String, f64)>> = {
        let mut found = BTreeMap::new();
        for installed in [false, true] {
            if installed {
                shelf.client.batch_execute("RESET ROLE; CREATE EXTENSION vector SCHEMA public").await.unwrap();
            }
            shelf.be("werkruf_app", &TENANT.to_string()).await;
            found.insert(installed, shelf.by_vector("mixed", &vector(0)).await);
        }
        found
    };
    let served = shelf.served("mixed", "Meilen", Some(vector(0))).await;
    assert_eq!(served.len(), refused);
    for told in exact.values() {
        for (ours, theirs) in served.iter().zip(told) {
            assert!(ours.0 == theirs.0 && (ours.1 - theirs.1).abs() < 0.01, "{served:?}\n{told:?}");
        }
    }
    let wrong = shelf.client.query("SELECT * FROM werkruf.match_chunks('[1, 2]', 3, 'mixed')", &[]).await.unwrap_err();
    let wrong = wrong.as_db_error().unwrap().message();
    assert_eq!(wrong, "the embedding has 2 dimensions, those of collection mixed have 3");
    assert!(shelf.client.query("SELECT * FROM werkruf.match_chunks('[1, 2]', 3, 'none')", &[]).await.unwrap().is_empty());
}
