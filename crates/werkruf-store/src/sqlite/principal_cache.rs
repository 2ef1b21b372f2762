//! A cache of principals, API keys and tenants: every request needs them, and they change rarely.
//!
//! Only this process writes the file, so clearing the cache on any write about people keeps it correct. A value that was read
//! before such a write is not cached after it, because the generation has changed. A principal with roles from a token
//! is cached no longer than the token is valid.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use werkruf_contract::{Principal, Uuid};

use crate::{KeyRow, TenantRow};

/// The most entries of a kind. A full map is cleared, which only costs look-ups.
const CAPACITY: usize = 10_000;

#[derive(Default)]
pub(super) struct PrincipalCache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    generation: u64,
    principals: HashMap<Uuid, HashMap<String, Person>>,
    people: usize,
    keys: HashMap<String, KeyRow>,
    /// By slug or id, as the caller named the tenant.
    tenants: HashMap<String, TenantRow>,
}

struct Person {
    principal: Arc<Principal>,
    /// `None`: until the next write about people.
    until: Option<Timestamp>,
}

/// The generation of the cache when a read began.
#[derive(Clone, Copy)]
pub(super) struct Generation(u64);

impl PrincipalCache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        let generation = inner.generation + 1;
        *inner = Inner { generation, ..Inner::default() };
    }

    pub(super) fn principal(&self, tenant_id: Uuid, user_id: &str, now: Timestamp) -> Result<Arc<Principal>, Generation> {
        let inner = self.lock();
        let cached = inner.principals.get(&tenant_id).and_then(|people| people.get(user_id));
        let valid = cached.filter(|person| person.until.is_none_or(|until| now < until));
        valid.map(|person| Arc::clone(&person.principal)).ok_or(Generation(inner.generation))
    }

    pub(super) fn keep_principal(&self, since: Generation, principal: &Arc<Principal>, until: Option<Timestamp>) {
        let mut inner = self.lock();
        if inner.generation != since.0 {
            return;
        }
        if inner.people >= CAPACITY {
            inner.principals.clear();
            inner.people = 0;
        }
        let people = inner.principals.entry(principal.tenant_id).or_default();
        let person = Person { principal: Arc::clone(principal), until };
        if people.insert(principal.user_id.clone(), person).is_none() {
            inner.people += 1;
        }
    }

    pub(super) fn key(&self, digest: &str) -> Result<KeyRow, Generation> {
        let inner = self.lock();
        inner.keys.get(digest).cloned().ok_or(Generation(inner.generation))
    }

    pub(super) fn keep_key(&self, since: Generation, digest: String, key: KeyRow) {
        let mut inner = self.lock();
        if inner.generation != since.0 {
            return;
        }
        if inner.keys.len() >= CAPACITY {
            inner.keys.clear();
        }
        inner.keys.insert(digest, key);
    }

    pub(super) fn tenant(&self, name: &str) -> Result<TenantRow, Generation> {
        let inner = self.lock();
        inner.tenants.get(name).cloned().ok_or(Generation(inner.generation))
    }

    pub(super) fn keep_tenant(&self, since: Generation, name: String, tenant: TenantRow) {
        let mut inner = self.lock();
        if inner.generation != since.0 {
            return;
        }
        if inner.tenants.len() >= CAPACITY {
            inner.tenants.clear();
        }
        inner.tenants.insert(name, tenant);
    }
}
