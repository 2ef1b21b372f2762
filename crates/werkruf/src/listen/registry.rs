//! The open connections, counted in total and per remote address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::bounds::{Bounds, SPARE_CONNECTIONS, SPARE_PER_ADDRESS};
use super::control::{Command, ConnectionControl};
use super::proxies::Proxies;
use crate::subscriber::subscriber;

/// How often a request that waits for a place looks for a connection that became idle.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(super) struct ConnectionRegistry {
    entries: Mutex<Entries>,
    capacity: Arc<Semaphore>,
    spare: Arc<Semaphore>,
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
    address: IpAddr,
    spare: Option<Arc<SparePlace>>,
    /// The write wait at the last sweep, and for how many sweeps it was the same.
    write_wait: u32,
    sweeps: u32,
    /// The same for the streams that waited at the last sweep.
    streams: Vec<StreamWait>,
}

/// A stream that waited for the client at the last sweep.
struct StreamWait {
    stream: Arc<AtomicU32>,
    wait: u32,
    sweeps: u32,
}

impl Entry {
    /// Checks the connection once; true if a write, or the response of a stream, has waited for this many sweeps.
    fn sweep(&mut self, sweeps: u32) -> bool {
        let write_wait = self.control.write_wait();
        if write_wait % 2 == 1 && write_wait == self.write_wait {
            self.sweeps += 1;
        } else {
            (self.write_wait, self.sweeps) = (write_wait, 0);
        }
        let seen = std::mem::take(&mut self.streams);
        self.control.waiting_streams(|stream, wait| {
            let before = seen.iter().find(|before| before.wait == wait && Arc::ptr_eq(&before.stream, stream));
            let sweeps = before.map_or(0, |before| before.sweeps + 1);
            self.streams.push(StreamWait { stream: Arc::clone(stream), wait, sweeps });
        });
        self.sweeps == sweeps || self.streams.iter().any(|stream| stream.sweeps == sweeps)
    }
}

/// The registration of one connection, removed when dropped.
pub(super) struct Registration {
    registry: Arc<ConnectionRegistry>,
    id: u64,
    address: IpAddr,
    /// The address at the other end.
    pub(super) peer: IpAddr,
    pub(super) control: Arc<ConnectionControl>,
    place: Place,
}

/// The place of a connection: one of those that the limit allows, or a spare one beyond them.
pub(super) enum Place {
    Kept { _permit: OwnedSemaphorePermit },
    Spare(Arc<SparePlace>),
}

/// A place beyond the limit, until its connection gets a usual one.
pub(super) struct SparePlace {
    registry: Arc<ConnectionRegistry>,
    permit: Mutex<SparePermit>,
}

struct SparePermit {
    _permit: OwnedSemaphorePermit,
    is_kept: bool,
}

impl SparePlace {
    /// Whether the connection has a usual place now.
    pub(super) fn is_kept(&self) -> bool {
        self.permit().is_kept
    }

