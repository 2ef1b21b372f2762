//! What a credential says about its requests: its name, and what it pins.

use std::sync::Arc;

use werkruf_contract::Principal;
use werkruf_runtime::{Caller, Pins};

use super::Identity;
use crate::api::ApiError;

impl Identity {
    /// The credential as a caller of the runtime, for this user.
    pub fn caller_for(&self, principal: Arc<Principal>) -> Caller {
        let pins = Pins { safety_mode: self.safety_mode.clone(), collection: self.collection.clone() };
        let acts = self.principal.as_ref().map(|person| person.user_id.clone());
        let retried_by = acts.filter(|person| *person != principal.user_id);
        Caller { principal, key_id: self.key_id, credential: self.credential(), retried_by, pins, admin: self.scopes.admin }
    }

    /// The name of the credential. A key keeps its name when it is rotated. All names of the operator are one credential; a token is as good as
    /// its person.
    pub fn credential(&self) -> String {
        match (self.key_root, &self.principal) {
            (Some(id), _) => format!("key:{id}"),
            (None, Some(person)) if !self.operator => format!("token:{}", person.user_id),
            (None, _) => "operator".to_owned(),
        }
    }

    /// The collection that a request to the knowledge API means: the one that the key pins, else the one that it names. For a pinned key
    /// no other collection exists.
    pub fn collection_for(&self, named: Option<String>) -> Result<Option<String>, ApiError> {
        let named = named.filter(|name| !name.is_empty());
        match &self.collection {
            Some(own) if named.as_ref().is_none_or(|name| name == own) => Ok(Some(own.clone())),
            Some(_) => Err(ApiError::not_found("collection")),
            None => Ok(named),
        }
    }
}
