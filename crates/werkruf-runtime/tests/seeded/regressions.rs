//! Defects that seeds found, as short tests without faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;

use crate::client::{Client, Known};
use crate::cluster::Cluster;
use crate::mutant::Mutant;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_turn_runs_at_once_although_its_client_disconnected_while_the_message_was_stored() {
    let world = World::new(0, Mutant::None);
    world.faults.stop();
    let cluster = Cluster::new(&world);
    cluster.start().await;
    let client = Client {
        world: Arc::clone(&world),
        cluster: Arc::clone(&cluster),
        known: Arc::new(Mutex::new(Known::default())),
        name: "c".to_owned(),
    };
    let member = cluster.any().unwrap();
    assert!(member.runtime.chat(client.first_message()).now_or_never().is_none(), "storing the message takes time");
    // Less than the interval of the recovery scan.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let turns: Vec<_> = world.tables.lock().unwrap().turns.values().map(|turn| (turn.status.as_str(), turn.takeovers)).collect();
    // The model may have called a tool that needs an approval; the turn ran in both cases.
    assert!(matches!(turns.as_slice(), [("completed" | "awaiting_approval", 0)]), "{turns:?}");
}
