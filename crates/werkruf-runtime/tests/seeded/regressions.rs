//! What the seeds found, told as short stories in good weather.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use werkruf_contract::TurnStatus;

use crate::client::{Client, Known};
use crate::fleet::Fleet;
use crate::mutant::Mutant;
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_message_is_worked_on_at_once_though_its_client_left_while_it_was_stored() {
    let world = World::new(0, Mutant::None);
    world.weather.clear_up();
    let fleet = Fleet::new(&world);
    fleet.start().await;
    let client = Client {
        world: Arc::clone(&world),
        fleet: Arc::clone(&fleet),
        known: Arc::new(Mutex::new(Known::default())),
        name: "c".to_owned(),
    };
    let member = fleet.any().unwrap();
    assert!(member.runtime.chat(client.first_words()).now_or_never().is_none(), "the message cannot be stored in no time");
    // Less than the recovery scan takes.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let turns: Vec<_> = world.tables.lock().unwrap().turns.values().map(|turn| (turn.status, turn.takeovers)).collect();
    // The model may have come to an answer, or to a call that needs a word.
    assert!(matches!(turns[..], [(TurnStatus::Completed | TurnStatus::AwaitingApproval, 0)]), "{turns:?}");
}
