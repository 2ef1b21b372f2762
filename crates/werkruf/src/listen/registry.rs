//! Who is connected: a place per connection, counted in all and per remote address.

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
    next: u64,
    connections: HashMap<u64, Entry>,
    addresses: HashMap<IpAddr, u32>,
}

/// One connection as the watchdog sees it.
struct Entry {
    control: Arc<ConnectionControl>,
    /// The flow at the last look, and for how many looks it was the same wait.
    flow: u32,
    sweeps: u32,
}

/// A place on the roll; given back when dropped.
pub(super) struct Registration {
    registry: Arc<ConnectionRegistry>,
    id: u64,
    address: IpAddr,
    pub(super) control: Arc<ConnectionControl>,
    _room: OwnedSemaphorePermit,
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

    /// Room for one more connection, as soon as there is some.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.capacity).acquire_owned().await.ok()
    }

    /// When nobody is connected any more.
    pub(super) async fn wait_until_empty(&self) {
        let _ = self.capacity.acquire_many(self.connections).await;
    }

    /// A place for this client; `None` when its address has too many.
    pub(super) fn register(self: &Arc<Self>, client: SocketAddr, permit: OwnedSemaphorePermit) -> Option<Registration> {
        let address = subscriber(client.ip());
        let mut entries = self.entries();
        let of_address = entries.addresses.entry(address).or_default();
        if *of_address >= self.per_address && !self.proxies.contains(client.ip()) {
            return None;
        }
        *of_address += 1;
        let id = entries.next;
        entries.next += 1;
        let control = Arc::new(ConnectionControl::default());
        entries.connections.insert(id, Entry { control: Arc::clone(&control), flow: 0, sweeps: 0 });
        Some(Registration { registry: Arc::clone(self), id, address, control, _room: permit })
    }

    /// Running requests finish, nothing new is taken.
    pub(super) fn close_all(&self) {
        self.send_all(Command::Close);
    }

    /// Every connection closes now.
    pub(super) fn end_all(&self) {
        self.send_all(Command::End);
    }

    fn send_all(&self, command: Command) {
        for entry in self.entries().connections.values() {
            entry.control.send(command);
        }
    }

    /// Looks at every connection once; those whose write waited through `looks` looks are ended. Says how many.
    pub(super) fn sweep(&self, sweeps: u32) -> usize {
        let mut ended = 0;
        for entry in self.entries().connections.values_mut() {
            let flow = entry.control.flow();
            let waits = flow % 2 == 1;
            if !waits || flow != entry.flow {
                (entry.flow, entry.sweeps) = (flow, 0);
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

/// What counts as one remote address: one IPv4 address, or the /64 in which a subscriber may pick IPv6 addresses at will.
fn subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
