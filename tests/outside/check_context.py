"""What a request says about its calls counts in every process that works on its turn."""
import json
import threading

from check_recovery import finished, kill
from fakes import calls, text
from server import with_model_and_tool, until

CONFIG = """
[[tools]]
name = "look"
description = "Looks."
kind = "http"
url = "{url}/look"
effect = "read"
permission = "none"
parameters = '''{{"type": "object"}}'''

[safety.strict]
tools_denied = ["test_echo"]
"""
HEADERS = {"x-safety-mode": "strict", "x-case-id": "crm-7", "x-ingestion-run-id": "ingest_7", "x-timeout-ms": "20000", "accept-language": "fr-FR"}


def check_the_context_of_a_turn_survives_kill_9():
    gate = threading.Event()
    with with_model_and_tool(CONFIG, lambda request, number: (200, {"ok": True}, {})) as (model, tool, server):
        model.script = [lambda request: (gate.wait(30), text("Too late."))[1]]
        status, running, _ = server.call("POST", "/api/chat", {"message": "Look", "background": True}, headers=HEADERS)
        assert status == 202, running
        until(lambda: model.requests)
        queued_headers = {**HEADERS, "x-case-id": "crm-8"}
        body = {"message": "And then?", "conversation_id": running["conversation_id"], "background": True}
        status, queued, _ = server.call("POST", "/api/chat", body, headers=queued_headers)
        assert status == 202, queued
        kill(server)
        gate.set()
        # The first turn is taken over, the second one starts in the new process.
        both = calls(("look", {}), ("test_echo", {"value": 1}))
        model.script = [both, text("First."), both, text("Second.")]
        server.start()
        assert finished(server, running["turn_id"])["message"] == "First."
        assert finished(server, queued["turn_id"])["message"] == "Second."
        for turn, case in ((running["turn_id"], "crm-7"), (queued["turn_id"], "crm-8")):
            rows = server.rows("SELECT * FROM tool_calls WHERE turn_id = ? ORDER BY output_index", turn)
            assert [(r["status"], r["error_code"]) for r in rows] == [("succeeded", None), ("failed", "permission_denied")], rows
            for row in rows:
                assert (row["case_id"], row["ingestion_run_id"], row["run_id"]) == (case, "ingest_7", None), row
                context = json.loads(row["context"])
                expected = {"safety_mode": "strict", "timeouts_ms": 20000, "locale": "fr-FR"}
                assert {name: context[name] for name in expected} == expected, context
        assert [request["body"]["context"]["case_id"] for request in tool.requests] == ["crm-7", "crm-8"]
