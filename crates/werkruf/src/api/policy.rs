//! Authentication and authorization. Authentication is one layer around all routes; a policy is a second layer around each route, so
//! handlers need no checks of their own.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use http::request::Parts;

use super::ApiState;
use super::error::ApiError;
use crate::identity::Identity;
use crate::identity::access::admit;
use crate::identity::origin::RequestHead;
use crate::listen::client_address;
use crate::routing::{Routes, with_methods};

/// The scopes that a route needs, and whether the request must name a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Any credential: the route tells the caller about the credential itself.
    Any,
    /// Scope chat, and a user.
    Chat,
    /// Scope tools, and a user.
    Invoke,
    /// Scope chat or tools, and a user: connects an account of the user.
    Connect,
    /// Scope tools, read, chat or admin: speaks the Model Context Protocol. Its methods have policies of their own.
    Mcp,
    /// Scope read or chat, and a user. With scope admin the user is optional and all rows of the tenant are visible.
    Read,
    /// Scope tools or read. No user is needed, because tools do not belong to users.
    ReadTools,
    /// Like [`Self::Read`], or scope approve: reads approvals.
    ReadApprovals,
    /// Scope approve, chat or admin: decides an approval.
    Decide,
    /// Scope chat or admin: changes a conversation or a turn.
    Change,
    /// Scope tools, chat or admin: cancels a call.
    StopCall,
    /// Scope tools or admin: retries a call.
    RetryCall,
    /// Scope tools and a user, or scope admin: changes documents that the user's roles may change.
    WriteDocuments,
    /// Scope admin.
    Admin,
    /// The operator: no key and no token, whatever its scopes.
    Operator,
}

impl Policy {
    pub(crate) fn check(self, identity: &Identity) -> Result<(), ApiError> {
        let scopes = identity.scopes;
        let (allowed, needed) = match self {
            Self::Any => return Ok(()),
            Self::Chat => (scopes.chat, "chat"),
            Self::Invoke => (scopes.tools, "tools"),
            Self::Connect => (scopes.chat || scopes.tools, "chat or tools"),
            Self::Mcp => (scopes.tools || scopes.read || scopes.chat || scopes.admin, "tools, read or chat"),
            Self::Read => (scopes.read || scopes.chat || scopes.admin, "read or chat"),
            Self::ReadTools => (scopes.tools || scopes.read || scopes.admin, "tools or read"),
            Self::ReadApprovals => (scopes.read || scopes.chat || scopes.approve || scopes.admin, "read, chat or approve"),
            Self::Decide => (scopes.approve || scopes.chat || scopes.admin, "approve or chat"),
            Self::Change => (scopes.chat || scopes.admin, "chat"),
            Self::StopCall => (scopes.chat || scopes.tools || scopes.admin, "chat or tools"),
            Self::RetryCall | Self::WriteDocuments => (scopes.tools || scopes.admin, "tools"),
            Self::Admin => (scopes.admin, "admin"),
            Self::Operator if identity.is_operator() => return Ok(()),
            Self::Operator => return Err(ApiError::forbidden("forbidden", "This changes the whole server; it needs the operator's key.")),
        };
        if !allowed {
            return Err(ApiError::forbidden("forbidden", format!("This key lacks the scope: {needed} is needed.")));
        }
        match self {
            Self::Chat | Self::Invoke | Self::Connect => identity.caller().map(|_| ()),
            Self::Read | Self::ReadApprovals | Self::Decide | Self::Change | Self::StopCall | Self::RetryCall | Self::WriteDocuments => {
                identity.visibility().map(|_| ())
            }
            Self::Any | Self::Mcp | Self::ReadTools | Self::Admin | Self::Operator => Ok(()),
        }
    }

    /// Adds this policy to routes.
    pub(crate) fn on(self, routes: Routes<Arc<ApiState>>) -> Routes<Arc<ApiState>> {
        with_methods(routes, |methods| {
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

/// The authentication layer: identifies the caller of a request, counts the request, and ties an event stream to the credential.
pub(crate) async fn authenticate(State(api): State<Arc<ApiState>>, mut request: Request, next: Next) -> Response {
    let address = client_address(request.extensions(), request.headers(), &api.proxies);
    let head = RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() };
    match admit(&api.app, address, &head).await {
        Ok(identity) => {
            let identity = Arc::new(identity);
            request.extensions_mut().insert(Authenticated(Arc::clone(&identity)));
            let mut response = api.app.access.streams.tie(&identity, next.run(request).await);
            if identity.session_id.is_some() {
                // Caches know that an answer to a key is private, and do not know it of an answer to a cookie.
                response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-store"));
            }
            // For the access log.
            response.extensions_mut().insert(Authenticated(identity));
            response
        }
        Err(error) => error.into_response(),
    }
}

/// The identity that [`authenticate`] found. The extractor fails on a route without that layer.
#[derive(Clone)]
pub(crate) struct Authenticated(pub(crate) Arc<Identity>);

impl<S: Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| ApiError::unauthorized("This route needs a key."))
    }
}

/// The state of the API and the identity of the caller, for the handlers of authenticated routes.
pub(crate) struct ApiCaller {
    pub(crate) api: Arc<ApiState>,
    pub(crate) identity: Arc<Identity>,
}

impl FromRequestParts<Arc<ApiState>> for ApiCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<ApiState>) -> Result<Self, ApiError> {
        let Authenticated(identity) = Authenticated::from_request_parts(parts, api).await?;
        Ok(Self { api: Arc::clone(api), identity })
    }
}

#[cfg(test)]
mod tests {
    use werkruf_contract::Uuid;
    use werkruf_store::Scopes;

    use super::Policy;
    use crate::identity::Identity;

    /// Every policy that asks for more than a credential.
    const ALL: [Policy; 13] = [
        Policy::Chat,
        Policy::Invoke,
        Policy::Mcp,
        Policy::Read,
        Policy::ReadTools,
        Policy::ReadApprovals,
        Policy::Decide,
        Policy::Change,
        Policy::StopCall,
        Policy::RetryCall,
        Policy::WriteDocuments,
        Policy::Admin,
        Policy::Operator,
    ];

    /// A key without a user.
    fn key(scopes: Scopes) -> Identity {
        Identity {
            tenant_id: Uuid::nil(),
            scopes,
            operator: false,
            key_id: Some(Uuid::nil()),
            key_root: Some(Uuid::nil()),
            principal: None,
            until: None,
            safety_mode: None,
            collection: None,
            address: None,
            session_id: None,
        }
    }

    fn open_to(identity: &Identity) -> Vec<Policy> {
        ALL.into_iter().filter(|policy| policy.check(identity).is_ok()).collect()
    }

    #[test]
    fn a_key_without_scopes_satisfies_no_policy() {
        assert_eq!(open_to(&key(Scopes::default())), []);
    }

    #[test]
    fn only_tools_can_be_read_without_a_user() {
        assert_eq!(open_to(&key(Scopes { admin: false, ..Scopes::ALL })), [Policy::Mcp, Policy::ReadTools]);
    }

    #[test]
    fn no_key_is_the_operator() {
        assert!(!open_to(&key(Scopes::ALL)).contains(&Policy::Operator));
        assert!(open_to(&Identity { operator: true, key_id: None, ..key(Scopes::ALL) }).contains(&Policy::Operator));
    }
}
