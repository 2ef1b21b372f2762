use super::*;

async fn registration(registry: &Arc<ConnectionRegistry>, client: &str) -> Option<Registration> {
    let client: SocketAddr = client.parse().unwrap();
    let permit = registry.acquire(client.ip()).await.unwrap();
    registry.register(client, permit)
}

fn registry(per_address: u32) -> Arc<ConnectionRegistry> {
    let bounds = Bounds { connections: 16, per_address, ..Bounds::default() };
    Arc::new(ConnectionRegistry::new(&bounds, Proxies::of(&["198.51.100.0/24".to_owned()])))
}

#[tokio::test]
async fn a_proxy_has_no_limit_per_address() {
    let registry = registry(1);
    let mut connections = Vec::new();
    for client in ["127.0.0.1:1", "127.0.0.1:2", "[::1]:1", "[::1]:2", "198.51.100.9:1", "198.51.100.9:2", "192.0.2.1:1"] {
        connections.push(registration(&registry, client).await.unwrap());
    }
    assert!(registration(&registry, "192.0.2.1:2").await.is_none());
    drop(connections);
    assert!(registry.entries().addresses.is_empty());
}

#[tokio::test]
async fn connections_are_counted_per_address_until_they_close() {
    let registry = registry(2);
    let first = registration(&registry, "192.0.2.1:1").await.unwrap();
    // The same address, as a dual-stack socket reports it.
    let _second = registration(&registry, "[::ffff:192.0.2.1]:2").await.unwrap();
    assert!(registration(&registry, "192.0.2.1:3").await.is_none());
    assert!(registration(&registry, "192.0.2.2:3").await.is_some());
    drop(first);
    assert!(registration(&registry, "192.0.2.1:3").await.is_some());
    assert_eq!(registry.entries().addresses.len(), 1, "addresses without a connection are removed");
    assert_eq!(registry.capacity.available_permits(), 15, "a rejected connection holds no permit");
}

#[tokio::test]
async fn one_ipv6_subscriber_is_one_address() {
    let registry = registry(1);
    let _first = registration(&registry, "[2001:db8::1]:1").await.unwrap();
    assert!(registration(&registry, "[2001:db8::ffff:2]:1").await.is_none());
    assert!(registration(&registry, "[2001:db8:0:1::1]:1").await.is_some());
}

#[tokio::test]
async fn only_a_wait_that_lasts_for_all_sweeps_ends_a_connection() {
    let registry = registry(8);
    let stalled = registration(&registry, "192.0.2.1:1").await.unwrap();
    let moving = registration(&registry, "192.0.2.1:2").await.unwrap();
    let idle = registration(&registry, "192.0.2.1:3").await.unwrap();
    stalled.control.write_wait_changed();
    moving.control.write_wait_changed();
    for sweep in 0..3 {
        assert_eq!(registry.sweep(3), 0, "sweep {sweep}");
        // The client reads a byte, and the next write waits again.
        moving.control.write_wait_changed();
        moving.control.write_wait_changed();
    }
    assert_eq!(registry.sweep(3), 1);
    assert_eq!(
        [stalled.control.command(), moving.control.command(), idle.control.command()],
        [Command::Reset, Command::Serve, Command::Serve]
    );
    registry.close_all();
    assert_eq!(
        [stalled.control.command(), moving.control.command()],
        [Command::Reset, Command::Close],
        "a weaker command never replaces a stronger one"
    );
}

fn commands(connections: &[Registration]) -> Vec<Command> {
    connections.iter().map(|connection| connection.control.command()).collect()
}

#[tokio::test]
async fn silent_connections_give_way_where_only_spare_places_are_left() {
    let registry = registry(100);
    let mut kept = Vec::new();
    for port in 0..16 {
        kept.push(registration(&registry, &format!("203.0.113.1:{port}")).await.unwrap());
    }
    let mut spare = Vec::new();
    for port in 0..3 {
        spare.push(registration(&registry, &format!("192.0.2.1:{port}")).await.unwrap());
    }
    assert_eq!(commands(&spare), [Command::End, Command::Serve, Command::Serve], "two of one address");
    spare.remove(0);
    // A connection with a request is not silent.
    spare[0].control.set_busy();
    for number in 0..14 {
        spare.push(registration(&registry, &format!("198.18.0.{number}:1")).await.unwrap());
    }
    assert_eq!(registry.spare.available_permits(), 0);
    // All are taken: the next one gets the place of the silent one that came first.
    let next = registration(&registry, "198.18.1.1:1");
    let mut next = std::pin::pin!(next);
    assert!(futures_util::poll!(&mut next).is_pending());
    assert_eq!(commands(&spare[..3]), [Command::Serve, Command::End, Command::Serve]);
    spare.remove(1);
    assert!(next.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_gets_that_of_a_connection_that_becomes_idle() {
    let registry = registry(100);
    let mut kept = Vec::new();
    for port in 0..16 {
        let connection = registration(&registry, &format!("203.0.113.1:{port}")).await.unwrap();
        connection.control.set_busy();
        kept.push(connection);
    }
    let spare = [registration(&registry, "192.0.2.1:1").await.unwrap(), registration(&registry, "192.0.2.2:1").await.unwrap()];
    // An idle spare connection has no place to give.
    spare[0].control.set_idle(Instant::now().into_std());
    let place = spare[1].spare().unwrap();
    let waiting = place.keep(Duration::from_secs(1));
    let idle = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        kept[3].control.set_idle(Instant::now().into_std());
        while kept[3].control.command() == Command::Serve {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        kept.remove(3);
    };
    let (is_kept, ()) = tokio::join!(waiting, idle);
    assert!(is_kept);
    assert_eq!(commands(&spare), [Command::Serve, Command::Serve]);
}
