"""What the low actor asks: one function per route of docs/openapi.json. A route without one must be listed as exempt, with its reason."""
import json
import pathlib

from actors import HIGH, LOW, WORDS

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXEMPT = {
    "GET /healthz": "It tells only that the process runs.",
    "GET /readyz": "It reports the loops of the process with their times, and no rows.",
    "GET /openapi.json": "It is part of the program.",
    "POST /api/console/sessions": "It takes a key in its body, and answers with a status alone.",
    "GET /api/stream": "It has no end. The tests of the API (hints.rs) check whom it tells what.",
    "GET /mcp": "It continues a stream of a session, and a session belongs to the credential that opened it (tests/outside/check_mcp.py).",
    "DELETE /mcp": "It ends a session of the same credential.",
    "GET /webhooks/whatsapp": "It answers Meta's handshake and reads no rows.",
    "POST /webhooks/whatsapp": "Only Meta can sign its requests; it answers with a status alone.",
}


class Ask:
    """The choices of one request. They depend on the seed alone, so both sides get the same request; ids differ only in their digits."""

    def __init__(self, random, block):
        self.random, self.block = random, block

    def words(self, most=6):
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, most)))

    def id(self, kind):
        """An id as (whose, kind, number): an own one, one of somebody else, or one that no row has."""
        return (self.random.choice(("own", "own", "own", "high", "none")), kind, self.random.randint(0, 30))

    def page(self):
        return self.random.choice(("", "?limit=2", "?order=desc&limit=3", "?limit=1000"))

    def context(self):
        return self.random.choice(({}, {}, {"x-safety-mode": "careful"}, {"x-safety-mode": "strict"}, {"x-safety-mode": "none-such"}, {"x-collection-id": "hidden"}, {"x-collection-id": "notes"},
                                   {"idempotency-key": f"key-{self.random.randint(0, 4)}"}, {"x-tenant-id": HIGH}, {"x-user-id": "2"}))


def chat(ask):
    message = ask.random.choice((ask.words(), ask.words(), "my requests", "my todos", "who am I", "who is user 25", "my worktime", "create a request: " + ask.words(), "remember " + ask.words(),
                                 "What do you know about " + ask.words(2) + "?"))
    body = {"message": message, **ask.random.choice(({}, {}, {"conversation_id": ask.id("conversation")}, {"assistant": "of-the-others"}, {"debug": True}))}
    return None, body, {**ask.context(), **ask.random.choice(({}, {}, {"accept": "text/event-stream"}))}


def invoke(ask):
    tool, arguments = ask.random.choice((
        ("test_echo", {"value": ask.words()}), ("get_requests", {}), ("get_requests", {"userId": ask.random.randint(1, 60)}), ("get_requests", {"branchId": ask.random.randint(1, 2)}),
        ("get_todos", {"userId": ask.random.randint(1, 60)}), ("get_worktime", {"userId": ask.random.randint(1, 60)}), ("get_user_info", {"userId": ask.random.randint(1, 60)}),
        ("create_request", {"title": ask.words(), "responsibleId": ask.random.randint(1, 60)}), ("search_knowledge_base", {"query": ask.words()}), ("remember", {"content": ask.words()}),
        ("read_result", {"job_id": ask.id("call"), "offset": 0}), ("crm", {}), ("none_such", {})))
    return f"/api/tools/{tool}/invoke", {"input": arguments, **ask.random.choice(({}, {"conversation_id": ask.id("conversation")}))}, ask.context()


