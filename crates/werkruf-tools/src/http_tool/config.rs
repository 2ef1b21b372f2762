//! The declaration of an HTTP tool, and its validation.
//!
//! Everything that can be checked at start is checked at start: a valid declaration can later fail only because of the
//! service. Messages state what to write instead.

use std::collections::BTreeMap;
use std::net::IpAddr;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use werkruf_contract::{Effect, Need, Shape, Trust};
use werkruf_llm::Egress;
use werkruf_llm::prices::Price;

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

/// The timeout of one attempt where the declaration names none.
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 10_000;

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
    #[serde(default = "three")]
    pub attempts: u32,
    /// How long an identical call may reuse the result; inside the turn if it is left out. 0: each call of a `read` tool is sent.
    #[serde(default)]
    pub reuse_s: Option<u64>,
    /// How often one turn may make the very same call.
    #[serde(default = "three")]
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
    #[serde(default = "one_mebibyte")]
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

/// An error in a declaration, and its place (a JSON pointer).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigFault {
    /// The field, such as `/url`.
    pub path: String,
    /// The error and what to write instead. Contains no secret.
    pub message: String,
}

impl ConfigFault {
    pub(super) fn new(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}

fn http() -> String {
    "http".to_owned()
}

fn post() -> String {
    "POST".to_owned()
}

const fn three() -> u32 {
    3
}

const fn one_mebibyte() -> u64 {
    1_048_576
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
        if self.timeout_ms.is_none() && limit_ms < DEFAULT_TIMEOUT_MS {
            self.timeout_ms = Some(limit_ms);
        }
    }

