use super::*;

async fn registration(registry: &Arc<ConnectionRegistry>, client: &str) -> Option<Registration> {
    let permit = registry.acquire().await.unwrap();
    registry.register(client.parse().unwrap(), permit)
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
