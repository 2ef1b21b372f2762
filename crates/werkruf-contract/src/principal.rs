//! The authenticated user and the user's permissions. Both come from the authenticated channel only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::call::string_enum;
use crate::texts::{Language, is_locale};

string_enum! {
    /// What a role may do with an entity.
    Access { Read = "read", Write = "write", Both = "both" }
}

impl Access {
    const fn covers(self, wanted: Self) -> bool {
        matches!((self, wanted), (Self::Both, _) | (Self::Read, Self::Read) | (Self::Write, Self::Write))
    }
}

string_enum! {
    /// Whose rows a permission covers.
    Scope { Own = "own", Branch = "branch", All = "all" }
}

impl Scope {
    const fn width(self) -> u8 {
        match self {
            Self::Own => 0,
            Self::Branch => 1,
            Self::All => 2,
        }
    }
}

/// One row of a role's permission table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permission {
    pub entity: String,
    pub entity_type: String,
    pub access: Access,
    pub scope: Scope,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.entity, self.entity_type, self.access)
    }
}

/// A permission that a user has by one of their roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPermission {
    /// The name of the role.
    pub role: String,
    #[serde(flatten)]
    pub permission: Permission,
}

/// The permission that a tool requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    pub entity: String,
    pub entity_type: String,
    pub access: Access,
}

impl Need {
    /// Parses the `entity:entity_type:access` of the config file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (entity, entity_type, access) = (parts.next()?, parts.next()?, Access::parse(parts.next()?)?);
        if entity.is_empty() || entity_type.is_empty() || parts.next().is_some() {
            return None;
        }
        Some(Self { entity: entity.to_owned(), entity_type: entity_type.to_owned(), access })
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.entity, self.entity_type, self.access)
    }
}

/// A role of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Role {
    pub id: i64,
    pub name: String,
}

/// The authenticated user on whose behalf a turn or call runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    pub tenant_id: Uuid,
    pub tenant_slug: String,
    pub user_id: String,
    pub name: String,
    pub roles: Vec<Role>,
    pub branch_id: Option<i64>,
    pub locale: String,
    pub time_zone: String,
    pub permissions: Vec<HeldPermission>,
}

/// A tenant, by both of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant<'a> {
    pub id: Uuid,
    pub slug: &'a str,
}

impl Principal {
    /// The tenant that the person belongs to.
    pub fn tenant(&self) -> Tenant<'_> {
        Tenant { id: self.tenant_id, slug: &self.tenant_slug }
    }

    /// The person's locale. A row may hold anything; only a language tag may reach a prompt.
    pub fn language_tag(&self) -> &str {
        if is_locale(&self.locale) { &self.locale } else { Language::of("").locale() }
    }

    /// The locale in which to answer a text; `None` if the text does not show its language.
    pub fn locale_of_text(&self, text: &str) -> Option<String> {
        let (own, written) = (self.language_tag(), Language::guess(text)?);
        Some(if written == Language::of(own) { own } else { written.locale() }.to_owned())
    }

    /// The widest scope that any role grants for this need; `None` means permission denied.
    pub fn grant(&self, need: &Need) -> Option<Scope> {
        self.decisive(need).map(|held| held.permission.scope)
    }

    /// The permission that decides about this need: the one with the widest scope, of the first role that has it.
    pub fn decisive(&self, need: &Need) -> Option<&HeldPermission> {
        let covers = |p: &Permission| p.entity == need.entity && p.entity_type == need.entity_type && p.access.covers(need.access);
        // Of equal ones `max_by_key` takes the last.
        self.permissions.iter().rev().filter(|held| covers(&held.permission)).max_by_key(|held| held.permission.scope.width())
    }

    /// Whether a grant of this scope covers the rows of another user of the tenant, by that user's branch.
    pub fn reaches(&self, grant: Scope, user_id: i64, branch_id: Option<i64>) -> bool {
        match grant {
            _ if self.user_id == user_id.to_string() => true,
            Scope::Own => false,
            Scope::Branch => self.branch_id.is_some() && self.branch_id == branch_id,
            Scope::All => true,
        }
    }

    /// Whether one of the roles has this name.
    pub fn has_role(&self, name: &str) -> bool {
        self.roles.iter().any(|role| role.name == name)
    }
}
