//! One budget of bytes for the requests of all connections: what their bodies, the values parsed from them and their buffered answers
//! may take at the same time. Above it a request gets 503 and tries again, instead of ending the process.
//!
//! One user, or a key without a user, gets at most a quarter of it beside their first request, so that nobody takes all of it.
//!
//! Invariant: a reservation is released when the last byte of the answer was sent or the client left, and the turn of the request ended.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Method, StatusCode};
use hyper::body::{Frame, SizeHint};
use werkruf_contract::Uuid;

use super::ApiState;
use super::error::ApiError;
use super::policy::Authenticated;
use crate::identity::Identity;
use crate::listen::client_address;

/// What a body takes per byte: the bytes themselves, the texts parsed from them, the message to be stored and the model's request.
const COPIES: u64 = 4;
/// What a value of JSON takes beside its text, as an element of a list or a field of an object.
const VALUE_BYTES: u64 = 160;
/// Smaller answers are not counted: an answer of this size takes no more than the buffers of its connection.
const COUNTED_ANSWER: u64 = 64 * 1024;
const RETRY_AFTER_MS: u64 = 1000;
/// All requests of one owner take at most this part of the budget, or one request of any size.
const SHARES: u64 = 4;

/// Whose request takes memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// Counted, but never refused.
    Operator,
    User(Uuid, String),
    Key(Uuid),
    /// Without an identity, such as webhooks: whoever sends from this address.
    Address(Option<IpAddr>),
}

impl Owner {
    pub(crate) fn of(identity: &Identity) -> Self {
        match (&identity.principal, identity.key_id) {
            _ if identity.is_operator() => Self::Operator,
            (Some(user), _) => Self::User(identity.tenant_id, user.user_id.clone()),
            (None, Some(id)) => Self::Key(id),
            (None, None) => Self::User(identity.tenant_id, String::new()),
        }
    }
}

/// The bytes that all requests together may take.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    limit: u64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    /// Owners that hold nothing are not listed.
    by_owner: HashMap<Owner, u64>,
}

impl ByteBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, held: Mutex::default() }
    }

    /// Takes bytes for a request that holds `own` already.
    fn take(&self, owner: &Owner, own: u64, bytes: u64) -> bool {
        let mut held = self.lock();
        let others = held.by_owner.get(owner).map_or(0, |all| all.saturating_sub(own));
        // Without the first condition a request larger than a share would never fit.
        let within_share = others == 0 || others.saturating_add(own).saturating_add(bytes) <= self.limit / SHARES;
        let fits = held.total.checked_add(bytes).is_some_and(|sum| sum <= self.limit);
        let taken = *owner == Owner::Operator || (within_share && fits);
        if taken {
            held.add(owner, bytes);
        }
        taken
    }

    fn give_back(&self, owner: &Owner, bytes: u64) {
        let mut held = self.lock();
        held.total = held.total.saturating_sub(bytes);
        if let Entry::Occupied(mut entry) = held.by_owner.entry(owner.clone()) {
            *entry.get_mut() = entry.get().saturating_sub(bytes);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn add(&mut self, owner: &Owner, bytes: u64) {
        self.total = self.total.saturating_add(bytes);
        if bytes > 0 {
            let own = self.by_owner.entry(owner.clone()).or_default();
            *own = own.saturating_add(bytes);
        }
    }
}

/// What one request holds of the budget.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ByteBudget>,
    owner: Owner,
    held: AtomicU64,
}

impl Reservation {
    pub(crate) const fn new(budget: Arc<ByteBudget>, owner: Owner) -> Self {
        Self { budget, owner, held: AtomicU64::new(0) }
    }

    /// The reservation of a request.
    pub(crate) fn of_request(api: &ApiState, request: &Request) -> Self {
        let owner = request.extensions().get::<Authenticated>().map(|Authenticated(identity)| Owner::of(identity));
        let of_stranger = || Owner::Address(client_address(request.extensions(), request.headers(), &api.proxies));
        Self::new(Arc::clone(&api.bytes), owner.unwrap_or_else(of_stranger))
    }

    /// Reserves the memory of this many bytes of a body. A stranger's body is only kept, until [`Self::trusted`] says that it will be read.
    pub(crate) fn body(&self, bytes: u64) -> Result<(), ApiError> {
        self.grow(bytes.saturating_mul(if self.is_of_stranger() { 1 } else { COPIES }))
    }

    /// Reserves what reading a stranger's body of this many bytes takes beside the body itself.
    pub(crate) fn trusted(&self, bytes: u64) -> Result<(), ApiError> {
        if self.is_of_stranger() { self.grow(bytes.saturating_mul(COPIES - 1)) } else { Ok(()) }
    }

    const fn is_of_stranger(&self) -> bool {
        matches!(self.owner, Owner::Address(_))
    }

    /// Reserves the memory of this many parsed values.
    pub(crate) fn values(&self, count: u64) -> Result<(), ApiError> {
        self.grow(count.saturating_mul(VALUE_BYTES))
    }

