"""A server whose configuration names only a tool: no table of a module is read for a request."""
from fakes import calls, text
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
TABLES = ["requests", "tasks", "worktimes", "cerebro_articles", "provider_quota", "provider_answers", "collections", "documents", "chunks",
          "chunk_terms", "chunk_vectors", "removed_chunks", "embedding_claims"]


def check_requests_need_no_table_of_a_module():
    with with_model_and_tool(TOOL, lambda request, number: (200, {"left": 3}, {}), {"WERKRUF_SAMPLE_DATA": "on"}, modules=()) as (model, tool, server):
        present = {row["name"] for row in server.rows(server.database.tables)}
        away = [table for table in TABLES if table in present]
        assert {"requests", "documents", "provider_quota"} <= set(away), present
        server.change(*((f"ALTER TABLE {table} RENAME TO {table}_away", []) for table in away))
        model.script = [calls(("stock", {"item": "tea"}), ("remember", {"content": "Tea is low."})), text("Three are left.")]
        status, answer, _ = server.call("POST", "/api/chat", {"message": "How much tea?"}, headers={"accept": "application/json"})
        assert status == 200 and answer["message"]["content"] == "Three are left.", answer
        job = answer["tool_results"][0]["job_id"]
        conversation = answer["conversation_id"]
        for path in ("/api/tools", "/api/tool-calls", f"/api/tool-calls/{job}/explain", "/api/conversations", f"/api/conversations/{conversation}/messages",
                     f"/api/conversations/{conversation}/events", "/api/approvals", "/readyz"):
            status, answer, _ = server.call("GET", path)
            assert status == 200, (path, answer)
        status, answer, _ = server.call("POST", "/api/tools/stock/invoke", {"input": {"item": "cake"}})
        assert status == 200 and answer["status"] == "ok", answer
        status, answer, _ = server.call("DELETE", f"/api/conversations/{conversation}")
        assert status == 204, answer
