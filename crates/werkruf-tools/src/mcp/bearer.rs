//! The token that the connection of one person sends, and what the server said when it refused the token.

use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use reqwest::Response;
use secrecy::{ExposeSecret, SecretString};

use super::oauth::Challenge;

/// A refusal of the token: the server has done nothing.
#[derive(Debug, Clone)]
pub(super) struct TokenRefusal {
    pub(super) challenge: Challenge,
    /// Whether the token is good, and lacks a right.
    pub(super) lacks_scope: bool,
}

#[derive(Default)]
struct State {
    token: SecretString,
    refusal: Option<TokenRefusal>,
}

/// The credential of one connection. It can be replaced while the connection is open.
#[derive(Default)]
pub(super) struct Bearer(Mutex<State>);

impl Bearer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn token(&self) -> String {
        self.lock().token.expose_secret().to_owned()
    }

    pub(super) fn set(&self, token: SecretString) {
        *self.lock() = State { token, refusal: None };
    }

    /// The server refused a request for its credential.
    pub(super) fn note_refusal(&self, response: &Response) {
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let challenge = Challenge::read(header);
        let lacks_scope = response.status() == StatusCode::FORBIDDEN;
        self.lock().refusal = Some(TokenRefusal { challenge, lacks_scope });
    }

    /// The last refusal since the token was set; it is returned once.
    pub(super) fn take_refusal(&self) -> Option<TokenRefusal> {
        self.lock().refusal.take()
    }
}
