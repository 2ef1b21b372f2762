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
use werkruf_store::{Module, ModuleSchema};

use crate::store::{SCHEMA, Workspace};
use access::WorkspaceAccess;

/// The module with its rows.
pub struct WorkspaceModule(WorkspaceAccess);

impl WorkspaceModule {
    pub const fn new(workspace: Arc<dyn Workspace>, clock: Clock) -> Self {
        Self(WorkspaceAccess { workspace, clock })
    }
}

impl Module for WorkspaceModule {
    fn schema(&self) -> &'static ModuleSchema {
        SCHEMA
    }

    fn tools(self: Arc<Self>) -> Vec<Arc<dyn ToolObject>> {
        let access = || self.0.clone();
        vec![
            Arc::new(Typed::new(get_requests::GetRequests(access()))),
            Arc::new(Typed::new(get_todos::GetTodos(access()))),
            Arc::new(Typed::new(get_worktime::GetWorktime(access()))),
            Arc::new(Typed::new(get_cerebro_articles::GetCerebroArticles(access()))),
            Arc::new(Typed::new(get_user_info::GetPerson(access()))),
            Arc::new(Typed::new(create_request::CreateRequest(access()))),
        ]
    }
}
