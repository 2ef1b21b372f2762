//! Several servers on one database give chunks their vectors: each chunk is one server's, until it is done, let go of, or forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use werkruf_contract::{Clock, Uuid};

use super::flush::DbRole;
use super::{PostgresOptions, PostgresStore};
use crate::knowledge::{Knowledge, NewVector};
use crate::story::World;
use crate::testbed::fresh_database;

const CHUNKS: usize = 60;

/// Three stores that know nothing of each other but the database, and documents of one chunk each.
async fn three() -> (World<PostgresStore>, [Arc<PostgresStore>; 3]) {
    let (url, clock) = (fresh_database(), Clock::system(0));
    let open = async || {
        let options = PostgresOptions { pool_size: 4, lease_ttl: Duration::from_mins(5), ..PostgresOptions::new(url.clone()) };
        PostgresStore::open(options, &clock).await.unwrap()
    };
    let stores = [open().await, open().await, open().await];
    let world = World::new(Arc::clone(&stores[0]), clock);
    let ids: Vec<String> = (0..CHUNKS).map(|number| format!("d{number}")).collect();
    let documents: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "A walrus.")).collect();
    world.add(&documents).await;
    (world, stores)
}

async fn claim(store: &PostgresStore, model: &str, owner: Uuid, limit: u32) -> Vec<i64> {
    store.claim_unembedded(model.to_owned(), owner, limit).await.unwrap().into_iter().map(|chunk| chunk.number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_work_at_once_never_have_the_same_chunk() {
    let (world, stores) = three().await;
    // Each embeds batches until it finds none, as the embedder does.
    let working = stores.iter().map(|store| {
        let owner = world.id();
        async move {
            let mut paid = Vec::new();
            loop {
                let batch = claim(store, "m", owner, 7).await;
                if batch.is_empty() {
                    return paid;
                }
                let vectors = batch.iter().map(|number| NewVector { number: *number, vector: Some(vec![1.0]) }).collect();
                paid.extend(batch);
                store.put_vectors("m".to_owned(), vectors).await.unwrap();
                store.release_claims(owner).await.unwrap();
            }
        }
    });
    let paid = join_all(working).await.concat();
    let different: BTreeSet<i64> = paid.iter().copied().collect();
    assert_eq!((paid.len(), different.len()), (CHUNKS, CHUNKS), "each chunk was paid for once");
    assert!(world.store.unembedded("m".to_owned(), 0, 10).await.unwrap().is_empty());
    let left = world.store.query(DbRole::System, "SELECT 1 FROM embedding_claims", &[]).await.unwrap();
    assert!(left.is_empty(), "nothing is kept of work that is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_kept_let_go_of_or_forgotten() {
    let (world, [here, there, _]) = three().await;
    let (mine, yours) = (world.id(), world.id());
    let everything = u32::try_from(CHUNKS).unwrap();
    let first = claim(&here, "m", mine, 10).await;
    let rest = claim(&there, "m", yours, everything).await;
    assert_eq!((first.len(), rest.len()), (10, CHUNKS - 10));
    assert!(claim(&here, "m", mine, everything).await.is_empty(), "one's own claims are not given twice either");
    assert!(claim(&here, "other model", mine, everything).await.is_empty(), "whoever embeds a chunk, for whatever model, has it");

    // One is not heard of any more, the other says that it is still there.
    here.query(DbRole::System, "UPDATE embedding_claims SET until = '-infinity'", &[]).await.unwrap();
    there.renew_claims(yours).await.unwrap();
    assert_eq!(claim(&there, "m", yours, everything).await, first);

    there.release_claims(yours).await.unwrap();
    let all = claim(&here, "m", mine, everything).await;
    assert_eq!(all.len(), CHUNKS);
    // Chunks that are gone leave no claim that hurts.
    assert!(world.store.delete_document(world.tenant, "a".to_owned(), "d0".to_owned()).await.unwrap());
    here.release_claims(mine).await.unwrap();
    assert_eq!(claim(&there, "m", yours, everything).await.len(), CHUNKS - 1);
    assert_eq!(here.claim_ttl(), Some(Duration::from_mins(5)));
}
