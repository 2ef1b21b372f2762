//! Several processes on one database embed chunks: each chunk is claimed by one of them until it is embedded, released or expired.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use werkruf_contract::{Clock, Uuid};
use werkruf_store::postgres::DbRole;
use werkruf_store::{PostgresOptions, PostgresStore};

use crate::story_tests::{MODULES, World};
use crate::testbed::fresh_database;
use crate::{Knowledge, NewVector};

const CHUNKS: usize = 60;

/// Three stores that share only the database, and documents of one chunk each.
async fn three() -> (World, [Arc<PostgresStore>; 3]) {
    let (url, clock) = (fresh_database(), Clock::system(0));
    let open = async || {
        let options = PostgresOptions { pool_size: 4, lease_ttl: Duration::from_mins(5), ..PostgresOptions::new(url.clone()) };
        PostgresStore::open(options, &clock, MODULES).await.unwrap()
    };
    let stores = [open().await, open().await, open().await];
    let world = World::new(stores[0].clone(), clock);
    let ids: Vec<String> = (0..CHUNKS).map(|number| format!("d{number}")).collect();
    let documents: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "A walrus.")).collect();
    world.add(&documents).await;
    (world, stores)
}

async fn claim(store: &PostgresStore, model: &str, owner: Uuid, limit: u32) -> Vec<i64> {
    store.claim_unembedded(model.to_owned(), owner, 0, limit).await.unwrap().into_iter().map(|chunk| chunk.number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_embed_at_once_never_claim_the_same_chunk() {
    let (world, stores) = three().await;
    // Each embeds batches until it finds none, as the embedder does.
    let working = stores.iter().map(|store| {
        let owner = world.id();
        async move {
            let mut embedded = Vec::new();
            loop {
                let batch = claim(store, "m", owner, 7).await;
                if batch.is_empty() {
                    return embedded;
                }
                let vectors = batch.iter().map(|number| NewVector { number: *number, vector: Some(vec![1.0]) }).collect();
                embedded.extend(batch);
                store.put_vectors("m".to_owned(), vectors).await.unwrap();
                store.release_claims(owner).await.unwrap();
            }
        }
    });
    let embedded = join_all(working).await.concat();
    let different: BTreeSet<i64> = embedded.iter().copied().collect();
    assert_eq!((embedded.len(), different.len()), (CHUNKS, CHUNKS), "each chunk was embedded once");
    assert!(world.store.unembedded("m".to_owned(), 0, 10).await.unwrap().is_empty());
    let left = stores[0].query(DbRole::System, "SELECT 1 FROM embedding_claims", &[]).await.unwrap();
    assert!(left.is_empty(), "finished work leaves no claim");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_renewed_released_or_expires() {
    let (world, [here, there, _]) = three().await;
    let (mine, yours) = (world.id(), world.id());
    let everything = u32::try_from(CHUNKS).unwrap();
    let first = claim(&here, "m", mine, 10).await;
    let rest = claim(&there, "m", yours, everything).await;
    assert_eq!((first.len(), rest.len()), (10, CHUNKS - 10));
    assert!(claim(&here, "m", mine, everything).await.is_empty(), "a process does not get its own claims again");
    assert!(claim(&here, "other model", mine, everything).await.is_empty(), "a claim holds for every model");

    // The claims of the first process expire, the second one renews its own.
    here.query(DbRole::System, "UPDATE embedding_claims SET until = '-infinity'", &[]).await.unwrap();
    there.renew_claims(yours).await.unwrap();
    assert_eq!(claim(&there, "m", yours, everything).await, first);

    there.release_claims(yours).await.unwrap();
    let all = claim(&here, "m", mine, everything).await;
    assert_eq!(all.len(), CHUNKS);
    // The claim of a deleted chunk does no harm.
    assert!(world.store.delete_document(world.tenant, "a".to_owned(), "d0".to_owned()).await.unwrap());
    here.release_claims(mine).await.unwrap();
    assert_eq!(claim(&there, "m", yours, everything).await.len(), CHUNKS - 1);
    assert_eq!(here.claim_ttl(), Some(Duration::from_mins(5)));
}
