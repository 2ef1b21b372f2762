//! Who may read and write a collection, by the names of roles, and whether its texts are trusted.
//!
//! Rights are columns of the collection's row and are compared inside each query. No process caches them, so a change counts at once on
//! every server.

use serde_json::json;
use werkruf_contract::{Principal, Trust, Uuid};
use werkruf_store::Act;

/// Stands for every role in a list of readers.
pub const EVERYBODY: &str = "*";

/// Whose rights a read is compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grantee {
    tenant_id: Uuid,
    /// The names of the person's roles; `None` for everything of the tenant.
    roles: Option<Vec<String>>,
}

impl Grantee {
    /// Reads everything of a tenant: work of the server itself, and of an administrator.
    pub const fn everything(tenant_id: Uuid) -> Self {
        Self { tenant_id, roles: None }
    }

    /// A key of a tenant that belongs to no person: reads what everybody may read.
    pub const fn nobody(tenant_id: Uuid) -> Self {
        Self { tenant_id, roles: Some(Vec::new()) }
    }

    /// A person with the roles that the person has now.
    pub fn person(person: &Principal) -> Self {
        Self { tenant_id: person.tenant_id, roles: Some(person.roles.iter().map(|role| role.name.clone()).collect()) }
    }

    pub const fn tenant_id(&self) -> Uuid {
        self.tenant_id
    }

    /// Whether the rights of collections do not matter.
    pub const fn reads_everything(&self) -> bool {
        self.roles.is_none()
    }

    /// The roles as a JSON array; `None` for everything of the tenant.
    pub(crate) fn roles_json(&self) -> Option<String> {
        self.roles.as_ref().map(|roles| role_list(roles))
    }
}

/// The rights of a collection. A key with scope `admin` needs none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionRights {
    /// The roles that may read; [`EVERYBODY`] for the whole tenant.
    pub read: Vec<String>,
    /// The roles that may add and delete documents.
    pub write: Vec<String>,
    /// Whose words its documents are.
    pub trust: Trust,
}

impl Default for CollectionRights {
    fn default() -> Self {
        Self { read: vec![EVERYBODY.to_owned()], write: Vec::new(), trust: Trust::Trusted }
    }
}

impl CollectionRights {
    /// Whether a person may add and delete documents.
    pub fn may_write(&self, grantee: &Grantee) -> bool {
        grantee.roles.as_ref().is_none_or(|roles| roles.iter().any(|role| self.write.contains(role)))
    }

    /// Whether a person may read.
    pub fn may_read(&self, grantee: &Grantee) -> bool {
        grantee.roles.as_ref().is_none_or(|roles| self.read.iter().any(|role| role == EVERYBODY || roles.contains(role)))
    }
}

/// New rights of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRights {
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// Unchanged without it; a new collection is then trusted.
    pub trust: Option<Trust>,
}

impl NewRights {
    /// The rights as they were stored.
    pub(crate) fn with(&self, trust: Trust) -> CollectionRights {
        CollectionRights { read: self.read.clone(), write: self.write.clone(), trust }
    }
}

/// The entry of the audit log for new rights.
pub(crate) fn rights_act(collection: &str, before: Option<&CollectionRights>, after: &CollectionRights) -> Act {
    let value = |rights: &CollectionRights| json!({"read": rights.read, "write": rights.write, "trust": rights.trust.name()});
    Act { before: before.map(value), ..Act::new("collection.rights", collection).after(value(after)) }
}

/// A collection that a grantee may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadableCollection {
    /// The newest change.
    pub change: i64,
    pub trust: Trust,
}

/// A list of roles as it is stored.
pub(crate) fn role_list(roles: &[String]) -> String {
    serde_json::Value::from(roles.to_vec()).to_string()
}
