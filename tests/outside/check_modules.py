"""A server whose configuration names only a tool: no table of a module is read for a request."""
import pathlib
import re

from databases import Postgres
from fakes import calls, text
from mcp_client import Client
from server import with_model_and_tool

TOOL = """
[[tools]]
name = "stock"
description = "Counts what is in stock."
kind = "http"
url = "{url}/stock"
effect = "read"
permission = "none"
parameters = '''{{"type": "object", "properties": {{"item": {{"type": "string"}}}}}}'''
"""
CRATES = pathlib.Path(__file__).resolve().parents[2] / "crates"


def tables(database):
    """What the migrations of the modules create in such a database."""
    files = CRATES.glob(f"werkruf-*/migrations/{database}/*.sql")
    return {name for file in files for name in re.findall(r"^CREATE TABLE (\w+)", file.read_text(), re.M)}


def check_requests_need_no_table_of_a_module():
    with with_model_and_tool(TOOL, lambda request, number: (200, {"left": 3}, {}), {"WERKRUF_SAMPLE_DATA": "on"}, modules=()) as (model, tool, server):
        present = {row["name"] for row in server.rows(server.database.tables)}
        away = tables("postgres" if isinstance(server.database, Postgres) else "sqlite")
        assert {"requests", "documents", "provider_quota"} <= away <= present, (away, present)
        server.change(*((f"ALTER TABLE {table} RENAME TO {table}_away", []) for table in sorted(away)))
        model.script = [calls(("stock", {"item": "tea"}), ("remember", {"content": "Tea is low."})), text("Three are left.")]
        status, answer, _ = server.call("POST", "/api/chat", {"message": "How much tea?"}, headers={"accept": "application/json"})
        assert status == 200 and answer["message"]["content"] == "Three are left.", answer
        job = answer["tool_results"][0]["job_id"]
        conversation = answer["conversation_id"]
        for path in ("/api/tools", "/api/tool-calls", f"/api/tool-calls/{job}/explain", "/api/conversations", f"/api/conversations/{conversation}/messages",
                     f"/api/conversations/{conversation}/events", "/api/approvals", "/readyz"):
            status, answer, _ = server.call("GET", path)
            assert status == 200, (path, answer)
        model.script = [text("Still three.")]
        status, answer, _ = server.call("POST", "/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Sure?"}]})
        assert status == 200 and answer["choices"][0]["message"]["content"] == "Still three.", answer
        model.script = [text("Three.")]
        status, answer, _ = server.call("POST", "/v1/responses", {"model": "default", "input": "How many?"})
        assert status == 200 and answer["status"] == "completed", answer
        assert {"stock", "remember"} <= {tool["name"] for tool in Client(server).request("tools/list")["tools"]}
        status, answer, _ = server.call("POST", "/api/tools/stock/invoke", {"input": {"item": "cake"}})
        assert status == 200 and answer["status"] == "ok", answer
        status, answer, _ = server.call("DELETE", f"/api/conversations/{conversation}")
        assert status == 204, answer