    /// Waits for a usual place for this long, and takes that of an idle connection. False if all connections are busy.
    pub(super) async fn keep(&self, wait: Duration) -> bool {
        if self.is_kept() {
            return true;
        }
        let capacity = &self.registry.capacity;
        // One attempt to the end: it keeps its place among those that wait.
        let mut acquiring = std::pin::pin!(Arc::clone(capacity).acquire_owned());
        let end = Instant::now() + wait;
        loop {
            if capacity.available_permits() == 0 {
                self.registry.evict_idle();
            }
            tokio::select! {
                biased;
                permit = &mut acquiring => {
                    let Ok(permit) = permit else { return false };
                    *self.permit() = SparePermit { _permit: permit, is_kept: true };
                    return true;
                }
                () = sleep_until(end) => return false,
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    fn permit(&self) -> MutexGuard<'_, SparePermit> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionRegistry {
    pub(super) fn new(bounds: &Bounds, proxies: Proxies) -> Self {
        Self {
            entries: Mutex::default(),
            capacity: Arc::new(Semaphore::new(bounds.connections as usize)),
            spare: Arc::new(Semaphore::new(SPARE_CONNECTIONS as usize)),
            connections: bounds.connections,
            per_address: bounds.per_address,
            proxies,
        }
    }

    /// Waits for a place for a connection from this address. Where only spare places are left, silent connections give way: those
    /// above the share of the address, and one of any address while no place is free.
    pub(super) async fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        if self.capacity.available_permits() == 0 {
            if !self.proxies.contains(address) {
                self.end_silent(Some(subscriber(address)), SPARE_PER_ADDRESS);
            }
            if self.spare.available_permits() == 0 {
                self.end_silent(None, 1);
            }
        }
        tokio::select! {
            biased;
            permit = Arc::clone(&self.capacity).acquire_owned() => permit.ok().map(|permit| Place::Kept { _permit: permit }),
            permit = Arc::clone(&self.spare).acquire_owned() => {
                let permit = Mutex::new(SparePermit { _permit: permit.ok()?, is_kept: false });
                Some(Place::Spare(Arc::new(SparePlace { registry: Arc::clone(self), permit })))
            }
        }
    }

    /// Ends the spare connection that has waited longest for its head, if so many of them wait, of this address or of all.
    fn end_silent(&self, address: Option<IpAddr>, at_least: usize) {
        let entries = self.entries();
        let is_silent = |entry: &Entry| {
            entry.spare.is_some()
                && !entry.control.had_head()
                && entry.control.command() < Command::End
                && address.is_none_or(|address| entry.address == address)
        };
        let silent = entries.connections.iter().filter(|(_, entry)| is_silent(entry));
        if silent.clone().count() >= at_least
            && let Some((_, oldest)) = silent.min_by_key(|(id, _)| **id)
        {
            oldest.control.send(Command::End);
        }
    }

    /// Closes the connection that has been idle for longest. The end of a spare one would leave no place.
    fn evict_idle(&self) {
        let entries = self.entries();
        let has_place = |entry: &&Entry| entry.spare.as_ref().is_none_or(|spare| spare.is_kept());
        let serving = entries.connections.values().filter(has_place).filter(|entry| entry.control.command() == Command::Serve);
        let idle = serving.filter_map(|entry| Some((entry.control.idle_since()?, entry)));
        if let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) {
            oldest.control.send(Command::Close);
        }
    }

    /// Waits until no connection is open.
    pub(super) async fn wait_until_empty(&self) {
        let _ = self.capacity.acquire_many(self.connections).await;
        let _ = self.spare.acquire_many(SPARE_CONNECTIONS).await;
    }

    /// Registers a connection; `None` if its address has too many.
    pub(super) fn register(self: &Arc<Self>, client: SocketAddr, place: Place) -> Option<Registration> {
        let address = subscriber(client.ip());
        let mut entries = self.entries();
        let count = entries.addresses.entry(address).or_default();
        if *count >= self.per_address && !self.proxies.contains(client.ip()) {
            return None;
        }
        *count += 1;
        let id = entries.next_id;
        entries.next_id += 1;
        let control = Arc::new(ConnectionControl::default());
        let spare = place.spare();
        let entry = Entry { control: Arc::clone(&control), address, spare, write_wait: 0, sweeps: 0, streams: Vec::new() };
        entries.connections.insert(id, entry);
        Some(Registration { registry: Arc::clone(self), id, address, peer: client.ip(), control, place })
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
            if entry.sweep(sweeps) {
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

impl Registration {
    /// The place of a spare connection.
    pub(super) fn spare(&self) -> Option<Arc<SparePlace>> {
        self.place.spare()
    }
}

impl Place {
    fn spare(&self) -> Option<Arc<SparePlace>> {
        match self {
            Self::Kept { .. } => None,
            Self::Spare(place) => Some(Arc::clone(place)),
        }
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

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
