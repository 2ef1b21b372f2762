"""A small client of the Model Context Protocol, in both eras. It can leave in the middle of a request."""
import http.client
import itertools
import json
import urllib.parse

from server import ADMIN

OLD, NEW = "2025-11-25", "2026-07-28"
CLIENT = {"name": "outside", "version": "1"}


class Rpc(Exception):
    """An error of the protocol."""

    def __init__(self, error):
        super().__init__(error)
        self.error = error


class Refused(Exception):
    """The HTTP request was refused."""

    def __init__(self, status, body):
        super().__init__(status, body)
        self.status, self.body = status, body


class Client:
    """One client. `OLD` opens a session; `NEW` names its version in each request."""

    def __init__(self, server, version=NEW, key=ADMIN, user=1, headers=None, capabilities=None):
        self.address = urllib.parse.urlsplit(server.url)
        self.version, self.numbers, self.session = version, itertools.count(1), None
        self.capabilities = capabilities or {}
        self.headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", **(headers or {})}
        if key:
            self.headers["authorization"] = "Bearer " + key
        if key == ADMIN and user is not None:
            self.headers["x-user-id"] = str(user)
        if version == OLD:
            result = self.request("initialize", {"protocolVersion": OLD, "capabilities": self.capabilities, "clientInfo": CLIENT})
            assert result["protocolVersion"] == OLD, result
            assert self.session, "initialize opens a session"
            self.info = result
            self.notify("notifications/initialized")

    def message(self, method, params=None, meta=None):
        params = dict(params or {})
        meta = dict(meta or {})
        if self.version == NEW:
            meta.update({"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientInfo": CLIENT,
                         "io.modelcontextprotocol/clientCapabilities": self.capabilities})
        if meta:
            params["_meta"] = meta
        return {"jsonrpc": "2.0", "id": next(self.numbers), "method": method, "params": params}

    def send(self, message, verb="POST", headers=None):
        """Sends a message; returns the connection, whose answer was not read yet."""
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=60)
        sent = {**self.headers, **(headers or {})}
        if message and message["method"] != "initialize":
            sent["mcp-protocol-version"] = self.version
        if self.version == NEW and message:
            sent["mcp-method"] = message["method"]
            name = next((message["params"][field] for field in ("name", "uri", "taskId") if field in message["params"]), None)
            if name:
                sent["mcp-name"] = name
        if self.session:
            sent["mcp-session-id"] = self.session
        connection.request(verb, "/mcp", json.dumps(message) if message else None, sent)
        return connection

    def receive(self, connection):
        """All messages of an answer."""
        answer = connection.getresponse()
        raw = answer.read().decode()
        connection.close()
        self.session = answer.headers.get("mcp-session-id") or self.session
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line[5:].strip() for line in raw.splitlines() if line.startswith("data:")]
            return [json.loads(line) for line in lines if line]
        if answer.status >= 400:
            body = json.loads(raw)
            if "jsonrpc" not in body:
                raise Refused(answer.status, body)
        return [json.loads(raw)] if raw else []

    def exchange(self, method, params=None, meta=None, headers=None):
        """All messages that answer a request."""
        return self.receive(self.send(self.message(method, params, meta), headers=headers))

    def request(self, method, params=None, meta=None, headers=None):
        return result(self.exchange(method, params, meta, headers))

    def notify(self, method, params=None):
        return self.receive(self.send({"jsonrpc": "2.0", "method": method, "params": params or {}}))

    def call(self, tool, arguments=None, meta=None, **more):
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}}, meta, **more)

    def start(self, tool, arguments=None, meta=None):
        """Sends a call and does not read the answer: (connection, id of the request)."""
        message = self.message("tools/call", {"name": tool, "arguments": arguments or {}}, meta)
        return self.send(message), message["id"]


def result(messages):
    last = messages[-1]
    if "error" in last:
        raise Rpc(last["error"])
    return last["result"]


def key_of(server, user, *scopes):
    status, made, _ = server.call("POST", "/api/keys", {"user_id": str(user), "scopes": list(scopes)})
    assert status == 201, made
    return made["key"]
