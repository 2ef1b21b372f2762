//! The methods of the protocol. Each one finds the HTTP request behind its message first: identity never comes from the message.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ErrorData, GetTaskParams, GetTaskResult, Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, RequestId, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler};
use werkruf_contract::Cancel;

use super::request::McpRequest;
use super::{call, resources, tasks, tool_list};

const INSTRUCTIONS: &str = "The tools of this Werkruf server. Every call is made with the rights of the person whose key is used, and is recorded. \
    A result with status awaiting_approval is not final: a person has to decide first. Send the same call again only with the same \
    _meta[\"werkruf/idempotency-key\"]: then it joins the first one.";

/// One session, or one request of a client without sessions.
#[derive(Default)]
pub(super) struct Service {
    /// The calls that a client may cancel by the id of its request.
    calls: Mutex<HashMap<RequestId, Cancel>>,
}

impl Service {
    fn register(&self, id: &RequestId) -> Cancel {
        let cancel = Cancel::default();
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), cancel.clone());
        cancel
    }

    fn take(&self, id: &RequestId) -> Option<Cancel> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

impl ServerHandler for Service {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let server = Implementation::new("werkruf", env!("CARGO_PKG_VERSION")).with_title("Werkruf");
        ServerConfig::new(capabilities).with_server_info(server).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        tool_list::list(&McpRequest::of(context)?).await
    }

    async fn call_tool(&self, params: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let request = McpRequest::of(context)?;
        let (id, canceled) = (request.id.clone(), self.register(&request.id));
        // Boxed: this future is large.
        let response = Box::pin(call::call(request, params, canceled)).await;
        self.take(&id);
        response
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, _context: NotificationContext<RoleServer>) {
        if let Some(cancel) = params.request_id.and_then(|id| self.take(&id)) {
            cancel.raise();
        }
    }

    // The SDK answers these two with empty results, although the capability is not declared.
    async fn list_prompts(
        &self,
        _params: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(&self, _params: CompleteRequestParams, _context: RequestContext<RoleServer>) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        resources::list(&McpRequest::of(context)?, params.and_then(|params| params.cursor)).await
    }

    async fn list_resource_templates(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates(&McpRequest::of(context)?))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&McpRequest::of(context)?, &params.uri).await.map(Into::into)
    }

    async fn get_task(&self, params: GetTaskParams, context: RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&McpRequest::of(context)?, &params.task_id).await
    }

    async fn cancel_task(&self, params: CancelTaskParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        tasks::cancel(&McpRequest::of(context)?, &params.task_id).await
    }
}
