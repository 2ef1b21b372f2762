//! The declaration of an HTTP tool, and its validation.
//!
//! Everything that can be checked at start is checked at start: a valid declaration can later fail only because of the
//! service. Messages state what to write instead.

use std::collections::BTreeMap;

use reqwest::header::HeaderMap;
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use werkruf_contract::{Effect, Need, Shape, Trust};
use werkruf_llm::prices::Price;

use crate::declared_fields::{self, ConfigFault, Variables, variable};

/// Headers that the server sets itself. A second value would make the request ambiguous.
const RESERVED_HEADERS: [&str; 9] = [
    "idempotency-key",
    "x-werkruf-signature-256",
    "x-werkruf-timestamp",
    "x-werkruf-nonce",
    "x-werkruf-user",
    "x-werkruf-tenant",
    "x-werkruf-job",
    "content-length",
    "transfer-encoding",
];

/// One `[[tools]]` entry with `kind = "http"`. A missing field is read as an empty one, so that all faults are found in one pass.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpToolConfig {
    /// The name that the model calls: letters, digits, `_` and `-`, at most 64.
    #[serde(default)]
    pub name: String,
    /// What the tool does, for the model.
    #[serde(default)]
    pub description: String,
    /// Always `http`.
    #[serde(default = "http")]
    pub kind: String,
    /// The address of the service. The model's arguments cannot change the host.
    #[serde(default)]
    pub url: String,
    /// `POST`, `PUT`, `PATCH`, `DELETE` or `GET`.
    #[serde(default = "post")]
    pub method: String,
    /// `read`, `idempotent` or `once`.
    #[serde(default)]
    pub effect: String,
    /// The timeout of one attempt; ten seconds if it is left out.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Attempts in all, the first included; a `once` tool has one.
    #[serde(default = "declared_fields::three")]
    pub attempts: u32,
    /// How long an identical call may reuse the result; inside the turn if it is left out. 0: each call of a `read` tool is sent.
    #[serde(default)]
    pub reuse_s: Option<u64>,
    /// How often one turn may make the very same call.
    #[serde(default = "declared_fields::three")]
    pub repeat_limit: u32,
    /// The role that must approve each call.
    #[serde(default)]
    pub approval: Option<String>,
    /// The permission that the caller needs, as `entity:entity_type:access`, or `none`. It must be said, so that no tool is open to
    /// everybody by mistake.
    #[serde(default)]
    pub permission: Option<String>,
    /// The slugs or ids of the tenants that have the tool; empty: all tenants.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// `untrusted`: strangers may write what the service returns, as on a web page. `trusted` if it is left out.
    #[serde(default)]
    pub trust: Trust,
    /// Whether the arguments leave the company. After untrusted content such a call needs an approval.
    #[serde(default)]
    pub external: bool,
    /// What one attempt of a call costs, in US dollars as decimal text; without it attempts have no usage row.
    #[serde(default, skip_serializing)]
    pub price_usd: Option<String>,
    /// The largest response, measured after decompression.
    #[serde(default = "declared_fields::one_mebibyte")]
    pub max_response_bytes: u64,
    /// Additional request headers; `${ENV_NAME}` stands for an environment variable.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether the service gets the span of the call in the header `traceparent`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traceparent: bool,
    /// The environment variable with the signing key.
    #[serde(default)]
    pub secret_env: Option<String>,
    /// `direct`: the tool's `message` is the answer to the user, without another model request.
    #[serde(default)]
    pub answer: Option<String>,
    /// A JSON Schema of type object, as text.
    #[serde(default)]
    pub parameters: String,
}