    /// Everything that is wrong with the declaration; `env` reads the environment.
    pub fn faults(&self, env: &dyn Fn(&str) -> Option<String>) -> Vec<ConfigFault> {
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
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut faults = Vec::new();
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(fits) {
            faults.push(ConfigFault::new("/name", "use 1 to 64 letters, digits, `_` or `-`; models accept nothing else"));
        }
        if self.description.trim().is_empty() {
            faults.push(ConfigFault::new("/description", "is missing; say in a sentence what the tool does, the model chooses by it"));
        }
        if self.kind != "http" {
            faults.push(ConfigFault::new("/kind", format!("`{}` is not an HTTP tool; write kind = \"http\"", self.kind)));
        }
        for (path, value) in [
            ("/timeout_ms", self.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            ("/attempts", u64::from(self.attempts)),
            ("/repeat_limit", u64::from(self.repeat_limit)),
            ("/max_response_bytes", self.max_response_bytes),
        ] {
            if value == 0 {
                faults.push(ConfigFault::new(path, "must be at least 1; leave it out for the default"));
            }
        }
        if self.approval.as_deref().is_some_and(|role| role.trim().is_empty()) {
            faults.push(ConfigFault::new("/approval", "is empty; name the role that approves, or leave it out"));
        }
        faults
    }

    /// Validates the fields that need no parsing.
    pub(super) fn check_plain_fields(&self) -> Result<(), ConfigFault> {
        self.plain_faults().into_iter().next().map_or(Ok(()), Err)
    }

    pub(super) fn effect(&self) -> Result<Effect, ConfigFault> {
        Effect::parse(&self.effect).ok_or_else(|| {
            let wrong = if self.effect.is_empty() { "is missing".to_owned() } else { format!("`{}` is no effect", self.effect) };
            let message = format!(
                "{wrong}; write \"read\" (changes nothing), \"idempotent\" (repeatable with the same Idempotency-Key) or \"once\" (never sent twice)"
            );
            ConfigFault::new("/effect", message)
        })
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
        let Some(text) = &self.permission else {
            let message = "is missing; write \"entity:entity_type:access\", or \"none\" for a tool that every person may call";
            return Err(ConfigFault::new("/permission", message));
        };
        if text == "none" {
            return Ok(None);
        }
        let need = Need::parse(text).ok_or_else(|| {
            let message =
                format!("`{text}` is no permission; write \"entity:entity_type:access\" with access read, write or both, or \"none\"");
            ConfigFault::new("/permission", message)
        })?;
        Ok(Some(need))
    }

    pub(super) fn url(&self) -> Result<Url, ConfigFault> {
        if self.url.is_empty() {
            return Err(ConfigFault::new("/url", "is missing; write a whole address such as http://127.0.0.1:9000/tool"));
        }
        // The message does not contain the address, because the address may contain a password or a key.
        let mut url = Url::parse(&self.url)
            .map_err(|error| ConfigFault::new("/url", format!("{error}; write a whole address such as http://127.0.0.1:9000/tool")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(ConfigFault::new("/url", "must start with http:// or https:// and name a host"));
        }
        let address = url.host_str().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        if address.is_some_and(Egress::never_reaches) {
            return Err(ConfigFault::new("/url", "is a link-local or metadata address, which no tool may reach"));
        }
        url.set_fragment(None);
        Ok(url)
    }

    pub(super) fn header_map(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<HeaderMap, ConfigFault> {
        let mut headers = HeaderMap::new();
        for (name, text) in &self.headers {
            let path = format!("/headers/{name}");
            let name =
                HeaderName::try_from(name).map_err(|_| ConfigFault::new(&path, "is not a header name; use letters, digits and `-`"))?;
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(ConfigFault::new(&path, "is written by the server itself; remove it"));
            }
            let expanded = expand(text, env).map_err(|message| ConfigFault::new(&path, message))?;
            let mut value = HeaderValue::try_from(expanded)
                .map_err(|_| ConfigFault::new(&path, "holds a line break or another character that no header may have"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(super) fn secret(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, ConfigFault> {
        let Some(name) = &self.secret_env else { return Ok(None) };
        variable(name, env).map(Some).map_err(|message| ConfigFault::new("/secret_env", message))
    }

    /// The schema, as JSON for the model and compiled for the validation of arguments.
    pub(super) fn schema(&self) -> Result<(Value, Shape), ConfigFault> {
        let fault = |message: String| ConfigFault::new("/parameters", message);
        if self.parameters.is_empty() {
            return Err(fault("is missing; write a JSON Schema, such as '{\"type\": \"object\", \"properties\": {}}'".to_owned()));
        }
        let schema: Value =
            serde_json::from_str(&self.parameters).map_err(|error| fault(format!("is not JSON: {error}; write a JSON Schema")))?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(fault("must be a JSON Schema whose \"type\" is \"object\"; a tool's arguments always have names".to_owned()));
        }
        let shape = Shape::compile(&schema).map_err(|error| fault(format!("is not a JSON Schema: {error}")))?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let fixed = if self.method == "GET" { Url::parse(&self.url).ok() } else { None };
        for (name, property) in properties.into_iter().flatten() {
            if fixed.as_ref().is_some_and(|url| has_parameter(url, name)) {
                return Err(fault(format!("`{name}` is a query parameter of the url too; rename one of them")));
            }
            // A property that does not compile by itself (a reference) is validated with the arguments.
            let (Some(default), Ok(shape)) = (property.get("default"), Shape::compile(property)) else { continue };
            if !shape.fits(default) {
                return Err(fault(format!("the default of `{name}` does not fit its own schema; correct one of them")));
            }
        }
        Ok((schema, shape))
    }

    /// Identifies this declaration, so that results of a different declaration are never reused. Another price is no reason, so it is left out.
    pub(super) fn digest(&self) -> String {
        // A declaration has only texts and numbers, which always serialize.
        werkruf_contract::hex(&Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }
}

/// Whether the address itself has this query parameter.
pub(super) fn has_parameter(url: &Url, name: &str) -> bool {
    url.query_pairs().any(|(known, _)| known == name)
}

fn variable(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    env(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("the environment variable {name} is not set or empty; set it before the server starts"))
}

/// Replaces `${NAME}` with environment variables. The error message states what to do.
pub fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("has `${` without `}`; write ${ENV_NAME}")?;
        out.push_str(before);
        out.push_str(&variable(name, env)?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
