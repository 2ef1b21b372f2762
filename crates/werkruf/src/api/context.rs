//! The call context that a caller sends in headers (seed 002): correlation, run, scope, budget.

use std::num::NonZeroU64;

use http::HeaderMap;
use serde_json::Value;
use werkruf_contract::{TRACEPARENT, ToolContext, Uuid, is_locale};
use werkruf_runtime::CallerSpan;

use super::ApiState;
use super::error::ApiError;
use crate::identity::text;
use crate::request_id;
use crate::routing::IntoParams;

pub(super) const MAX_CHARACTERS: usize = 256;

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
    let named = request_id::sane(headers).or(query).or(body).filter(|named| !named.is_empty());
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

/// The headers that say something about the calls of a request, for the API's description.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its description is used; the headers are read one by one")]
pub(crate) struct ContextHeaders {
    #[param(rename = "X-Trace-Id")]
    trace_id: Option<String>,
    #[param(rename = "X-Request-ID")]
    request_id: Option<String>,
    traceparent: Option<String>,
    #[param(rename = "X-Run-Id")]
    run_id: Option<String>,
    #[param(rename = "X-Ingestion-Run-Id")]
    ingestion_run_id: Option<String>,
    #[param(rename = "X-Workflow-Id")]
    workflow_id: Option<String>,
    #[param(rename = "X-Case-Id")]
    case_id: Option<String>,
    #[param(rename = "X-Collection-Id")]
    collection_id: Option<String>,
    #[param(rename = "X-Document-Id")]
    document_id: Option<String>,
    #[param(rename = "X-Document-Version-Id")]
    document_version_id: Option<String>,
    #[param(rename = "X-Budget-Tokens")]
    budget_tokens: Option<u32>,
    #[param(rename = "X-Safety-Mode")]
    safety_mode: Option<String>,
    #[param(rename = "X-Timeout-Ms")]
    timeout_ms: Option<u64>,
    #[param(rename = "Accept-Language")]
    accept_language: Option<String>,
}

/// The context that the headers ask for. What they leave open, such as the run, is empty.
pub(crate) fn requested(api: &ApiState, headers: &HeaderMap, trace_id: Option<String>) -> Result<ToolContext, ApiError> {
    read(headers, trace_id, |mode| api.app.runtime.setup().safety.contains_key(mode))
}

/// Reads the headers. `is_safety_mode` knows the configured safety profiles.
pub(super) fn read(headers: &HeaderMap, trace_id: Option<String>, is_safety_mode: impl Fn(&str) -> bool) -> Result<ToolContext, ApiError> {
    let (run_id, ingestion_run_id) = (field(headers, "x-run-id")?, field(headers, "x-ingestion-run-id")?);
    if run_id.is_some() && ingestion_run_id.is_some() {
        return Err(ApiError::invalid_context("X-Run-Id and X-Ingestion-Run-Id are both set; send one of them."));
    }
    let mut context = ToolContext {
        trace_id: trace_id.unwrap_or_default(),
        run_id,
        ingestion_run_id,
        workflow_id: field(headers, "x-workflow-id")?,
        case_id: field(headers, "x-case-id")?,
        collection_id: field(headers, "x-collection-id")?,
        document_id: field(headers, "x-document-id")?,
        document_version_id: field(headers, "x-document-version-id")?,
        timeouts_ms: number::<NonZeroU64>(headers, "x-timeout-ms", "a positive number of milliseconds")?,
        budget_tokens: number::<u32>(headers, "x-budget-tokens", "a whole number of tokens")?.map(i64::from),
        locale: language(headers),
        safety_mode: safety_mode(headers, is_safety_mode)?,
        ..ToolContext::default()
    };
    if let Some(request_id) = request_id::sane(headers) {
        context.extra.insert("request_id".to_owned(), Value::from(request_id));
    }
    // Stored with the turn, so that its trace continues the caller's in every process.
    if let Some(parent) = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::trim)
        && CallerSpan::parse(parent).is_some()
    {
        context.extra.insert(TRACEPARENT.to_owned(), Value::from(parent));
    }
    Ok(context)
}

/// The context of a direct tool call.
pub(crate) fn context(api: &ApiState, tenant_id: Uuid, headers: &HeaderMap, trace_id: Option<String>) -> Result<ToolContext, ApiError> {
    let mut context = requested(api, headers, trace_id)?;
    let clock = &api.app.clock;
    (context.tenant_id, context.invocation_id, context.now_iso) = (tenant_id, clock.new_id(), clock.now());
    if context.run_id.is_none() && context.ingestion_run_id.is_none() {
        context.run_id = Some(format!("run_{}", clock.new_id()));
    }
    if context.trace_id.is_empty() {
        context.trace_id = clock.new_id().simple().to_string();
    }
    Ok(context)
}

fn number<N: std::str::FromStr>(headers: &HeaderMap, name: &str, wanted: &str) -> Result<Option<N>, ApiError> {
    field(headers, name)?.map(|value| value.parse().map_err(|_| ApiError::invalid_context(format!("{name} takes {wanted}.")))).transpose()
}

fn safety_mode(headers: &HeaderMap, is_known: impl Fn(&str) -> bool) -> Result<Option<String>, ApiError> {
    let Some(mode) = field(headers, "x-safety-mode")? else { return Ok(None) };
    if is_known(&mode) {
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