def mcp(ask):
    """A message of the Model Context Protocol without a session. What it calls and reads is what the other routes call and read."""
    version = "2026-07-28"
    method, params = ask.random.choice((
        ("tools/list", {}), ("resources/list", {}), ("resources/templates/list", {}),
        ("tools/call", {"name": "test_echo", "arguments": {"value": ask.words()}}),
        ("tools/call", {"name": "get_requests", "arguments": {"userId": ask.random.randint(1, 60)}}),
        ("tools/call", {"name": "search_knowledge_base", "arguments": {"query": ask.words()}}),
        ("resources/read", {"uri": f"werkruf://knowledge/{ask.random.choice(('default', 'hidden', 'notes'))}/d{ask.random.randint(0, 60)}"}),
        ("tasks/get", {"taskId": "00000000-0000-7000-8000-0000000000ff"})))
    meta = {"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, "mcp-method": method}
    name = params.get("name") or params.get("uri") or params.get("taskId")
    if name:
        headers["mcp-name"] = name
    return None, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers


def document(ask):
    return f"/api/knowledge/documents/d{ask.random.randint(0, 60)}?collection={ask.random.choice(('default', 'hidden', 'notes'))}", None, {}


def upload(ask):
    text = ask.words()
    parts = (("collection", "", ask.random.choice(("default", "hidden"))), ("file", f'; filename="{ask.random.choice(WORDS)}.txt"', text))
    body = "".join(f'--edge\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n' for name, more, value in parts) + "--edge--\r\n"
    return None, body.encode(), {"content-type": "multipart/form-data; boundary=edge"}


def import_rows(ask):
    number = ask.random.randint(70, 79)
    user = {"id": number, "first_name": ask.words(2), "last_name": "x", "email": f"{number}@x.example", "locale": "en-US", "branch_id": 1, "role_ids": [2]}
    return None, {"tenant": ask.random.choice((ask.block.tenant, HIGH, "none-such")), "users": [user]}, {}


def at(path, body=None):
    """A route with an id in its path, and perhaps a body."""
    kind = path.split("/")[2]
    kind = {"responses": "response", "chat": "turn", "conversations": "conversation", "tool-calls": "call", "turns": "turn", "approvals": "approval", "keys": "key"}.get(kind, kind)
    return lambda ask: ((path, ask.id(kind)), body(ask) if body else None, {})


def item(ask):
    return ("/v1/conversations/{id}/items/" + ask.random.choice(("msg_x", "msg_00000000000070008000000000000001_0")), ask.id("conversation")), None, {}


def listed(path, *filters):
    def make(ask):
        page = ask.page()
        if filters and ask.random.random() < 0.5:
            name, kind = ask.random.choice(filters)
            # A cursor is compared by its value, so ids of somebody else, which differ between the sides, would select other own rows.
            chosen = ask.id(kind)
            chosen = ("own", *chosen[1:]) if name == "after" and chosen[0] == "high" else chosen
            return (path + (page or "?limit=50") + f"&{name}={{id}}", chosen), None, {}
        return path + page, None, {}
    return make


def people(name):
    return lambda ask: (f"/api/people/{name}" + ask.random.choice(("", "?limit=2", "?order=desc&limit=3", f"?after={ask.random.randint(1, 60)}")), None, {})


ROUTES = {
    "POST /api/admin/backup": lambda ask: (None, {"path": "/nowhere/x.db"}, {}),
    "POST /api/admin/import": lambda ask: (None, {"from": "sqlite:/nowhere/x.db"}, {}),
    "POST /api/admin/reload": lambda ask: (None, None, {}),
    "GET /api/admin/tools": lambda ask: (None, None, {}),
    "POST /api/admin/tools/{name}/accept": lambda ask: ("/api/admin/tools/x_y/accept", None, {}),
    "GET /api/admin/status": lambda ask: (None, None, {}),
    "GET /api/admin/doctor": lambda ask: (None, None, {}),
    "GET /metrics": lambda ask: (None, None, {}),
    "POST /api/admin/secrets/rotate": lambda ask: (None, None, {}),
    "GET /api/audit": lambda ask: ("/api/audit" + ask.random.choice(("", "?limit=2", "?tenant=server", "?after=1")), None, {}),
    "GET /api/usage": lambda ask: ("/api/usage" + ask.random.choice(("", "?group_by=model", "?group_by=user&from=2026-01-01", "?from=x")), None, {}),
    "GET /api/usage/requests": listed("/api/usage/requests"),
    "GET /api/audit/verify": lambda ask: (None, None, {}),
    "POST /api/admin/retention": lambda ask: (None, {"dry_run": True}, {}),
    "GET /api/approvals": listed("/api/approvals", ("after", "approval")),
    "GET /api/approvals/{id}": at("/api/approvals/{id}"),
    "POST /api/approvals/{id}": at("/api/approvals/{id}", lambda ask: {"decision": ask.random.choice(("approve", "deny"))}),
    "GET /api/alerts": listed("/api/alerts", ("after", "alert")),
    "GET /api/outbox": listed("/api/outbox", ("after", "outbox")),
    "GET /api/outbox/{id}": at("/api/outbox/{id}"),
    "POST /api/outbox/{id}/retry": at("/api/outbox/{id}/retry"),
    "POST /api/outbox/{id}/release": at("/api/outbox/{id}/release"),
    "POST /api/outbox/release": lambda ask: (None, None, {}),
    "POST /api/chat": chat,
    "POST /functions/v1/chat-rag": chat,
    "GET /api/conversations": listed("/api/conversations", ("after", "conversation")),
    "POST /api/conversations": lambda ask: (None, {"format": "openai", "title": ask.words(2), "messages": [{"role": "user", "content": ask.words()}, {"role": "assistant", "content": "ok"}]}, {}),
    "GET /api/conversations/{id}": at("/api/conversations/{id}"),
    "DELETE /api/conversations/{id}": at("/api/conversations/{id}"),
    "GET /api/conversations/{id}/events": at("/api/conversations/{id}/events"),
    "GET /api/conversations/{id}/messages": at("/api/conversations/{id}/messages"),
    "GET /api/conversations/{id}/state": at("/api/conversations/{id}/state"),
    "PATCH /api/conversations/{id}/state": at("/api/conversations/{id}/state", lambda ask: {ask.random.choice(WORDS): ask.words()}),
    "GET /api/budgets": lambda ask: (None, None, {}),
    "POST /api/budgets": lambda ask: (None, {"scope": ask.random.choice(("tenant", "user")), "period": "day", "unit": ask.random.choice(("tokens", "model_calls")), "limit": ask.random.randint(0, 10**9),
                                             "tenant": ask.random.choice((ask.block.tenant, HIGH, "none-such"))}, {}),
    "DELETE /api/budgets/{id}": at("/api/budgets/{id}"),
    "GET /api/keys": lambda ask: ("/api/keys" + ask.page(), None, {}),
    "POST /api/keys": lambda ask: (None, {"user_id": str(ask.random.choice((2, 3, LOW, 44))), "scopes": ["read"], "tenant": ask.random.choice((ask.block.tenant, HIGH, "none-such"))}, {}),
    "DELETE /api/keys/{id}": at("/api/keys/{id}"),
    "POST /api/keys/{id}/rotate": at("/api/keys/{id}/rotate", lambda ask: {}),
    "GET /api/knowledge/collections": lambda ask: (None, None, {}),
    "GET /api/knowledge/collections/{name}": lambda ask: (f"/api/knowledge/collections/{ask.random.choice(('default', 'hidden', 'notes', 'none'))}", None, {}),
    "GET /api/knowledge/collections/{name}/rights": lambda ask: (f"/api/knowledge/collections/{ask.random.choice(('default', 'hidden', 'notes'))}/rights", None, {}),
    "PUT /api/knowledge/collections/{name}/rights": lambda ask: (f"/api/knowledge/collections/{ask.random.choice(('default', 'hidden'))}/rights", {"read": ["*"], "write": []}, {}),
    "GET /api/knowledge/documents": lambda ask: (f"/api/knowledge/documents?collection={ask.random.choice(('default', 'hidden', 'notes'))}&limit={ask.random.choice((2, 100))}", None, {}),
    "POST /api/knowledge/documents": lambda ask: (None, {"collection": ask.random.choice(("default", "hidden", "notes")), "documents": [
        {"id": f"d{ask.random.randint(0, 20)}", "title": ask.words(2), "text": ask.words()}]}, {}),
    "GET /api/knowledge/documents/{id}": document,
    "DELETE /api/knowledge/documents/{id}": document,
    "POST /api/knowledge/files": upload,
    "POST /api/knowledge/search": lambda ask: (None, {"query": ask.words(3), "top_k": 5, "collection": ask.random.choice(("default", "default", "hidden", "notes"))}, {}),
    "GET /api/people/users": people("users"),
    "POST /api/people/users": lambda ask: (None, {"first_name": ask.words(2), "last_name": "x", "locale": "en-US", **ask.random.choice(({}, {"id": ask.random.randint(1, 90)}))}, {}),
    "GET /api/people/users/{id}": lambda ask: (f"/api/people/users/{ask.random.randint(1, 90)}", None, {}),
    "PATCH /api/people/users/{id}": lambda ask: (f"/api/people/users/{ask.random.randint(70, 90)}", {"last_name": ask.words(2), "active": ask.random.choice((True, False))}, {}),
    "DELETE /api/people/users/{id}": lambda ask: (f"/api/people/users/{ask.random.randint(70, 90)}", None, {}),
    "PUT /api/people/users/{id}/roles": lambda ask: (f"/api/people/users/{ask.random.randint(70, 90)}/roles", {"role_ids": [ask.random.randint(1, 12)]}, {}),
    "GET /api/people/users/{id}/may/{tool}": lambda ask: (f"/api/people/users/{ask.random.randint(1, 90)}/may/{ask.random.choice(('get_requests', 'get_user_info', 'crm', 'none'))}"
                                                          + ask.random.choice(("", f"?user_id={ask.random.randint(1, 60)}")), None, {}),
    "GET /api/people/roles": people("roles"),
    "POST /api/people/roles": lambda ask: (None, {"name": ask.words(2), "permissions": []}, {}),
    "GET /api/people/roles/{id}": lambda ask: (f"/api/people/roles/{ask.random.randint(1, 12)}", None, {}),
    "PATCH /api/people/roles/{id}": lambda ask: (f"/api/people/roles/{ask.random.randint(5, 12)}", {"name": ask.words(2)}, {}),
    "DELETE /api/people/roles/{id}": lambda ask: (f"/api/people/roles/{ask.random.randint(1, 12)}", None, {}),
    "PUT /api/people/roles/{id}/permissions": lambda ask: (f"/api/people/roles/{ask.random.randint(5, 12)}/permissions", [], {}),
    "GET /api/people/branches": people("branches"),
    "POST /api/people/branches": lambda ask: (None, {"name": ask.words(2), "time_zone": "UTC"}, {}),
    "GET /api/people/branches/{id}": lambda ask: (f"/api/people/branches/{ask.random.randint(1, 9)}", None, {}),
    "PATCH /api/people/branches/{id}": lambda ask: (f"/api/people/branches/{ask.random.randint(3, 9)}", {"name": ask.words(2)}, {}),
    "DELETE /api/people/branches/{id}": lambda ask: (f"/api/people/branches/{ask.random.randint(1, 9)}", None, {}),
    "POST /api/people/users/{id}/erase": lambda ask: (f"/api/people/users/{ask.random.randint(70, 90)}/erase", {"cancel": True}, {}),
    "GET /api/tool-calls": listed("/api/tool-calls", ("conversation_id", "conversation"), ("turn_id", "turn"), ("after", "call")),
    "GET /api/tool-calls/{id}": at("/api/tool-calls/{id}"),
    "POST /api/tool-calls/{id}/cancel": at("/api/tool-calls/{id}/cancel"),
    "GET /api/tool-calls/{id}/explain": at("/api/tool-calls/{id}/explain"),
    "POST /api/tool-calls/{id}/retry": at("/api/tool-calls/{id}/retry", lambda ask: {"force": True}),
    "GET /api/tools": lambda ask: (None, None, {}),
    "GET /api/tools/{name}": lambda ask: (f"/api/tools/{ask.random.choice(('test_echo', 'crm', 'none'))}", None, {}),
    "POST /api/tools/{name}/invoke": invoke,
    "POST /mcp": mcp,
    "GET /api/turns/{id}": at("/api/turns/{id}"),
    "POST /api/turns/{id}/cancel": at("/api/turns/{id}/cancel"),
    "GET /api/turns/{id}/timeline": at("/api/turns/{id}/timeline"),
    "GET /api/connections": lambda ask: (None, None, {}),
    "POST /api/connections": lambda ask: (None, {"server": ask.words(1)}, {}),
    "DELETE /api/connections/{server}": lambda ask: ("/api/connections/calendar", None, {}),
    "GET /api/console/session": lambda ask: (None, None, {}),
    "DELETE /api/console/session": lambda ask: (None, None, {}),
    "POST /api/console/links": lambda ask: (None, None, {}),
    "POST /api/workspace/import": import_rows,
    "POST /functions/v1/amadeus-flight-search": lambda ask: (None, {"origin": "FRA", "destination": "JFK"}, {}),
    "POST /functions/v1/seatsaero-flight-search": lambda ask: (None, {"origin": "FRA"}, {}),
    "POST /v1/chat/completions": lambda ask: (None, {"model": "default", "messages": [{"role": "user", "content": ask.words()}]}, ask.context()),
    "GET /v1/models": lambda ask: (None, None, {}),
    "GET /v1/models/{id}": lambda ask: (f"/v1/models/{ask.random.choice(('default', 'of-the-others', 'none'))}", None, {}),
    "POST /v1/responses": lambda ask: (None, {"model": "default", "input": ask.words(), **ask.random.choice(({}, {"previous_response_id": ask.id("response")}))}, ask.context()),
    "POST /v1/responses/compact": lambda ask: (None, {"model": "default", "input": ask.words(), **ask.random.choice(({}, {"previous_response_id": ask.id("response")}))}, {}),
    "POST /v1/responses/input_tokens": lambda ask: (None, {"model": "default", "input": ask.words(), **ask.random.choice(({}, {"conversation": ask.id("conversation")}))}, {}),
    "GET /v1/chat/completions/{id}": at("/v1/chat/completions/{id}"),
    "POST /v1/embeddings": lambda ask: (None, {"model": "e", "input": ask.words()}, {}),
    "POST /v1/conversations": lambda ask: (None, {"items": [{"role": "user", "content": ask.words()}], "metadata": {"topic": ask.words(1)}}, {}),
    "GET /v1/conversations/{id}": at("/v1/conversations/{id}"),
    "POST /v1/conversations/{id}": at("/v1/conversations/{id}", lambda ask: {"metadata": {"topic": ask.words(1)}}),
    "DELETE /v1/conversations/{id}": at("/v1/conversations/{id}"),
    "GET /v1/conversations/{id}/items": at("/v1/conversations/{id}/items"),
    "POST /v1/conversations/{id}/items": at("/v1/conversations/{id}/items", lambda ask: {"items": [{"role": "user", "content": ask.words()}]}),
    "GET /v1/conversations/{id}/items/{item_id}": item,
    "DELETE /v1/conversations/{id}/items/{item_id}": item,
    "GET /v1/responses/{id}": at("/v1/responses/{id}"),
    "DELETE /v1/responses/{id}": at("/v1/responses/{id}"),
    "POST /v1/responses/{id}/cancel": at("/v1/responses/{id}/cancel"),
    "GET /v1/responses/{id}/input_items": at("/v1/responses/{id}/input_items"),
}
# Requests that make rows come more often, so that later ones have something to find.
OFTEN = ("POST /api/chat", "POST /api/tools/{name}/invoke", "POST /api/knowledge/search", "POST /v1/responses", "GET /api/conversations", "GET /api/tool-calls", "GET /api/approvals")


def check_all_routes():
    """Every route of the server is asked or exempt, and nothing else is listed."""
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    described = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    missing, stale = described - set(ROUTES) - set(EXEMPT), (set(ROUTES) | set(EXEMPT)) - described
    assert not missing, f"routes that no sequence asks; add them to ROUTES or, with a reason, to EXEMPT: {sorted(missing)}"
    assert not stale, f"no routes of the server: {sorted(stale)}"


def ask_low(random, block):
    """(method, path, body, headers) with ids as (whose, kind, number)."""
    route = random.choice(OFTEN) if random.random() < 0.4 else random.choice(list(ROUTES))
    method, default = route.split(" ", 1)
    path, body, headers = ROUTES[route](Ask(random, block))
    return method, path or default, body, headers
