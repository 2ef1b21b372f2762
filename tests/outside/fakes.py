"""A scripted model and a scripted tool as external programs: plain HTTP on loopback, standard library only."""
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeEndpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, status, payload, headers=None, kind="application/json"):
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Listener(ThreadingHTTPServer):
    # With the default of 5 the kernel resets connections that were not accepted yet when a hundred come at once.
    request_queue_size = 512
    daemon_threads = True


class FakeServer:
    """Serves an endpoint class on a free port until closed."""

    def __init__(self, endpoint):
        self.requests = []
        self.lock = threading.Lock()
        endpoint.owner = self
        self.http = Listener(("127.0.0.1", 0), endpoint)
        self.http.handle_error = lambda *_: None  # some checks kill the server in the middle of a response
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def note(self, request):
        with self.lock:
            self.requests.append(request)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def chunk(delta, finish=None, **more):
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake", **more,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def text(content, pieces=3):
    size = max(1, len(content) // pieces)
    parts = [content[i:i + size] for i in range(0, len(content), size)]
    return [chunk({"role": "assistant", "content": ""})] + [chunk({"content": p}) for p in parts] + [chunk({}, "stop")]


def calls(*wanted, before=""):
    """Each wanted call: (name, arguments as text or value[, id])."""
    out = [chunk({"role": "assistant", "content": before or None})]
    for at, (name, arguments, *rest) in enumerate(wanted):
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call_id = rest[0] if rest else f"call_{time.monotonic_ns()}_{at}"
        half = len(arguments) // 2
        out.append(chunk({"tool_calls": [{"index": at, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments[:half]}}]}))
        out.append(chunk({"tool_calls": [{"index": at, "function": {"arguments": arguments[half:]}}]}))
    return out + [chunk({}, "tool_calls")]


class Model(FakeServer):
    """Answers each chat completion with the next entry of the script: chunks (a function among them is called, to wait for something),
    ("status", code, headers, body), ("cut", chunks), or a function of the request that returns one of these. An empty script answers 'Done.', or what `default` makes of the request.
    `usage` is what it reports for every answer: tokens of the prompt and of the answer."""

    def __init__(self):
        self.script, self.default, self.usage = [], None, (10, 5)

        class Endpoint(FakeEndpoint):
            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})

            def do_POST(self):
                request = json.loads(self.body())
                self.owner.note(request)
                fault = invalid_history(request["messages"])
                if fault:
                    return self.answer(400, {"error": {"message": fault, "type": "invalid_request_error"}})
                with self.owner.lock:
                    entry = self.owner.script.pop(0) if self.owner.script else self.owner.default or text("Done.")
                self.respond(entry(request) if callable(entry) else entry)

            def respond(self, entry):
                if isinstance(entry, tuple) and entry[0] == "status":
                    status, headers, body = [*entry[1:], None, None][:3]
                    return self.answer(status, body or {"error": {"message": "scripted", "type": "server_error"}}, headers)
                cut = isinstance(entry, tuple)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                prompt, completion = self.owner.usage
                usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
                chunks = entry[1][:-1] if cut else entry + [{**chunk({}), "choices": [], "usage": usage}]
                for item in chunks:
                    if callable(item):
                        item()
                        continue
                    self.wfile.write(b"data: " + json.dumps(item).encode() + b"\n\n")
                    self.wfile.flush()
                if not cut:
                    self.wfile.write(b"data: [DONE]\n\n")
                self.close_connection = True

        super().__init__(Endpoint)

    def last(self):
        return self.requests[-1]


def invalid_history(messages):
    """The fault that a real provider would reject: a call whose result does not follow directly, or a result without its call."""
    open_ids = []
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_ids:
                return f"tool message {message.get('tool_call_id')} answers no call"
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            return f"calls without result: {open_ids}"
        for call in message.get("tool_calls") or []:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"]):
                return f"invalid function name {call['function']['name']!r}"
            try:
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
            except (ValueError, AssertionError):
                return f"arguments are no JSON object: {call['function']['arguments']!r}"
        open_ids = [c["id"] for c in message.get("tool_calls") or []]
        if len(open_ids) != len(set(open_ids)):
            return "call ids repeat"
    return f"calls without result: {open_ids}" if open_ids else None


class Tool(FakeServer):
    """An operator's HTTP tool. `behave(request, number)` returns (status, payload, headers) or "hang" or "drop"."""

    def __init__(self, behave):
        self.behave = behave

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                raw = self.body()
                request = {"body": json.loads(raw), "raw": raw, "headers": {k.lower(): v for k, v in self.headers.items()}, "path": self.path}
                self.owner.note(request)
                outcome = self.owner.behave(request, len(self.owner.requests))
                if outcome == "hang":
                    self.rfile.read(1)  # until the client disconnects
                    self.close_connection = True
                elif outcome == "drop":
                    self.connection.close()
                    self.close_connection = True
                else:
                    self.answer(*outcome)

        super().__init__(Endpoint)
