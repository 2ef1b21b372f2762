//! The open connections, counted in total and per remote address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bounds::Bounds;
use super::control::{Command, ConnectionControl};
use super::proxies::Proxies;

pub(super) struct ConnectionRegistry {
    entries: Mutex<Entries>,
    capacity: Arc<Semaphore>,
    connections: u32,
    per_address: u32,
    proxies: Proxies,
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    connections: HashMap<u64, Entry>,
    addresses: HashMap<IpAddr, u32>,
}

/// One connection with the state of the watchdog.
struct Entry {
    control: Arc<ConnectionControl>,
    /// The write wait at the last sweep, and for how many sweeps it was the same.
    write_wait: u32,
    sweeps: u32,
}

/// The registration of one connection, removed when dropped.
pub(super) struct Registration {
    registry: Arc<ConnectionRegistry>,
    id: u64,
    address: IpAddr,
    pub(super) control: Arc<ConnectionControl>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionRegistry {
    pub(super) fn new(bounds: &Bounds, proxies: Proxies) -> Self {
        Self {
            entries: Mutex::default(),
            capacity: Arc::new(Semaphore::new(bounds.connections as usize)),
            connections: bounds.connections,
            per_address: bounds.per_address,
            proxies,
        }
    }

    /// Waits until one more connection is allowed.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.capacity).acquire_owned().await.ok()
    }

    /// Waits until no connection is open.
    pub(super) async fn wait_until_empty(&self) {
        let _ = self.capacity.acquire_many(self.connections).await;
    }

    /// Registers a connection; `None` if its address has too many.
    pub(super) fn register(self: &Arc<Self>, client: SocketAddr, permit: OwnedSemaphorePermit) -> Option<Registration> {
        let address = counted_address(client.ip());
        let mut entries = self.entries();
        let count = entries.addresses.entry(address).or_default();
        if *count >= self.per_address && !self.proxies.contains(client.ip()) {
            return None;
        }
        *count += 1;
        let id = entries.next_id;
        entries.next_id += 1;
        let control = Arc::new(ConnectionControl::default());
        entries.connections.insert(id, Entry { control: Arc::clone(&control), write_wait: 0, sweeps: 0 });
        Some(Registration { registry: Arc::clone(self), id, address, control, _permit: permit })
    }

    /// Lets running requests finish and accepts no new ones.
    pub(super) fn close_all(&self) {
        self.send_all(Command::Close);
    }

    /// Closes every connection now.
    pub(super) fn end_all(&self) {
        self.send_all(Command::End);
    }

    fn send_all(&self, command: Command) {
        for entry in self.entries().connections.values() {
            entry.control.send(command);
        }
    }

    /// Checks every connection once. Ends those whose write waited for `sweeps` sweeps, and returns their number.
    pub(super) fn sweep(&self, sweeps: u32) -> usize {
        let mut ended = 0;
        for entry in self.entries().connections.values_mut() {
            let write_wait = entry.control.write_wait();
            let waits = write_wait % 2 == 1;
            if !waits || write_wait != entry.write_wait {
                (entry.write_wait, entry.sweeps) = (write_wait, 0);
                continue;
            }
            entry.sweeps += 1;
            if entry.sweeps == sweeps {
                entry.control.send(Command::Reset);
                ended += 1;
            }
        }
        ended
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut entries = self.registry.entries();
        entries.connections.remove(&self.id);
        if let Some(count) = entries.addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                entries.addresses.remove(&self.address);
            }
        }
    }
}

/// The address that connections are counted by: the IPv4 address, or the /64 network, in which an internet subscriber may choose any
/// IPv6 address.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
