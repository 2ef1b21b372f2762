//! What is asked for with every request and changes rarely: principals and keys, kept in memory.
//!
//! Only this process writes the file, so dropping everything on any write about people keeps it true. What
//! was read before such a write began is not kept after it: the generation has moved on. A person whose rights come
//! from a token is kept no longer than the token lives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use werkruf_contract::{Principal, Uuid};

use crate::{KeyRow, TenantRow};

/// Entries of a kind at most; beyond that it starts over, which costs look-ups and nothing else.
const ROOM: usize = 10_000;

#[derive(Default)]
pub(super) struct Known {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    generation: u64,
    principals: HashMap<Uuid, HashMap<String, Person>>,
    people: usize,
    keys: HashMap<String, KeyRow>,
    /// By the name they were asked for, slug or id.
    tenants: HashMap<String, TenantRow>,
}

struct Person {
    principal: Arc<Principal>,
    /// `None`: until something about people is written.
    until: Option<Timestamp>,
}

/// When a read began.
#[derive(Clone, Copy)]
pub(super) struct Generation(u64);

impl Known {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self) {
        let mut inner = self.lock();
        let generation = inner.generation + 1;
        *inner = Inner { generation, ..Inner::default() };
    }

    pub(super) fn principal(&self, tenant_id: Uuid, user_id: &str, now: Timestamp) -> Result<Arc<Principal>, Generation> {
        let inner = self.lock();
        let kept = inner.principals.get(&tenant_id).and_then(|people| people.get(user_id));
        let true_now = kept.filter(|person| person.until.is_none_or(|until| now < until));
        true_now.map(|person| Arc::clone(&person.principal)).ok_or(Generation(inner.generation))
    }

    pub(super) fn keep_principal(&self, since: Generation, principal: &Arc<Principal>, until: Option<Timestamp>) {
        let mut inner = self.lock();
        if inner.generation != since.0 {
            return;
        }
        if inner.people >= ROOM {
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
        if inner.keys.len() >= ROOM {
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
        if inner.tenants.len() >= ROOM {
            inner.tenants.clear();
        }
        inner.tenants.insert(name, tenant);
    }
}
