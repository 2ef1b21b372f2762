use super::*;

async fn place(roll: &Arc<Roll>, client: &str) -> Option<Place> {
    let room = roll.room().await.unwrap();
    roll.enter(client.parse().unwrap(), room)
}

fn roll(per_address: u32) -> Arc<Roll> {
    let bounds = Bounds { connections: 16, per_address, ..Bounds::default() };
    Arc::new(Roll::new(&bounds, Proxies::of(&["198.51.100.0/24".to_owned()])))
}

#[tokio::test]
async fn a_proxy_has_as_many_places_as_there_are() {
    let roll = roll(1);
    let mut places = Vec::new();
    for client in ["127.0.0.1:1", "127.0.0.1:2", "[::1]:1", "[::1]:2", "198.51.100.9:1", "198.51.100.9:2", "192.0.2.1:1"] {
        places.push(place(&roll, client).await.unwrap());
    }
    assert!(place(&roll, "192.0.2.1:2").await.is_none());
    drop(places);
    assert!(roll.rows().addresses.is_empty());
}

#[tokio::test]
async fn places_are_counted_per_address_and_given_back() {
    let roll = roll(2);
    let first = place(&roll, "192.0.2.1:1").await.unwrap();
    // The same address, as a socket for both families shows it.
    let _second = place(&roll, "[::ffff:192.0.2.1]:2").await.unwrap();
    assert!(place(&roll, "192.0.2.1:3").await.is_none());
    assert!(place(&roll, "192.0.2.2:3").await.is_some());
    drop(first);
    assert!(place(&roll, "192.0.2.1:3").await.is_some());
    assert_eq!(roll.rows().addresses.len(), 1, "addresses without a connection are forgotten");
    assert_eq!(roll.room.available_permits(), 15, "a refused connection holds no room");
}

#[tokio::test]
async fn one_ipv6_subscriber_is_one_address() {
    let roll = roll(1);
    let _first = place(&roll, "[2001:db8::1]:1").await.unwrap();
    assert!(place(&roll, "[2001:db8::ffff:2]:1").await.is_none());
    assert!(place(&roll, "[2001:db8:0:1::1]:1").await.is_some());
}

#[tokio::test]
async fn only_the_same_wait_through_all_looks_ends_a_connection() {
    let roll = roll(8);
    let still = place(&roll, "192.0.2.1:1").await.unwrap();
    let moving = place(&roll, "192.0.2.1:2").await.unwrap();
    let idle = place(&roll, "192.0.2.1:3").await.unwrap();
    still.line.flow_changed();
    moving.line.flow_changed();
    for look in 0..3 {
        assert_eq!(roll.look(3), 0, "look {look}");
        // The client took a byte, and the next write waits again.
        moving.line.flow_changed();
        moving.line.flow_changed();
    }
    assert_eq!(roll.look(3), 1);
    assert_eq!([still.line.order(), moving.line.order(), idle.line.order()], [Order::Reset, Order::Serve, Order::Serve]);
    roll.close_all();
    assert_eq!([still.line.order(), moving.line.order()], [Order::Reset, Order::Close], "an order never becomes milder");
}
