//! One server with accounts of people, and what is stored about them.

use jiff::Timestamp;
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;
use werkruf_store::{ConnectionKey, ConnectionRow};

use super::addresses::Addresses;
use super::discovery::is_same_issuer;
use super::fault::ConnectFault;
use super::grant::{Grant, TokenSource};
use super::http::Http;
use super::services::{LoginSettings, OAuthServices};
use super::{registration, token};

/// The server, and what requests about its accounts need.
pub(super) struct Site {
    pub(super) name: String,
    pub(super) url: Url,
    pub(super) settings: LoginSettings,
    pub(super) services: OAuthServices,
    pub(super) http: Http,
    pub(super) addresses: Addresses,
}

impl Site {
    pub(super) fn now(&self) -> Timestamp {
        self.services.clock.now()
    }

    /// Whether tokens from here are for this server as the configuration has it now.
    pub(super) fn trusts(&self, source: &TokenSource) -> bool {
        let issuer = self.settings.issuer.as_deref();
        source.server == self.url.as_str() && issuer.is_none_or(|issuer| is_same_issuer(issuer, &source.issuer))
    }

    /// The connection of a person with this very server, if there is one that can be read.
    pub(super) async fn stored(&self, key: &ConnectionKey) -> Result<Option<(ConnectionRow, Grant)>, ConnectFault> {
        let row = self.services.store.connection(key.clone()).await?;
        Ok(row.and_then(|row| self.grant(&row).map(|grant| (row, grant))))
    }

    pub(super) fn grant(&self, row: &ConnectionRow) -> Option<Grant> {
        self.open::<Grant>(&row.key.purpose(), &row.sealed).filter(|grant| self.trusts(&grant.source))
    }

    /// Tells the authorization server that these tokens are not used any more. That is tried once: here the tokens are gone already.
    pub(super) async fn revoke(&self, grant: &Grant) {
        if let Err(fault) = token::revoke(&self.http, &self.addresses, grant).await {
            tracing::warn!(server = self.name, "a token was deleted here, and its server could not be told: {fault}");
        }
    }

    pub(super) fn close<T: Serialize>(&self, purpose: &str, value: &T) -> Result<Vec<u8>, ConnectFault> {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.services.seal.close(purpose, &text).ok_or_else(registration::no_key)
    }

    pub(super) fn open<T: DeserializeOwned>(&self, purpose: &str, sealed: &[u8]) -> Option<T> {
        self.services.seal.open(purpose, sealed).and_then(|text| serde_json::from_str(&text).ok())
    }
}
