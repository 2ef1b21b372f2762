//! Names of the GenAI semantic conventions, and the server's own.

pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
pub(crate) const CHAT: &str = "chat";
pub(crate) const EMBEDDINGS: &str = "embeddings";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";

pub(crate) const OPERATION_NAME: &str = "gen_ai.operation.name";
pub(crate) const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The name of `gen_ai.provider.name` in older conventions; many programs still look for it.
pub(crate) const SYSTEM: &str = "gen_ai.system";
pub(crate) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(crate) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
pub(crate) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(crate) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(crate) const RESPONSE_ID: &str = "gen_ai.response.id";
pub(crate) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(crate) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(crate) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(crate) const ERROR_TYPE: &str = "error.type";

pub(crate) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(crate) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(crate) const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
pub(crate) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(crate) const TOOL_RESULT: &str = "gen_ai.tool.call.result";

pub(crate) const WERKRUF_TENANT_ID: &str = "werkruf.tenant_id";
pub(crate) const WERKRUF_CONVERSATION_ID: &str = "werkruf.conversation_id";
pub(crate) const WERKRUF_TURN_ID: &str = "werkruf.turn_id";
pub(crate) const WERKRUF_CALL_ID: &str = "werkruf.call_id";
pub(crate) const WERKRUF_TAKEOVER: &str = "werkruf.takeover";

/// In place of a tool name that a model invented.
pub(crate) const UNKNOWN_TOOL: &str = "unknown";
/// In place of an error code that is not a plain word.
pub(crate) const OTHER_ERROR: &str = "_OTHER";
