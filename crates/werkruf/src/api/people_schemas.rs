//! The OpenAPI schemas of users, roles and branches: as they are returned, made and changed. The store reads the fields itself, to report
//! the path of each error.

use crate::routing::ToSchema;

/// A user.
#[derive(ToSchema)]
#[schema(as = User)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct UserSchema {
    id: i64,
    first_name: String,
    last_name: String,
    email: Option<String>,
    phone: Option<String>,
    whatsapp_user_id: Option<String>,
    /// The `sub` of the user's tokens.
    external_id: Option<String>,
    /// A language tag such as `de-DE`.
    locale: String,
    time_zone: Option<String>,
    branch_id: Option<i64>,
    role_ids: Vec<i64>,
    /// A user who is not active is treated as unknown.
    active: bool,
}

/// A new user.
#[derive(ToSchema)]
#[schema(as = NewUser)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct NewUserSchema {
    /// The next free one if it is left out.
    #[schema(minimum = 1, maximum = 9007199254740992i64)]
    id: Option<i64>,
    first_name: String,
    last_name: String,
    email: Option<String>,
    /// With the country code.
    phone: Option<String>,
    whatsapp_user_id: Option<String>,
    /// The `sub` of the user's tokens.
    external_id: Option<String>,
    /// A language tag such as `de-DE`.
    locale: String,
    time_zone: Option<String>,
    branch_id: Option<i64>,
    role_ids: Option<Vec<i64>>,
    /// True if it is left out.
    #[schema(required = false)]
    active: bool,
}

/// The fields of a user that change.
#[derive(ToSchema)]
#[schema(as = UserChange)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct UserChangeSchema {
    #[schema(required = false)]
    first_name: String,
    #[schema(required = false)]
    last_name: String,
    email: Option<String>,
    /// With the country code.
    phone: Option<String>,
    whatsapp_user_id: Option<String>,
    external_id: Option<String>,
    #[schema(required = false)]
    locale: String,
    time_zone: Option<String>,
    branch_id: Option<i64>,
    role_ids: Option<Vec<i64>>,
    #[schema(required = false)]
    active: bool,
}

/// A permission of a role.
#[derive(ToSchema)]
#[schema(as = Permission)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct PermissionSchema {
    entity: String,
    entity_type: String,
    /// `read`, `write` or `both`.
    access: String,
    /// `own`, `branch` or `all`.
    scope: String,
}

/// A role with its permissions.
#[derive(ToSchema)]
#[schema(as = Role)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct RoleSchema {
    id: i64,
    name: String,
    permissions: Vec<PermissionSchema>,
}

/// A new role.
#[derive(ToSchema)]
#[schema(as = NewRole)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct NewRoleSchema {
    /// The next free one if it is left out.
    #[schema(minimum = 1, maximum = 9007199254740992i64)]
    id: Option<i64>,
    name: String,
    permissions: Option<Vec<PermissionSchema>>,
}

/// The fields of a role that change.
#[derive(ToSchema)]
#[schema(as = RoleChange)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct RoleChangeSchema {
    #[schema(required = false)]
    name: String,
    permissions: Option<Vec<PermissionSchema>>,
}

/// A branch.
#[derive(ToSchema)]
#[schema(as = Branch)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct BranchSchema {
    id: i64,
    name: String,
    /// Such as `Europe/Madrid`.
    time_zone: String,
}

/// A new branch.
#[derive(ToSchema)]
#[schema(as = NewBranch)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct NewBranchSchema {
    /// The next free one if it is left out.
    #[schema(minimum = 1, maximum = 9007199254740992i64)]
    id: Option<i64>,
    name: String,
    time_zone: String,
}

/// The fields of a branch that change.
#[derive(ToSchema)]
#[schema(as = BranchChange)]
#[expect(dead_code, reason = "only for the OpenAPI schema")]
pub(super) struct BranchChangeSchema {
    #[schema(required = false)]
    name: String,
    #[schema(required = false)]
    time_zone: String,
}