    /// Reserves the memory of an answer that may still be refused.
    pub(crate) fn answer(&self, bytes: u64) -> Result<(), ApiError> {
        if bytes > COUNTED_ANSWER { self.grow(bytes) } else { Ok(()) }
    }

    /// Counts the answer to something that was done; false if it is too small to count.
    pub(crate) fn finished_answer(&self, bytes: u64) -> bool {
        let counted = bytes > COUNTED_ANSWER;
        if counted {
            self.count(bytes);
        }
        counted
    }

    /// Gives everything back, because nothing of the request is kept.
    pub(crate) fn release(&self) {
        self.budget.give_back(&self.owner, self.held.swap(0, Ordering::Relaxed));
    }

    fn grow(&self, bytes: u64) -> Result<(), ApiError> {
        if !self.budget.take(&self.owner, self.held.load(Ordering::Relaxed), bytes) {
            return Err(over_budget());
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts bytes that are taken in any case.
    fn count(&self, bytes: u64) {
        self.budget.lock().add(&self.owner, bytes);
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

fn over_budget() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "memory_busy", "Other requests take the server's memory; try again.")
        .retry_after_ms(RETRY_AFTER_MS)
}

/// The layer that gives a request its reservation and holds it until the answer was sent.
pub(crate) async fn hold(State(api): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    let reservation = Arc::new(Reservation::of_request(&api, &request));
    let has_effect = !matches!(*request.method(), Method::GET | Method::HEAD);
    request.extensions_mut().insert(Arc::clone(&reservation));
    let response = next.run(request).await;
    if let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes > COUNTED_ANSWER) {
        if has_effect {
            // What was done cannot be refused any more: a client that tries again would do it twice.
            reservation.count(bytes);
        } else if let Err(error) = reservation.grow(bytes) {
            return error.into_response();
        }
    } else if reservation.held.load(Ordering::Relaxed) == 0 {
        return response;
    }
    response.map(|body| Body::new(HoldingBody { body, _reservation: reservation }))
}

/// The body of an answer, with the reservation of its request.
struct HoldingBody {
    body: Body,
    _reservation: Arc<Reservation>,
}

impl HttpBody for HoldingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use werkruf_contract::Uuid;

    use super::{ByteBudget, Owner, Reservation};

    fn request(budget: &Arc<ByteBudget>, user: &str) -> Reservation {
        Reservation::new(Arc::clone(budget), Owner::User(Uuid::nil(), user.to_owned()))
    }

    #[test]
    fn what_a_request_reserved_is_free_after_its_end() {
        let budget = Arc::new(ByteBudget::new(1000));
        let first = request(&budget, "1");
        first.body(100).unwrap();
        first.values(2).unwrap();
        let second = request(&budget, "2");
        let error = second.body(100).unwrap_err();
        assert_eq!((error.status().as_u16(), error.code()), (503, "memory_busy"));
        second.body(70).unwrap();
        first.release();
        second.body(180).unwrap();
        assert!(second.body(1).is_err());
        drop((first, second));
        let held = budget.lock();
        assert_eq!((held.total, held.by_owner.len()), (0, 0));
    }

    #[test]
    fn one_owner_gets_a_quarter_or_one_request() {
        let budget = Arc::new(ByteBudget::new(4000));
        let large = request(&budget, "1");
        large.body(500).unwrap();
        assert!(request(&budget, "1").body(1).is_err(), "one request has more than the share already");
        let [one, two] = [request(&budget, "2"), request(&budget, "2")];
        one.body(125).unwrap();
        two.body(125).unwrap();
        assert!(two.body(1).is_err());
        let key = Reservation::new(Arc::clone(&budget), Owner::Key(Uuid::nil()));
        key.body(1).unwrap();
        drop(large);
        request(&budget, "1").body(1).unwrap();
    }

    #[test]
    fn strangers_hold_what_they_sent_and_each_address_has_its_own_share() {
        let budget = Arc::new(ByteBudget::new(4000));
        let stranger = |last| Reservation::new(Arc::clone(&budget), Owner::Address(Some([192, 0, 2, last].into())));
        let [one, two, other] = [stranger(1), stranger(1), stranger(2)];
        one.body(600).unwrap();
        two.body(400).unwrap();
        assert!(two.body(1).is_err(), "the share of the address");
        assert!(one.trusted(600).is_err(), "also for what reading takes");
        other.body(700).unwrap();
        other.trusted(700).unwrap();
        let user = request(&budget, "1");
        user.body(10).unwrap();
        user.trusted(10).unwrap();
        assert_eq!(budget.lock().total, 600 + 400 + 4 * 700 + 4 * 10);
    }

    #[test]
    fn the_operator_is_counted_and_never_refused() {
        let budget = Arc::new(ByteBudget::new(1000));
        let operator = Reservation::new(Arc::clone(&budget), Owner::Operator);
        operator.body(1000).unwrap();
        assert!(request(&budget, "1").body(1).is_err());
        drop(operator);
        request(&budget, "1").body(1).unwrap();
    }
}
