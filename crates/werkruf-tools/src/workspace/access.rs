//! What the tools here have in common: the rows, the clock, and who may see whose.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use werkruf_contract::{Clock, Effect, Failure, Invocation, Need, Scope, Texts, ToolErrorType, ToolSpec};
use werkruf_store::{RowScope, StoreError, Target, Workspace};

use super::whole_number::WholeNumber;

/// The workspace as a tool sees it.
#[derive(Clone)]
pub(super) struct WorkspaceAccess {
    pub(super) workspace: Arc<dyn Workspace>,
    pub(super) clock: Clock,
}

/// Whose rows the arguments name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OwnerFilter {
    pub(super) user_id: Option<WholeNumber>,
    pub(super) branch_id: Option<WholeNumber>,
}

impl WorkspaceAccess {
    /// Today where the person is.
    pub(super) fn today(&self, invocation: &Invocation) -> Date {
        self.clock.now().to_zoned(zone(invocation)).date()
    }

    /// Whose rows may be asked for, or the one refusal there is: its words are the same for a person outside the
    /// scope and for one that does not exist.
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
            (Some(_), Some(_)) => return Err(Failure::validation("invalid_arguments", "Give userId or branchId, not both.")),
        };
        Ok(row_scope(target))
    }

    /// Another person's rows need a scope that covers that person.
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

/// The refusal. It says nothing about what there would have been to see.
pub(super) fn denied(invocation: &Invocation) -> Failure {
    Failure::fatal("permission_denied", texts(invocation).text("call-permission_denied", &[])).nothing_happened()
}

/// The person's words.
pub(super) fn texts(invocation: &Invocation) -> Texts {
    Texts::of(invocation.context.locale.as_deref().unwrap_or(&invocation.principal.locale))
}

/// The person's time zone; UTC where it is not known to the clock's library.
pub(super) fn zone(invocation: &Invocation) -> TimeZone {
    TimeZone::get(&invocation.principal.time_zone).unwrap_or(TimeZone::UTC)
}

/// A store that fails changed nothing: this is for tools that only read.
pub(super) fn failed(error: &StoreError) -> Failure {
    let message = "The data cannot be read right now.";
    let failure = match error {
        StoreError::Unavailable(_) | StoreError::Full(_) => Failure::new(ToolErrorType::Retryable, "database_unavailable", message),
        _ => Failure::fatal("internal", message),
    };
    failure.nothing_happened().because(error.to_string())
}

/// The spec they share: a read that takes no longer than a look.
pub(super) fn spec(name: &'static str, description: &'static str, need: Option<&str>) -> ToolSpec {
    let mut spec = ToolSpec::new(name, description, Effect::Read);
    spec.permission = need.and_then(Need::parse);
    spec.timeout = Duration::from_secs(5);
    spec.attempts = 2;
    spec
}
