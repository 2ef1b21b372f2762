"""The server scenarios of the conformance suite: those that pass, and those that do not apply with the reason."""
_CONTENT = "Werkruf's tools return JSON data and no images, sounds or embedded resources."
_INPUT = "Werkruf asks nothing back: approvals are decided by people over their own channels, never by the client that asked."
_PROMPTS = "There are no prompts."
_TASKS = "The scenario calls tools of a fixture. Here a call becomes a task only while it waits for an approval (tests/outside/check_mcp.py)."

NOT_APPLICABLE = {}
PASSES = {"2025-11-25": set(), "2026-07-28": set()}