fn http() -> String {
    "http".to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

/// Prints only the name, because headers may contain a secret from the file.
impl std::fmt::Debug for HttpToolConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpToolConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HttpToolConfig {
    /// Bounds the timeout of a tool that names none by the limit for tools.
    pub fn bound_timeout(&mut self, limit_ms: u64) {
        self.timeout_ms = declared_fields::bounded_timeout(self.timeout_ms, limit_ms);
    }

    /// Everything that is wrong with the declaration; `env` reads the environment.
    pub fn faults(&self, env: Variables<'_>) -> Vec<ConfigFault> {
        let parsed = [
            self.schema().err(),
            self.url().err(),
            self.method().err(),
            self.header_map(env).err(),
            self.secret(env).err(),
            self.effect().err(),
            self.need().err(),
            self.answers_directly().err(),
            self.price_nano_usd().err(),
        ];
        self.plain_faults().into_iter().chain(parsed.into_iter().flatten()).collect()
    }

    /// What is wrong with the fields that need no parsing.
    fn plain_faults(&self) -> Vec<ConfigFault> {
        let mut faults: Vec<ConfigFault> = declared_fields::name_faults(&self.name).into_iter().collect();
        faults.extend(declared_fields::description_fault(&self.description));
        if self.kind != "http" {
            faults.push(ConfigFault::new("/kind", format!("`{}` is not an HTTP tool; write kind = \"http\"", self.kind)));
        }
        faults.extend(declared_fields::zero_faults([
            ("/timeout_ms", declared_fields::timeout_ms(self.timeout_ms)),
            ("/attempts", u64::from(self.attempts)),
            ("/repeat_limit", u64::from(self.repeat_limit)),
            ("/max_response_bytes", self.max_response_bytes),
        ]));
        faults.extend(declared_fields::approval_fault("/approval", self.approval.as_ref()));
        faults
    }

    /// Validates the fields that need no parsing.
    pub(super) fn check_plain_fields(&self) -> Result<(), ConfigFault> {
        self.plain_faults().into_iter().next().map_or(Ok(()), Err)
    }

    pub(super) fn effect(&self) -> Result<Effect, ConfigFault> {
        declared_fields::effect("/effect", &self.effect)
    }

    pub(super) fn method(&self) -> Result<Method, ConfigFault> {
        match self.method.as_str() {
            "POST" => Ok(Method::POST),
            "PUT" => Ok(Method::PUT),
            "PATCH" => Ok(Method::PATCH),
            "DELETE" => Ok(Method::DELETE),
            "GET" => Ok(Method::GET),
            other => Err(ConfigFault::new("/method", format!("`{other}` is not supported; write POST, PUT, PATCH, DELETE or GET"))),
        }
    }

    /// The price of one attempt in nano-dollars.
    pub(super) fn price_nano_usd(&self) -> Result<Option<i64>, ConfigFault> {
        let Some(text) = &self.price_usd else { return Ok(None) };
        let price = Price::parse(text).and_then(Price::nano_dollars);
        let wrong = || ConfigFault::new("/price_usd", format!("`{text}` is no price; write US dollars per call as text, such as \"0.01\""));
        price.map(Some).ok_or_else(wrong)
    }

    pub(super) fn answers_directly(&self) -> Result<bool, ConfigFault> {
        match self.answer.as_deref() {
            None => Ok(false),
            Some("direct") => Ok(true),
            Some(other) => {
                Err(ConfigFault::new("/answer", format!("`{other}` is unknown; write \"direct\", or leave it out and the model answers")))
            }
        }
    }

    pub(super) fn need(&self) -> Result<Option<Need>, ConfigFault> {
        declared_fields::need("/permission", self.permission.as_ref())
    }

    pub(super) fn url(&self) -> Result<Url, ConfigFault> {
        declared_fields::address(&self.url)
    }

    pub(super) fn header_map(&self, env: Variables<'_>) -> Result<HeaderMap, ConfigFault> {
        declared_fields::header_map(&self.headers, &RESERVED_HEADERS, env)
    }

    pub(super) fn secret(&self, env: Variables<'_>) -> Result<Option<String>, ConfigFault> {
        let Some(name) = &self.secret_env else { return Ok(None) };
        variable(name, env).map(Some).map_err(|message| ConfigFault::new("/secret_env", message))
    }

    /// The schema, as JSON for the model and compiled for the validation of arguments.
    pub(super) fn schema(&self) -> Result<(Value, Shape), ConfigFault> {
        let (schema, shape) = declared_fields::schema(&self.parameters)?;
        let fixed = if self.method == "GET" { Url::parse(&self.url).ok() } else { None };
        for (name, _) in declared_fields::properties(&schema) {
            if fixed.as_ref().is_some_and(|url| has_parameter(url, name)) {
                let message = format!("`{name}` is a query parameter of the url too; rename one of them");
                return Err(ConfigFault::new("/parameters", message));
            }
        }
        Ok((schema, shape))
    }

    /// Identifies this declaration, so that results of a different declaration are never reused. Another price is no reason, so it is left out.
    pub(super) fn digest(&self) -> String {
        declared_fields::digest(self)
    }
}

/// Whether the address itself has this query parameter.
pub(super) fn has_parameter(url: &Url, name: &str) -> bool {
    url.query_pairs().any(|(known, _)| known == name)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
