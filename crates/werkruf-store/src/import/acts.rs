//! What the audit log says about an import: one entry for the file, and one for each role and user that the import changed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ImportBatch;
use crate::{Act, NewUser, RoleWithPermissions, StoreError};

/// The acts of an import. `roles` and `users` are the rows with the ids of the batch as they were before.
pub(crate) fn acts(batch: &ImportBatch, roles: &[RoleWithPermissions], users: &[NewUser]) -> Result<Vec<Act>, StoreError> {
    let mut acts = vec![Act::new("people.import", batch.tenant.clone()).after(json!({"written": batch.counts()}))];
    let before: BTreeMap<i64, &RoleWithPermissions> = roles.iter().map(|role| (role.id, role)).collect();
    // The last row of an id counts, as in the tables.
    for (id, role) in batch.roles.iter().map(|role| (role.id, role)).collect::<BTreeMap<_, _>>() {
        let old = before.get(&id).copied();
        if old != Some(role) {
            acts.push(Act { before: old.map(value).transpose()?, ..Act::new("role.put", id.to_string()).after(value(role)?) });
        }
    }
    let before: BTreeMap<i64, NewUser> = users.iter().map(|user| (user.id, in_order(user.clone()))).collect();
    for (id, mut user) in batch.users.iter().map(|user| (user.id, in_order(user.clone()))).collect::<BTreeMap<_, _>>() {
        let old = before.get(&id);
        user.active = user.active.or(old.map_or(Some(true), |old| old.active));
        if old != Some(&user) {
            let act = Act::new("person.put", id.to_string()).about(id.to_string()).after(value(&user)?);
            acts.push(Act { before: old.map(value).transpose()?, ..act });
        }
    }
    Ok(acts)
}

/// The order and repetition of a user's roles mean nothing.
pub(crate) fn in_order(mut user: NewUser) -> NewUser {
    user.role_ids.sort_unstable();
    user.role_ids.dedup();
    user
}

fn value(row: &impl serde::Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(row).map_err(|error| StoreError::Broken(error.to_string()))
}
