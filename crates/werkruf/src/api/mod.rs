//! The HTTP API: one file per resource.
//!
//! **To add a route:** write the handler with its `#[routing::path]`, and list it in its file's `routes()` with a
//! [`Policy`]. `UPDATE_SNAPSHOTS=1 cargo test -p werkruf --test api_openapi` then writes
//! `docs/openapi.json`, which the server answers with.
//!
//! Invariants: only the routes in `open_routes`, the pages of `connect_pages` and the files of `pages` answer without a credential, and an unknown path needs one too; every authenticated
//! route has a policy; every error is an [`ApiError`].

mod access_log;
mod admin_backup;
mod alerts;
pub(crate) mod answer;
pub(crate) mod approvals;
mod audit;
pub(crate) mod body;
mod budgets;
mod byte_budget;
pub(crate) mod call_view;
mod calls;
pub(crate) mod chat;
mod connect_pages;
mod connections;
mod console;
pub(crate) mod context;
mod conversation_stream;
mod conversations;
mod cors;
mod doctor;
mod envelope;
mod erasure;
pub(crate) mod error;
mod events;
#[cfg(feature = "openapi")]
mod examples;
mod explain;
#[cfg(feature = "flights")]
mod flights;
mod gzip;
mod health;
pub(crate) mod history;
mod invoke;
pub(crate) mod json_values;
mod keys;
mod knowledge;
mod knowledge_files;
pub(crate) mod knowledge_rights;
mod legacy;
pub(crate) mod lookup;
mod metrics;
#[cfg(feature = "openapi")]
mod openapi;
#[cfg(feature = "openapi")]
mod openapi_complete;
pub(crate) mod outage;
mod outbox;
pub(crate) mod page;
pub(crate) mod pages;
mod people;
mod people_may;
mod people_schemas;
pub(crate) mod policy;
pub(crate) mod properties;
mod reload;
pub(crate) mod replay;
mod retention;
mod secrets;
pub(crate) mod sse;
mod status;
mod stream;
mod timeline;
mod tool_pins;
pub(crate) mod tools;
mod turns;
mod usage;
mod view;
mod workspace;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use http::StatusCode;
use tokio::sync::oneshot;
use tower_http::catch_panic::CatchPanicLayer;
use werkruf_contract::BoxFuture;
use werkruf_runtime::LoopProgress;

use byte_budget::ByteBudget;
pub use error::ApiError;
pub use metrics::metrics_router;
#[cfg(feature = "openapi")]
pub use openapi::openapi;
pub use policy::Policy;

use crate::app::App;
use crate::config::ModulesOn;
use crate::listen::Proxies;
use crate::mcp::{self, McpServer};
use crate::openai;
use crate::openai_path;
use crate::routing::{self, ApiRouter};
use crate::whatsapp;

/// The state that all handlers share.
pub(crate) struct ApiState {
    pub(crate) app: Arc<App>,
    /// When the database last answered a probe.
    pub(crate) writer_progress: LoopProgress,
    /// The proxies whose `X-Forwarded-For` is believed.
    pub(crate) proxies: Proxies,
    /// The memory that the requests in progress may take.
    bytes: Arc<ByteBudget>,
    pub(crate) mcp: McpServer,
}

impl ApiState {
    /// Runs work to its end, also when the client disconnects.
    pub(crate) async fn run_detached<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        // One type of task for all requests: tokio's code for each type of task takes kilobytes.
        let work: BoxFuture<'static, ()> = Box::pin(async move {
            // The client may have disconnected.
            let _ = reply.send(work.await);
        });
        self.app.tasks.spawn(work);
        answer.await.map_err(|_| {
            tracing::error!("a background task of a request panicked or was aborted");
            ApiError::internal()
        })
    }
}

