"""A hostile MCP server, written without an SDK: over HTTP in a thread, or as a program over its standard input and output (`hostile.py`).

What its tools do is in `TOOLS`. Its definitions can be changed while it runs.
"""
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
MEBIBYTE = 1 << 20


def definitions(description):
    names = ["echo", "huge", "huge_event", "flood", "hangs", "dies", "nonsense", "refuses", "counts", "complains"]
    tools = [{"name": name, "description": description if name == "echo" else f"{name}.", "inputSchema": ANY} for name in names]
    # None of these can become a tool.
    tools.append({"name": "e" * 80, "description": "Its name is too long.", "inputSchema": ANY})
    tools.append({"name": "broken", "description": "No schema.", "inputSchema": {"type": "object", "properties": {"a": {"type": "nothing"}}}})
    tools.append({"name": "wide", "description": "x" * 100_000, "inputSchema": ANY})
    tools.append({"name": "echo!", "description": "The same name as another one, with other signs.", "inputSchema": ANY})
    tools.append({"name": "echo?", "description": "And again.", "inputSchema": ANY})
    return tools


class Hostile:
    """The server over HTTP. `description` is that of the tool `echo`."""

    def __init__(self, sessions=True, port=0):
        self.description, self.calls, self.deletes, self.headers = "Says what it is told.", [], 0, []
        self.lists, self.sessions, self.alive = 0, sessions, True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.send_error(405)

            def do_DELETE(self):
                outer.deletes += 1
                self.answer(200, b"")

            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.headers.append(dict(self.headers))
                try:
                    outer.post(self, message)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def answer(self, status, body, kind="application/json", more=()):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                for name, value in more:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Quiet(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def post(self, handler, message):
        method, id = message["method"], message.get("id")
        if id is None:
            return handler.answer(202, b"")
        if method == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}
            return self.result(handler, id, result, [("mcp-session-id", "s-1")] if self.sessions else [])
        if method == "tools/list":
            self.lists += 1
            return self.result(handler, id, {"tools": definitions(self.description)})
        if method != "tools/call":
            error = {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": f"no {method}"}}
            return handler.answer(200, json.dumps(error).encode())
        name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        self.calls.append((name, arguments, message["params"].get("_meta", {})))
        getattr(self, name)(handler, id, arguments)

    def result(self, handler, id, result, more=()):
        handler.answer(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode(), more=more)

    def text(self, handler, id, text):
        self.result(handler, id, {"content": [{"type": "text", "text": text}]})

    def echo(self, handler, id, arguments):
        self.text(handler, id, arguments.get("text", ""))

    def complains(self, handler, id, arguments):
        text = arguments.get("text", "")
        meta = {"_meta": {"werkruf/happened": False}} if text == "nothing" else {}
        self.result(handler, id, {"isError": True, "content": [{"type": "text", "text": text}], **meta})

    def counts(self, handler, id, _):
        self.text(handler, id, str(len(self.calls)))

    def huge(self, handler, id, _):
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        chunk = b"x" * MEBIBYTE
        handler.wfile.write(b"%x\r\n%s\r\n" % (60, (b'{"jsonrpc":"2.0","id":%d,"result":{"content":"' % id).ljust(60)))
        for _ in range(50):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        handler.wfile.write(b"0\r\n\r\n")

    def events(self, handler):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True

    def huge_event(self, handler, id, _):
        self.events(handler)
        handler.wfile.write(b"data: ")
        for _ in range(50):
            handler.wfile.write(b"x" * MEBIBYTE)

    def flood(self, handler, id, _):
        self.events(handler)
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
        event = b"data: " + json.dumps(note).encode() + b"\n\n"
        while self.alive:
            handler.wfile.write(event * 200)

    def hangs(self, handler, id, _):
        while self.alive:
            time.sleep(0.05)

    def dies(self, handler, id, _):
        handler.connection.close()
        handler.close_connection = True

    def nonsense(self, handler, id, _):
        handler.answer(200, b"<html>no</html>", "text/html")

    def refuses(self, handler, id, _):
        handler.answer(503, b"later")


def program():
    """The same over standard input and output. With `HOSTILE_MODE` `slow` it starts slowly, and with `newest` it knows the newest protocol only."""
    out, mode = sys.stdout.buffer, os.environ.get("HOSTILE_MODE")
    if mode == "slow":
        time.sleep(11)

    def send(value):
        out.write(json.dumps(value).encode() + b"\n")
        out.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if id is None:
            continue
        if mode == "newest" and method == "server/discover":
            send({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                                                         "serverInfo": {"name": "hostile", "version": "1"}, "ttlMs": 0, "cacheScope": "private"}})
        elif mode != "newest" and method == "initialize":
            send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                                         "serverInfo": {"name": "hostile", "version": "1"}}})
        elif method == "tools/list":
            send({"jsonrpc": "2.0", "id": id, "result": {"tools": definitions("Says what it is told.")[:6]}})
        elif method == "tools/call":
            name = message["params"]["name"]
            if name == "echo":
                send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": message["params"]["arguments"].get("text", "")}]}})
            elif name == "huge":
                out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
                for _ in range(50):
                    out.write(b"x" * MEBIBYTE)
                out.write(b'"}]}}\n')
                out.flush()
            elif name == "flood":
                while True:
                    send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
            elif name == "dies":
                os._exit(1)
        else:
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": f"no {method}"}})


if __name__ == "__main__":
    program()
