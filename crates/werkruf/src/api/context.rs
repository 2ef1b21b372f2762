//! The call context that a caller sends in headers (seed 002): correlation, run, scope, budget.

use std::num::NonZeroU64;

use http::HeaderMap;
use serde_json::Value;
use werkruf_contract::{ToolContext, Uuid, is_locale};

use super::ApiState;
use super::envelope::sane_request_id;
use super::error::ApiError;
use crate::identity::text;

const MAX_CHARACTERS: usize = 256;

/// A context header. A value that is too long is an error.
fn field(headers: &HeaderMap, name: &str) -> Result<Option<String>, ApiError> {
    match text(headers, name).map_err(|_| ApiError::invalid_context(format!("{name} must be plain ASCII.")))? {
        Some(value) if value.len() > MAX_CHARACTERS => {
            Err(ApiError::invalid_context(format!("{name} takes at most {MAX_CHARACTERS} characters.")))
        }
        value => Ok(value.map(str::to_owned)),
    }
}

/// The trace id of the request: `X-Trace-Id`, else the request id, the query, the body, or `traceparent`; `None` without any.
pub(crate) fn trace_id(headers: &HeaderMap, query: Option<&str>, body: Option<&str>) -> Result<Option<String>, ApiError> {
    if let Some(named) = field(headers, "x-trace-id")? {
        return Ok(Some(named));
    }
    let named = sane_request_id(headers).or(query).or(body).filter(|named| !named.is_empty());
    if named.is_some_and(|named| named.len() > MAX_CHARACTERS) {
        return Err(ApiError::invalid_context(format!("trace_id takes at most {MAX_CHARACTERS} characters.")));
    }
    Ok(named.map(str::to_owned).or_else(|| traceparent(headers)))
}

/// The trace id inside a W3C `traceparent`.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let mut parts = headers.get("traceparent")?.to_str().ok()?.trim().split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let hexadecimal = trace.bytes().all(|byte| byte.is_ascii_hexdigit()) && trace.bytes().any(|byte| byte != b'0');
    (version.len() == 2 && trace.len() == 32 && hexadecimal).then(|| trace.to_owned())
}

/// The context of a direct tool call.
pub(crate) fn context(api: &ApiState, tenant_id: Uuid, headers: &HeaderMap, trace_id: Option<String>) -> Result<ToolContext, ApiError> {
    let clock = &api.app.clock;
    let (run_id, ingestion_run_id) = match (field(headers, "x-run-id")?, field(headers, "x-ingestion-run-id")?) {
        (Some(_), Some(_)) => return Err(ApiError::invalid_context("X-Run-Id and X-Ingestion-Run-Id are both set; send one of them.")),
        (None, None) => (Some(format!("run_{}", clock.new_id())), None),
        one => one,
    };
    let invocation_id = clock.new_id();
    let trace_id = trace_id.unwrap_or_else(|| clock.new_id().simple().to_string());
    let mut context = ToolContext::new(tenant_id, trace_id, invocation_id, clock.now(), String::new());
    context.run_id = run_id;
    context.ingestion_run_id = ingestion_run_id;
    context.workflow_id = field(headers, "x-workflow-id")?;
    context.case_id = field(headers, "x-case-id")?;
    context.collection_id = field(headers, "x-collection-id")?;
    context.document_id = field(headers, "x-document-id")?;
    context.document_version_id = field(headers, "x-document-version-id")?;
    context.timeouts_ms = number::<NonZeroU64>(headers, "x-timeout-ms", "a positive number of milliseconds")?;
    context.budget_tokens = number::<i64>(headers, "x-budget-tokens", "a whole number of tokens")?;
    context.locale = language(headers);
    context.safety_mode = safety_mode(api, headers)?;
    if let Some(request_id) = sane_request_id(headers) {
        context.extra.insert("request_id".to_owned(), Value::from(request_id));
    }
    Ok(context)
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &str, wanted: &str) -> Result<Option<N>, ApiError> {
    field(headers, name)?.map(|value| value.parse().map_err(|_| ApiError::invalid_context(format!("{name} takes {wanted}.")))).transpose()
}

fn safety_mode(api: &ApiState, headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(mode) = field(headers, "x-safety-mode")? else { return Ok(None) };
    if api.app.runtime.setup().safety.contains_key(&mode) {
        return Ok(Some(mode));
    }
    Err(ApiError::invalid_context(format!("X-Safety-Mode {mode} is not configured; [safety.{mode}] would define it.")))
}

/// The first language of `Accept-Language`, if it is a language tag.
pub(crate) fn language(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(http::header::ACCEPT_LANGUAGE)?.to_str().ok()?.split([',', ';']).next()?.trim();
    is_locale(tag).then(|| tag.to_owned())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{language, trace_id};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn trace_ids_have_an_order_of_precedence() {
        let parent = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let found = |pairs: &[_], query| trace_id(&headers(pairs), query, None).ok().flatten();
        assert_eq!(found(&[("x-trace-id", "t"), ("x-request-id", "r"), parent], None).as_deref(), Some("t"));
        assert_eq!(found(&[("x-request-id", "r"), parent], Some("q")).as_deref(), Some("r"));
        assert_eq!(found(&[parent], Some("q")).as_deref(), Some("q"));
        assert_eq!(found(&[parent], None).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(found(&[("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01")], None), None);
        assert_eq!(found(&[], None), None);
    }

    #[test]
    fn the_first_language_is_taken() {
        assert_eq!(language(&headers(&[("accept-language", "de-DE,de;q=0.9")])).as_deref(), Some("de-DE"));
        for other in ["*", "de-", "1234", "de-Ignore123-x"] {
            assert_eq!(language(&headers(&[("accept-language", other)])), None, "{other}");
        }
    }
}
