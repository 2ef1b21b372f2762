//! An invocation for tests of tools, as the call pipeline builds it.

use std::sync::Arc;
use std::time::Duration;

use werkruf_contract::{Cancel, Clock, Deadline, Invocation, NoModels, NoProgress, NoResults, Principal, Role, Scope, State, ToolContext};

/// A call by user 3 of branch 1, first attempt, with ten seconds left.
pub fn invocation() -> Invocation {
    let clock = Clock::system(0);
    let tenant_id = clock.new_id();
    let mut context = ToolContext::new(tenant_id, "trace-1".to_owned(), clock.new_id(), clock.now(), "run_1".to_owned());
    context.locale = Some("de-DE".to_owned());
    let principal = Principal {
        tenant_id,
        tenant_slug: "demo".to_owned(),
        user_id: "3".to_owned(),
        name: "Clara".to_owned(),
        roles: vec![Role { id: 7, name: "employee".to_owned() }],
        branch_id: Some(1),
        locale: "de-DE".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        permissions: Vec::new(),
    };
    Invocation {
        context: Arc::new(context),
        principal: Arc::new(principal),
        grant: Scope::Own,
        state: Arc::new(State::new()),
        deadline: Deadline::after(Duration::from_secs(10)),
        cancel: Cancel::default(),
        job_id: clock.new_id(),
        turn_id: clock.new_id(),
        conversation_id: Some(clock.new_id()),
        attempt: 1,
        idempotency_key: "key-1".to_owned(),
        untrusted: None,
        models: Arc::new(NoModels),
        results: Arc::new(NoResults),
        progress: Arc::new(NoProgress),
    }
}
