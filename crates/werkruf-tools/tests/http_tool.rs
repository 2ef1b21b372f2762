//! Tests HTTP tools against real servers on loopback, for every rule of the documented interface.

#[cfg(test)]
mod support;

#[cfg(test)]
#[path = "support/server.rs"]
mod server;

#[cfg(test)]
#[path = "http_tool/request.rs"]
mod request;

#[cfg(test)]
#[path = "http_tool/response.rs"]
mod response;

#[cfg(test)]
#[path = "http_tool/faults.rs"]
mod faults;

#[cfg(test)]
mod declared {
    use serde_json::{Value, json};
    use werkruf_contract::{Clock, Failure, Reply, ToolObject};
    use werkruf_llm::{Egress, HttpLimits, tool_client};
    use werkruf_tools::{HttpTool, HttpToolConfig};

    use crate::support::invocation;

    /// A tool at this address with changed fields.
    pub fn tool(url: &str, changes: &Value) -> HttpTool {
        let mut declaration = json!({
            "name": "lookup", "description": "Looks up.", "url": url, "effect": "read", "permission": "none", "parameters": r#"{"type": "object"}"#
        });
        for (field, value) in changes.as_object().unwrap() {
            declaration[field] = value.clone();
        }
        let config: HttpToolConfig = serde_json::from_value(declaration).unwrap();
        let env = |name: &str| (name == "TOOL_SECRET").then(|| "geheim".to_owned());
        HttpTool::new(config, tool_client(&HttpLimits::default(), Egress::default()).unwrap(), &Clock::system(0), &env).unwrap()
    }

    /// Calls a tool at this address with the default declaration.
    pub async fn call(url: &str) -> Result<Reply, Failure> {
        tool(url, &json!({})).call(json!({"q": "x"}), invocation()).await
    }
}
