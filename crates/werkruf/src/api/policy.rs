//! What a route asks of whoever calls it. Authentication is one layer around everything; the policy is a second
//! one around each route, so a handler never has to remember either.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use utoipa_axum::router::{UtoipaMethodRouter, UtoipaMethodRouterExt};

use super::ApiState;
use super::error::ApiError;
use crate::identity::{Identity, identify};

/// Which scopes open a route, and whether a person must be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Scope chat, and a person.
    Chat,
    /// Scope tools, and a person.
    Invoke,
    /// Scope read, or chat for what is one's own: a person, unless scope admin sees all.
    Read,
    /// Scope tools or read; a tool belongs to nobody.
    ReadTools,
    /// Scope chat or admin: changes one's own conversation or turn.
    Change,
    /// Scope tools, chat or admin: stops a call.
    StopCall,
    /// Scope tools or admin: runs a call again.
    RetryCall,
    /// Scope admin.
    Admin,
}

impl Policy {
    fn check(self, identity: &Identity) -> Result<(), ApiError> {
        let scopes = identity.scopes;
        let (allowed, needed) = match self {
            Self::Chat => (scopes.chat, "chat"),
            Self::Invoke => (scopes.tools, "tools"),
            Self::Read => (scopes.read || scopes.chat || scopes.admin, "read or chat"),
            Self::ReadTools => (scopes.tools || scopes.read || scopes.admin, "tools or read"),
            Self::Change => (scopes.chat || scopes.admin, "chat"),
            Self::StopCall => (scopes.chat || scopes.tools || scopes.admin, "chat or tools"),
            Self::RetryCall => (scopes.tools || scopes.admin, "tools"),
            Self::Admin => (scopes.admin, "admin"),
        };
        if !allowed {
            return Err(ApiError::forbidden("forbidden", format!("This key lacks the scope: {needed} is needed.")));
        }
        match self {
            Self::Chat | Self::Invoke => identity.caller().map(|_| ()),
            Self::Read | Self::Change | Self::StopCall | Self::RetryCall => identity.visibility().map(|_| ()),
            Self::ReadTools | Self::Admin => Ok(()),
        }
    }

    /// Puts this policy around routes.
    pub(crate) fn on(self, routes: UtoipaMethodRouter<Arc<ApiState>>) -> UtoipaMethodRouter<Arc<ApiState>> {
        routes.map(|methods| {
            methods
                .route_layer(from_fn(move |identity: Authenticated, request: Request, next: Next| enforce(self, identity, request, next)))
        })
    }
}

async fn enforce(policy: Policy, Authenticated(identity): Authenticated, request: Request, next: Next) -> Response {
    match policy.check(&identity) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// The layer around everything that needs a credential.
pub(crate) async fn authenticate(State(api): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    match identify(&api.app, request.headers()).await {
        Ok(identity) => {
            request.extensions_mut().insert(Authenticated(Arc::new(identity)));
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

/// Who calls, as the layer found out. Without the layer there is nobody, and nobody gets in.
#[derive(Clone)]
pub(crate) struct Authenticated(pub(crate) Arc<Identity>);

impl<S: Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| ApiError::unauthorized("This route needs a key."))
    }
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;
    use werkruf_store::Scopes;

    use super::Policy;
    use crate::identity::Identity;

    const ALL: [Policy; 8] =
        [Policy::Chat, Policy::Invoke, Policy::Read, Policy::ReadTools, Policy::Change, Policy::StopCall, Policy::RetryCall, Policy::Admin];

    #[test]
    fn a_key_without_scopes_opens_nothing() {
        let identity =
            Identity { tenant_id: Uuid::nil(), scopes: Scopes::default(), operator: false, key_id: Some(Uuid::nil()), principal: None };
        assert!(ALL.iter().all(|policy| policy.check(&identity).is_err()));
    }

    #[test]
    fn nobody_needs_to_be_named_only_where_rows_belong_to_nobody() {
        let identity = Identity {
            tenant_id: Uuid::nil(),
            scopes: Scopes { admin: false, ..Scopes::ALL },
            operator: false,
            key_id: Some(Uuid::nil()),
            principal: None,
        };
        let open: Vec<Policy> = ALL.into_iter().filter(|policy| policy.check(&identity).is_ok()).collect();
        assert_eq!(open, [Policy::ReadTools]);
    }
}
