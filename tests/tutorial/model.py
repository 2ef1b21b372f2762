"""A scripted model at the address of the tutorial's own model: it calls the tool that the message asks for, then says what the tool answered."""
import itertools
import json
import re
import threading

from fakes import FakeEndpoint, FakeServer, calls, chunk

WAIT_SECONDS = 30


class OwnModel(FakeServer):
    """While `gate` is closed, an answer stops after its first piece. So text that a reader sees then has come before the turn's end."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()

        class Endpoint(FakeEndpoint):
            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "qwen3", "object": "model"}]})

            def do_POST(self):
                request = json.loads(self.body())
                self.owner.note(request)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                usage = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
                for piece in itertools.chain(self.owner.pieces(request), [usage]):
                    self.wfile.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
                    self.wfile.flush()
                self.wfile.write(b"data: [DONE]\n\n")
                self.close_connection = True

        super().__init__(Endpoint)

    def pieces(self, request):
        """The pieces of the answer."""
        last = request["messages"][-1]
        offered = [tool["function"]["name"] for tool in request.get("tools", [])]
        wanted = re.search(r"room (\w+) for (\d+) hours", str(last["content"]))
        if offered == ["ping"]:
            yield from calls(("ping", {}))
        elif last["role"] == "user" and wanted and "book_room" in offered:
            yield from calls(("book_room", {"room": wanted[1], "hours": int(wanted[2])}))
        else:
            told = re.search(r'"message": ?"([^"]*)"', str(last["content"]))
            yield chunk({"role": "assistant", "content": "Done. "})
            if not self.gate.wait(WAIT_SECONDS):
                return  # without an end: the turn fails, and so does the comparison
            yield chunk({"content": told[1] if told else f"You said: {last['content']}"})
            yield chunk({}, "stop")
