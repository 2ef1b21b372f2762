//! How routes are listed: each handler names its method, its path and what the OpenAPI document says of it.
//!
//! The document is a file (`docs/openapi.json`). A program with the feature `openapi` generates it from the same attributes; the tests do,
//! and compare. What is shipped only reads methods and paths from them.

#[cfg(feature = "openapi")]
mod described {
    use axum::routing::MethodRouter;
    pub(crate) use utoipa::{IntoParams, ToSchema, path};
    use utoipa_axum::router::UtoipaMethodRouterExt;
    pub(crate) use utoipa_axum::router::{OpenApiRouter as ApiRouter, UtoipaMethodRouter as Routes};
    pub(crate) use utoipa_axum::routes;

    /// Changes the handlers of routes.
    pub(crate) fn with_methods<S: Send + Sync + Clone + 'static>(
        routes: Routes<S>,
        change: impl FnOnce(MethodRouter<S>) -> MethodRouter<S>,
    ) -> Routes<S> {
        routes.map(change)
    }

    /// The router of these routes.
    pub(crate) fn router<S: Send + Sync + Clone + 'static>(routes: ApiRouter<S>) -> axum::Router<S> {
        routes.split_for_parts().0
    }
}

#[cfg(not(feature = "openapi"))]
mod plain {
    use axum::Router;
    use axum::routing::{MethodFilter, MethodRouter};
    pub(crate) use werkruf_routes::{IntoParams, ToSchema, path, routes};

    /// Where a handler is found.
    pub(crate) struct Route {
        pub(crate) path: &'static str,
        pub(crate) method: MethodFilter,
    }

    /// Handlers with one path.
    pub(crate) struct Routes<S> {
        pub(crate) path: &'static str,
        pub(crate) methods: MethodRouter<S>,
    }

    /// Routes of the API.
    pub(crate) struct ApiRouter<S>(Router<S>);

    impl<S: Send + Sync + Clone + 'static> Default for ApiRouter<S> {
        fn default() -> Self {
            Self(Router::new())
        }
    }

    impl<S: Send + Sync + Clone + 'static> ApiRouter<S> {
        pub(crate) fn routes(self, routes: Routes<S>) -> Self {
            Self(self.0.route(routes.path, routes.methods))
        }

        pub(crate) fn merge(self, other: Self) -> Self {
            Self(self.0.merge(other.0))
        }
    }

    pub(crate) fn with_methods<S>(routes: Routes<S>, change: impl FnOnce(MethodRouter<S>) -> MethodRouter<S>) -> Routes<S> {
        Routes { methods: change(routes.methods), ..routes }
    }

    pub(crate) fn router<S>(routes: ApiRouter<S>) -> Router<S> {
        routes.0
    }
}

#[cfg(feature = "openapi")]
pub(crate) use described::*;
#[cfg(not(feature = "openapi"))]
pub(crate) use plain::*;
