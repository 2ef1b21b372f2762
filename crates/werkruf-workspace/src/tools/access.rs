//! What the workspace tools share: the store, the clock, and the check of whose rows a caller may read.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{RowScope, Target, Workspace};
use crate::texts::TEXTS;
use jiff::civil::Date;
use werkruf_contract::{Clock, Effect, ErrorCode, Failure, Invocation, Need, Scope, ToolSpec};
use werkruf_store::StoreError;

use super::whole_number::WholeNumber;

#[derive(Clone)]
pub(super) struct WorkspaceAccess {
    pub(super) workspace: Arc<dyn Workspace>,
    pub(super) clock: Clock,
}

/// The user or branch that the arguments name; neither means the caller.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerFilter {
    pub(super) user_id: Option<WholeNumber>,
    pub(super) branch_id: Option<WholeNumber>,
}

impl WorkspaceAccess {
    /// The current date in the caller's time zone.
    pub(super) fn today(&self, invocation: &Invocation) -> Date {
        self.clock.now().to_zoned(invocation.time_zone()).date()
    }

    /// The rows that the caller may query, or `permission_denied`. The message of the refusal is the same for a user outside
    /// the caller's scope and for a user that does not exist, so a refusal does not reveal who exists.
    pub(super) async fn row_scope(&self, invocation: &Invocation, grant: Scope, owner: OwnerFilter) -> Result<RowScope, Failure> {
        let principal = &invocation.principal;
        let Ok(caller) = principal.user_id.parse::<i64>() else { return Err(denied(invocation)) };
        let row_scope = |target| RowScope { caller, caller_branch: principal.branch_id, grant, target };
        let target = match (owner.user_id, owner.branch_id) {
            (None, None) => Target::Own,
            (Some(WholeNumber(user)), None) if user == caller => Target::Own,
            (Some(WholeNumber(user)), None) => {
                self.check_user(invocation, &row_scope(Target::User(user))).await?;
                Target::User(user)
            }
            (None, Some(WholeNumber(branch))) => {
                check_branch(invocation, grant, branch)?;
                Target::Branch(branch)
            }
            (Some(_), Some(_)) if grant == Scope::Own => return Err(denied(invocation)),
            (Some(_), Some(_)) => return Err(Failure::validation(ErrorCode::InvalidArguments, "Give userId or branchId, not both.")),
        };
        Ok(row_scope(target))
    }

    /// Another user's rows need a scope that covers that user.
    async fn check_user(&self, invocation: &Invocation, row_scope: &RowScope) -> Result<(), Failure> {
        let covered = match row_scope.grant {
            Scope::Own => false,
            Scope::Branch => {
                self.workspace.person(invocation.principal.tenant_id, row_scope.clone()).await.map_err(|error| failed(&error))?.is_some()
            }
            Scope::All => true,
        };
        if covered { Ok(()) } else { Err(denied(invocation)) }
    }
}

fn check_branch(invocation: &Invocation, grant: Scope, branch: i64) -> Result<(), Failure> {
    let covered = match grant {
        Scope::Own => false,
        Scope::Branch => invocation.principal.branch_id == Some(branch),
        Scope::All => true,
    };
    if covered { Ok(()) } else { Err(denied(invocation)) }
}

/// The one refusal. It reveals nothing about the refused rows.
pub(super) fn denied(invocation: &Invocation) -> Failure {
    Failure::fatal(ErrorCode::PermissionDenied, invocation.texts().text("call-permission_denied", &[])).nothing_happened()
}

/// The failure of a query.
pub(super) fn failed(error: &StoreError) -> Failure {
    error.read_failure("The data cannot be read right now.")
}

/// The spec that the read tools share.
pub(super) fn spec(name: &'static str, description: &'static str, need: Option<&str>) -> ToolSpec {
    let mut spec = ToolSpec::new(name, description, Effect::Read);
    spec.permission = need.and_then(Need::parse);
    spec.timeout = Some(Duration::from_secs(5));
    spec.attempts = 2;
    spec.texts = Some(&TEXTS);
    spec
}
