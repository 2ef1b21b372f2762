//! Tools over the customer's own rows: requests, tasks, working times, articles and users. Only `create_request` writes.
//!
//! `WorkspaceAccess::row_scope` checks the caller's permission once, before any query to the store. Every result has a
//! `message`: the whole answer for a person, in the person's language. The `phrase` modules derive arguments from a
//! sentence, so that a planner without a language model can use the tools.

mod access;
mod create_request;
mod days;
mod get_cerebro_articles;
mod get_requests;
mod get_todos;
mod get_user_info;
mod get_worktime;
mod phrase;
mod phrase_articles;
mod phrase_request;
mod phrase_status;
mod phrase_time;
mod phrase_user;
mod render;
mod token;
mod vocabulary;
mod whole_number;
mod work_list;
mod work_period;

use std::sync::Arc;

use werkruf_contract::{Clock, ToolObject, Typed};
use werkruf_store::Workspace;

use access::WorkspaceAccess;

/// The workspace tools, ready for the registry.
pub fn workspace_tools(workspace: Arc<dyn Workspace>, clock: Clock) -> Vec<Arc<dyn ToolObject>> {
    let access = WorkspaceAccess { workspace, clock };
    vec![
        Arc::new(Typed::new(get_requests::GetRequests(access.clone()))),
        Arc::new(Typed::new(get_todos::GetTodos(access.clone()))),
        Arc::new(Typed::new(get_worktime::GetWorktime(access.clone()))),
        Arc::new(Typed::new(get_cerebro_articles::GetCerebroArticles(access.clone()))),
        Arc::new(Typed::new(get_user_info::GetPerson(access.clone()))),
        Arc::new(Typed::new(create_request::CreateRequest(access))),
    ]
}
