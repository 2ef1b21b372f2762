"""The server scenarios of the conformance suite: those that pass, and those that do not apply with the reason."""
_CONTENT = "The scenario wants nothing but its block; here the data of a tool comes first, as text (pictures: tests/outside/check_pictures.py)."
_INPUT = "Werkruf asks a client nothing back: approvals are decided by people over their own channels, never by the client that asked."
_PROMPTS = "There are no prompts."
_LOGGING = "Logs are for the operator; clients get none."
_FIXTURE = "The scenario reads test:// resources of a fixture; the resources here are werkruf:// (tests/outside/check_mcp.py)."

_BOTH = {
    "dns-rebinding-protection", "json-schema-2020-12", "resources-list", "server-sse-multiple-streams", "tools-call-error", "tools-call-simple-text",
    "tools-call-with-progress", "tools-list",
}
PASSES = {
    "2025-11-25": _BOTH | {"ping", "server-initialize", "server-session-lifecycle"},
    "2026-07-28": _BOTH | {"caching", "http-header-validation", "sep-2164-resource-not-found", "server-stateless"},
}
NOT_APPLICABLE = {
    "completion-complete": "Nothing is completed.",
    "elicitation-sep1034-defaults": _INPUT,
    "elicitation-sep1330-enums": _INPUT,
    "http-custom-header-server-validation": "No tool asks for its arguments in headers (x-mcp-header).",
    "logging-set-level": _LOGGING,
    "resources-read-binary": _FIXTURE,
    "resources-read-text": _FIXTURE,
    "resources-templates-read": _FIXTURE,
    "resources-subscribe": "Resources are read, not followed.",
    "resources-unsubscribe": "Resources are read, not followed.",
    "server-sse-polling": "No tool closes its own stream; the suite skips what it cannot see then.",
    "tools-call-audio": _CONTENT,
    "tools-call-elicitation": _INPUT,
    "tools-call-embedded-resource": _CONTENT,
    "tools-call-image": _CONTENT,
    "tools-call-mixed-content": _CONTENT,
    "tools-call-sampling": _INPUT,
    "tools-call-with-logging": _LOGGING,
    **{f"prompts-{name}": _PROMPTS for name in ("list", "get-simple", "get-with-args", "get-embedded-resource", "get-with-image")},
    **{f"input-required-result-{name}": _INPUT for name in (
        "basic-elicitation", "basic-list-roots", "basic-sampling", "capability-check", "ignore-extra-params", "missing-input-response", "multi-round",
        "multiple-input-requests", "non-tool-request", "request-state", "result-type", "tampered-state", "unsupported-methods", "validate-input")},
}
# Single checks that need a tool of a fixture: those tools ask the client for input, send it logs or change the list of tools.
NOT_TESTABLE = "Not testable: server does not list the diagnostic tool"
# Single checks of scenarios that pass otherwise, with the reason.
EXEMPT_CHECKS = {"sep-2549-prompts-list-caching-hints": _PROMPTS}
