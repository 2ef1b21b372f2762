//! `POST /api/admin/secrets/rotate`: encrypts stored secrets with the newest key.

use std::sync::Arc;

use axum::Json;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use super::policy::{ApiCaller, Policy};
use super::{ApiState, body};
use crate::routing::{self, ApiRouter, ToSchema, routes};
use crate::secret_key::rotate;
use crate::start_error::StartError;

pub(crate) fn routes() -> ApiRouter<Arc<ApiState>> {
    ApiRouter::default().routes(Policy::Operator.on(routes!(rotate_secrets)))
}

#[derive(Deserialize, Default, ToSchema)]
struct RotationRequest {
    /// Also signs chains of the audit log without a signature: right for the first key, wrong if somebody removed signatures.
    #[serde(default)]
    sign_unsigned: bool,
}

/// What a rotation did.
#[derive(Serialize, ToSchema)]
struct RotatedSecrets {
    /// The id of the key that is in use now.
    key: String,
    /// Whether a new key was made; false where `WERKRUF_SECRET_KEY` has the keys.
    made: bool,
    /// Stored secrets that are encrypted with this key now.
    sealed: u64,
    /// Stored secrets that no known key decrypts. They are fetched again when they are needed.
    unreadable: u64,
    /// Chains of the audit log whose end is signed with this key now.
    chains: u64,
}

/// Encrypts every stored secret with the newest key. Where the key is in a file, a new one is made.
#[routing::path(post, path = "/api/admin/secrets/rotate", tag = "admin", request_body = RotationRequest,
    responses((status = 200, body = RotatedSecrets), (status = "4XX", body = ref("#/components/schemas/Error"))))]
async fn rotate_secrets(ApiCaller { api, identity }: ApiCaller, body: body::RequestBody) -> Result<Json<RotatedSecrets>, ApiError> {
    let raw = body::bytes(body).await?;
    let RotationRequest { sign_unsigned } = if raw.is_empty() { RotationRequest::default() } else { body::json(&raw)? };
    let (app, author) = (Arc::clone(&api.app), identity.author());
    let rotated = api.run_detached(async move { rotate(&app, author, sign_unsigned).await }).await?.map_err(refused)?;
    tracing::info!(key = rotated.key_name, sealed = rotated.sealed, "stored secrets have a new key");
    Ok(Json(RotatedSecrets {
        key: rotated.key_name,
        made: rotated.made,
        sealed: rotated.sealed,
        unreadable: rotated.unreadable,
        chains: rotated.chains,
    }))
}

fn refused(error: StartError) -> ApiError {
    match error {
        StartError::Store(error) => error.into(),
        StartError::Unsealed => ApiError::conflict("secret_key_required", "There is no key; set WERKRUF_SECRET_KEY for every server."),
        other => {
            tracing::error!(error = %other, "the secrets could not be rotated");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "io", "The key file could not be written; nothing is lost, try again.")
        }
    }
}