/// The routes of the kernel that need a credential. A list of functions, because the compiler would merge calls one after another into a single function of 700 KB.
const KERNEL_ROUTES: &[fn() -> ApiRouter<Arc<ApiState>>] = &[
    chat::routes,
    conversations::routes,
    history::routes,
    events::routes,
    turns::routes,
    timeline::routes,
    stream::routes,
    console::routes,
    connections::routes,
    calls::routes,
    approvals::routes,
    outbox::routes,
    alerts::routes,
    explain::routes,
    tools::routes,
    tool_pins::routes,
    invoke::routes,
    keys::routes,
    audit::routes,
    usage::routes,
    budgets::routes,
    secrets::routes,
    reload::routes,
    status::routes,
    metrics::routes,
    doctor::routes,
    workspace::routes,
    admin_backup::routes,
    retention::routes,
    erasure::routes,
    people::routes,
    people_may::routes,
    legacy::routes,
    openai::routes,
    mcp::routes,
];

/// These routes in one router. Each has a policy.
fn kernel_routes() -> ApiRouter<Arc<ApiState>> {
    KERNEL_ROUTES.iter().fold(ApiRouter::default(), |routes, part| routes.merge(part()))
}

/// The routes of the module `knowledge`.
fn knowledge_routes() -> ApiRouter<Arc<ApiState>> {
    knowledge::routes().merge(knowledge_files::routes()).merge(knowledge_rights::routes())
}

/// The routes of the kernel and of the modules that are compiled in.
fn authenticated_routes(on: ModulesOn) -> Router<Arc<ApiState>> {
    let routes = routing::router(kernel_routes()).merge(module("knowledge", on.knowledge, knowledge_routes()));
    #[cfg(feature = "flights")]
    let routes = routes.merge(module("flights", on.flights, flights::routes()));
    routes
}

/// The routes that need no credential: probes, the sign-in, and webhooks, whose requests are signed.
fn open_routes() -> ApiRouter<Arc<ApiState>> {
    health::routes().merge(console::open_routes()).merge(whatsapp::webhook::routes())
}

/// The routes of a module. While the module is off, each of them answers with an error that names the module.
fn module(name: &'static str, is_on: bool, routes: ApiRouter<Arc<ApiState>>) -> Router<Arc<ApiState>> {
    let routes = routing::router(routes);
    if is_on {
        return routes;
    }
    routes.route_layer(from_fn(move |_: Request, _: Next| async move { ApiError::module_off(StatusCode::NOT_FOUND, name) }))
}

/// The router of the whole API.
pub fn router(app: Arc<App>) -> Router {
    let cors = cors::layer(&app.config.cors_origins);
    let proxies = Proxies::of(&app.config.trusted_proxies);
    let bytes = Arc::new(ByteBudget::new(app.config.bytes_in_flight));
    let mcp = McpServer::new(app.drained.clone());
    let api = Arc::new(ApiState { app, writer_progress: LoopProgress::default(), proxies, bytes, mcp });
    let open = routing::router(open_routes());
    let router = authenticated_routes(api.app.config.modules)
        .method_not_allowed_fallback(envelope::method_not_allowed)
        .fallback(envelope::unknown_route)
        .layer(from_fn_with_state(Arc::clone(&api), byte_budget::hold))
        .layer(from_fn_with_state(Arc::clone(&api), policy::authenticate))
        .merge(open.merge(pages::routes()).merge(connect_pages::routes()).method_not_allowed_fallback(envelope::method_not_allowed))
        .layer(from_fn(pages::lead_to_console))
        .layer(from_fn_with_state(Arc::clone(&api), outage::refuse))
        .layer(cors)
        .layer(from_fn(cors::allow_sdk_headers))
        .layer(CatchPanicLayer::custom(envelope::panicked))
        .layer(from_fn_with_state(Arc::clone(&api), envelope::envelope))
        .layer(from_fn(gzip::compress))
        .layer(from_fn_with_state(Arc::clone(&api), access_log::record))
        .with_state(api);
    // A layer of the router itself would come after the path was matched.
    Router::new().fallback_service(router).layer(from_fn(openai_path::forgive_slashes))
}
