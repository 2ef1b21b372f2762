//! What is wrong with a request before anything of it is stored.

use werkruf_runtime::AnswerFormat;

use super::media_urls;
use super::start::TurnRequest;
use crate::api::error::ApiError;

/// The most tools in a request, and the most calls in a message.
const MAX_LIST_ITEMS: usize = 1024;
/// How much is shown of what is wrong with a schema.
const MAX_FAULT_CHARS: usize = 200;

/// Checks the lists, the format and the addresses of a request.
pub(crate) fn check(request: &TurnRequest) -> Result<(), ApiError> {
    check_list_lengths(request)?;
    check_format(request)?;
    media_urls::refused(&request.values).map_or(Ok(()), |address| Err(refused_address(address)))
}

/// The error for the address of a picture or file that the model may not get.
pub(crate) fn refused_address(address: &str) -> ApiError {
    let start: String = address.chars().take(80).collect();
    ApiError::invalid(format!("The address \"{start}\" is not passed to the model; pictures and files need https: or data:."))
}

/// Bounds the lists in a request. The body limit is large because of pictures, so it does not bound them.
fn check_list_lengths(request: &TurnRequest) -> Result<(), ApiError> {
    let too_many = |what: &str| Err(ApiError::invalid(format!("There are more than {MAX_LIST_ITEMS} {what}; send fewer.")));
    if request.tools.len() > MAX_LIST_ITEMS {
        return too_many("tools");
    }
    let mut run = 0;
    for value in &request.values {
        let calls = value["tool_calls"].as_array().map_or(0, Vec::len);
        run = if matches!(value["type"].as_str(), Some("function_call" | "custom_tool_call")) { run + 1 } else { 0 };
        if calls.max(run) > MAX_LIST_ITEMS {
            return too_many("calls in one message");
        }
    }
    Ok(())
}

/// The schema of the format that the request asks for must be one.
fn check_format(request: &TurnRequest) -> Result<(), ApiError> {
    match AnswerFormat::of(&request.options) {
        Some(Err(fault)) => {
            let fault: String = fault.chars().take(MAX_FAULT_CHARS).collect();
            Err(ApiError::invalid(format!("The schema of the answer's format is not a JSON Schema: {fault}")))
        }
        Some(Ok(_)) | None => Ok(()),
    }
}
