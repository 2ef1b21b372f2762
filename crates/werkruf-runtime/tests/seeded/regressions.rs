//! What the seeds found, told as short stories in good weather.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;

use crate::client::{Client, Known};
use crate::cluster::Cluster;
use crate::mutant::Mutant;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_message_is_worked_on_at_once_though_its_client_left_while_it_was_stored() {
    let world = World::new(0, Mutant::None);
    world.weather.clear_up();
    let cluster = Cluster::new(&world);
    cluster.start().await;
    let client = Client {
        world: Arc::clone(&world),
        cluster: Arc::clone(&cluster),
        known: Arc::new(Mutex::new(Known::default())),
        name: "c".to_owned(),
    };
    let member = cluster.any().unwrap();
    assert!(member.runtime.chat(client.first_words()).now_or_never().is_none(), "the message cannot be stored in no time");
    // Less than the recovery scan takes.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let turns: Vec<_> = world.tables.lock().unwrap().turns.values().map(|turn| (turn.status.as_str(), turn.takeovers)).collect();
    // Whatever the model wanted: nobody's word would have been asked for without working on it.
    assert!(matches!(turns.as_slice(), [("completed" | "awaiting_approval", 0)]), "{turns:?}");
}
