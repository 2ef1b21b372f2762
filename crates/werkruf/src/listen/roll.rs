//! Who is connected: a place per connection, counted in all and per remote address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bounds::Bounds;
use super::line::{Line, Order};
use super::proxies::Proxies;

pub(super) struct Roll {
    rows: Mutex<Rows>,
    room: Arc<Semaphore>,
    connections: u32,
    per_address: u32,
    proxies: Proxies,
}

#[derive(Default)]
struct Rows {
    next: u64,
    places: HashMap<u64, Row>,
    addresses: HashMap<IpAddr, u32>,
}

/// One connection as the watchdog sees it.
struct Row {
    line: Arc<Line>,
    /// The flow at the last look, and for how many looks it was the same wait.
    flow: u32,
    looks: u32,
}

/// A place on the roll; given back when dropped.
pub(super) struct Place {
    roll: Arc<Roll>,
    id: u64,
    address: IpAddr,
    pub(super) line: Arc<Line>,
    _room: OwnedSemaphorePermit,
}

impl Roll {
    pub(super) fn new(bounds: &Bounds, proxies: Proxies) -> Self {
        Self {
            rows: Mutex::default(),
            room: Arc::new(Semaphore::new(bounds.connections as usize)),
            connections: bounds.connections,
            per_address: bounds.per_address,
            proxies,
        }
    }

    /// Room for one more connection, as soon as there is some.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// When nobody is connected any more.
    pub(super) async fn empty(&self) {
        let _ = self.room.acquire_many(self.connections).await;
    }

    /// A place for this client; `None` when its address has too many.
    pub(super) fn enter(self: &Arc<Self>, client: SocketAddr, room: OwnedSemaphorePermit) -> Option<Place> {
        let address = subscriber(client.ip());
        let mut rows = self.rows();
        let of_address = rows.addresses.entry(address).or_default();
        if *of_address >= self.per_address && !self.proxies.has(client.ip()) {
            return None;
        }
        *of_address += 1;
        let id = rows.next;
        rows.next += 1;
        let line = Arc::new(Line::default());
        rows.places.insert(id, Row { line: Arc::clone(&line), flow: 0, looks: 0 });
        Some(Place { roll: Arc::clone(self), id, address, line, _room: room })
    }

    /// Running requests finish, nothing new is taken.
    pub(super) fn close_all(&self) {
        self.tell_all(Order::Close);
    }

    /// Every connection closes now.
    pub(super) fn end_all(&self) {
        self.tell_all(Order::End);
    }

    fn tell_all(&self, order: Order) {
        for row in self.rows().places.values() {
            row.line.tell(order);
        }
    }

    /// Looks at every connection once; those whose write waited through `looks` looks are ended. Says how many.
    pub(super) fn look(&self, looks: u32) -> usize {
        let mut ended = 0;
        for row in self.rows().places.values_mut() {
            let flow = row.line.flow();
            let waits = flow % 2 == 1;
            if !waits || flow != row.flow {
                (row.flow, row.looks) = (flow, 0);
                continue;
            }
            row.looks += 1;
            if row.looks == looks {
                row.line.tell(Order::Reset);
                ended += 1;
            }
        }
        ended
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut rows = self.roll.rows();
        rows.places.remove(&self.id);
        if let Some(count) = rows.addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                rows.addresses.remove(&self.address);
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
#[path = "roll_tests.rs"]
mod tests;
