"""Items that the provider runs itself (web search), when the server dies in the middle of one."""
import json
import threading

from check_recovery import begin, finished, kill
from fakes import FakeEndpoint, FakeServer
from server import Server, until


class Responses(FakeServer):
    """A Responses API: each request gets the next list of events. None in the list waits for the gate, and a list may end early."""

    def __init__(self, script):
        self.script, self.gate = script, threading.Event()

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                self.owner.note(json.loads(self.body()))
                with self.owner.lock:
                    events = self.owner.script.pop(0)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                for event in events:
                    if event is None:
                        self.owner.gate.wait(30)
                        continue
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()
                self.close_connection = True

        super().__init__(Endpoint)


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "tea"}}
BEGUN = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}}
ENDED = {"type": "response.output_item.done", "output_index": 0, "item": SEARCH}


def message(text):
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}


def completed(*output):
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {"type": "response.completed", "response": {"id": "resp_2", "status": "completed", "output": list(output), "usage": usage}}


def check_killed_while_the_provider_searches():
    delta = {"type": "response.output_text.delta", "output_index": 1, "item_id": "msg_0", "content_index": 0, "delta": "Half"}
    model = Responses([[BEGUN, delta, None], [BEGUN, ENDED, completed(SEARCH, message("Tea is hot."))]])
    server = Server(model, env={"OPENAI_API": "responses", "OPENAI_MODEL": "gpt-5"})
    try:
        accepted = begin(server, "What is tea?")
        running = until(lambda: server.rows("SELECT * FROM tool_calls WHERE status = 'running'"), what="the search")[0]
        assert (running["kind"], running["item_id"], running["call_id"], running["step"], running["output_index"]) == ("web_search", "ws_1", None, 1, 0), running
        kill(server)
        model.gate.set()
        server.start()
        turn = finished(server, accepted["turn_id"])
        assert (turn["status"], turn["message"], turn["step"]) == ("completed", "Tea is hot.", 2), turn
        rows = server.rows("SELECT step, output_index, status, error_code, finished_at FROM tool_calls ORDER BY step")
        assert [(r["step"], r["status"], r["error_code"]) for r in rows] == [(1, "failed", "interrupted"), (2, "succeeded", None)], rows
        assert all(r["finished_at"] for r in rows), rows
        usage = server.rows("SELECT tokens_prompt, estimated, cost_nano_usd FROM api_usage ORDER BY id")
        # 1.25 dollars per million tokens, ten per million written, and a cent for the search that had begun.
        assert (usage[0]["estimated"], usage[0]["cost_nano_usd"]) == (1, usage[0]["tokens_prompt"] * 1250 + 10_000_000), usage
        assert usage[1:] == [{"tokens_prompt": 10, "estimated": 0, "cost_nano_usd": 12_500 + 50_000 + 10_000_000}], usage
        tool_events = server.rows("SELECT type FROM events WHERE type LIKE 'tool_%' ORDER BY seq")
        assert [t["type"] for t in tool_events] == ["tool_started", "tool_finished"] * 2, tool_events
    finally:
        server.close()
        model.close()
