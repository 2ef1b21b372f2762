"""Attacks on what belongs to others: ids, tenants, names, collections, administration."""
import json
import pathlib
import urllib.parse
import uuid

from world import OTHER

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUTES = [(method.upper(), path) for path, methods in json.loads((ROOT / "docs/openapi.json").read_text())["paths"].items() for method in methods]
ALL = ("chat", "tools", "read", "approve")
# The refusals that do not tell whether something exists.
HIDDEN = (400, 403, 404, 405)


def bodies(path):
    """A body that the route would accept."""
    return {"/api/approvals/{id}": {"decision": "approve"}, "/api/tools/{name}/invoke": {"input": {}}, "/api/knowledge/search": {"query": "office"},
            "/api/keys": {"scopes": ["admin"]}, "/api/workspace/import": {"tenant": "demo", "users": []}, "/api/admin/import": {"from": "sqlite:/etc/passwd"},
            "/api/admin/backup": {"path": "/tmp/stolen.db"}, "/api/knowledge/collections/{name}/rights": {"read": ["*"], "write": ["*"]},
            "/api/knowledge/documents": {"title": "t", "text": "x"}, "/api/conversations/{id}/state": {"a": 1}, "/api/people/users/{id}/erase": {}}.get(path, {})


def attack_ids_of_others_on_every_route(world):
    """Every id of every other person, on every route with an id, also where it is an id of another kind."""
    for tenant, victim in world.victims.items():
        for kind, value in victim.items():
            if kind == "secret":
                continue
            guest, other = world.guest(ALL), world.guest(ALL)
            for method, path in ROUTES:
                if "{id}" not in path:
                    continue
                answer = guest.send(method, path.replace("{id}", value), bodies(path) if method != "GET" else None)
                assert answer.status in HIDDEN, answer
                if answer.status == 404:
                    continue
                # Not 404: then an id that does not exist gets the same answer.
                missing = other.send(method, path.replace("{id}", str(uuid.uuid4())), bodies(path) if method != "GET" else None)
                assert missing.status == answer.status, (tenant, kind, answer, missing)


def attack_names_of_others_in_bodies_and_headers(world):
    for tenant, victim in world.victims.items():
        guest = world.guest(ALL)
        conversation = victim["conversation"]
        for answer in (guest.chat("hi", conversation), guest.send("POST", "/api/chat", {"message": "hi", "chatId": conversation}),
                       guest.send("POST", "/functions/v1/chat-rag", {"message": "hi", "conversation_id": conversation}),
                       guest.invoke("test_echo", {"value": 1}, conversation_id=conversation),
                       guest.send("POST", "/v1/chat/completions", {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}, {"x-conversation-id": conversation}),
                       guest.send("POST", "/v1/responses", {"model": "fake", "input": "hi", "conversation": conversation}),
                       guest.send("POST", "/v1/responses", {"model": "fake", "input": "hi", "previous_response_id": victim["response"]})):
            assert answer.status in (400, 404), answer
        for query in (f"conversation_id={conversation}", f"turn_id={victim['turn']}"):
            answer = guest.send("GET", f"/api/tool-calls?{query}")
            assert answer.status == 404 or answer.json["tool_calls"] == [], answer
        answer = guest.send("GET", "/api/conversations?user_id=3")
        assert answer.status in (403, 404) or answer.json["conversations"] == [], answer
        for listed in ("conversations", "tool-calls", "approvals"):
            for after in (victim["conversation"], victim["call"], victim["approval"]):
                guest.send("GET", f"/api/{listed}?after={after}")


def attack_another_tenant_or_user_by_header(world):
    guest = world.guest(ALL)
    own = guest.chat("hi").json["conversation_id"]
    for headers in ({"x-tenant-id": OTHER}, {"x-user-id": "3"}, {"x-user-id": "ext:ana-demo"}, {"x-tenant-id": OTHER, "x-user-id": "1"}, {"x-tenant-id": "' OR 1=1 --"}):
        for path in ("/api/conversations", "/api/tool-calls", "/api/approvals", "/api/tools", "/api/knowledge/collections"):
            answer = guest.send("GET", path, headers=headers)
            assert answer.status in (200, 400, 403, 404), answer
        answer = guest.send("GET", f"/api/conversations/{world.victims[OTHER]['conversation']}", headers=headers)
        assert answer.status in (400, 403, 404), answer
        answer = guest.chat("hi", own, headers)
        assert answer.status in (200, 400, 403, 404), answer


def attack_keys_of_idempotency_of_others(world):
    guest = world.guest(ALL)
    for key in ("shared-key", "shared-call"):
        chat = guest.chat("hi", headers={"idempotency-key": key})
        assert chat.status == 200 and "idempotent-replayed" not in chat.headers, chat
        call = guest.invoke("test_echo", {"value": "mine"}, {"idempotency-key": key + "-call"})
        assert call.status == 200 and call.json["data"] == "mine" or "mine" in call.raw.decode(), call
    assert guest.chat("other words", headers={"idempotency-key": "shared-key"}).status == 422


def attack_tools_of_another_tenant(world):
    guest = world.guest(ALL)
    for name in ("crm_other", "pay_other"):
        assert guest.send("GET", f"/api/tools/{name}").status == 404
        answer = guest.invoke(name)
        assert (answer.status, answer.code) == (404, "unknown_tool"), answer
        answer = guest.chat(f"!call {name} {{}}")
        assert answer.status == 200 and [result["status"] for result in answer.json["tool_results"]] in ([], ["failed"]), answer
        guest.send("POST", "/v1/chat/completions", {"model": "fake", "messages": [{"role": "user", "content": f"!call {name} {{}}"}]}, {"x-werkruf-tools": name})
        guest.send("POST", "/v1/responses", {"model": "fake", "input": f"!call {name} {{}}"}, {"x-werkruf-tools": name})
    listed = guest.send("GET", "/api/tools").json["tools"]
    assert not any("other" in tool["name"] for tool in listed), listed
    assert not any("other" in tool["function"]["name"] for request in world.model.requests[world.seen:] for tool in request.get("tools", [])), "the model was offered them"
    assert not world.upstream.paths("/crm") and not world.upstream.paths("/pay-other")


def attack_tools_without_the_right(world):
    guest = world.guest(ALL)
    assert guest.invoke("staff_only").json["error"]["code"] == "permission_denied"
    for tool, arguments in (("get_requests", {"userId": 3}), ("get_requests", {"branchId": 1}), ("get_todos", {"userId": 3}), ("get_worktime", {"userId": 3}),
                            ("get_user_info", {"userId": 3}), ("get_user_info", {"userId": 1}), ("create_request", {"title": "x", "responsibleId": 3}), ("get_cerebro_articles", {"query": "work"})):
        answer = guest.invoke(tool, arguments)
        assert answer.status in (200, 202), answer
        if tool != "get_cerebro_articles" and answer.status == 200:
            assert answer.json["status"] == "error" or answer.json["data"].get("items") == [], answer
    assert not world.upstream.paths("/staff")


def attack_a_hidden_collection(world):
    guest = world.guest(ALL)
    for name in ("hr-secret", "HR-SECRET", "hr-secret ", "./hr-secret", "hr-secret%00"):
        quoted = urllib.parse.quote(name, safe="%")
        for method, path, body in (("POST", "/api/knowledge/search", {"query": "salary office", "collection": name}), ("GET", f"/api/knowledge/documents?collection={quoted}", None),
                                   ("GET", f"/api/knowledge/documents/pay?collection={quoted}", None), ("DELETE", f"/api/knowledge/documents/pay?collection={quoted}", None),
                                   ("GET", f"/api/knowledge/collections/{quoted}", None),
                                   ("POST", "/api/knowledge/documents", {"collection": name, "documents": [{"id": "pay", "title": "t", "text": "x"}]})):
            answer = guest.send(method, path, body)
            assert answer.status in (400, 403, 404), answer
            if name == "hr-secret":
                missing = guest.send(method, path.replace(name, "none-such"), body and {**body, "collection": "none-such"})
                assert (missing.status, missing.code) == (answer.status, answer.code), (answer, missing)
    found = guest.send("GET", "/api/knowledge/collections").json
    assert "hr-secret" not in json.dumps(found), found
    tool = guest.invoke("search_knowledge_base", {"query": "salary office"}, {"x-collection-id": "hr-secret"})
    assert tool.status in (400, 404) or tool.json["data"]["sources"] == [], tool
    chat = guest.chat('!call search_knowledge_base {"query": "salary office", "collection": "hr-secret"}', headers={"x-collection-id": "hr-secret"})
    assert chat.status in (200, 400, 404), chat
    boundary = "b" * 20
    upload = (f'--{boundary}\r\nContent-Disposition: form-data; name="collection"\r\n\r\nhr-secret\r\n--{boundary}\r\nContent-Disposition: form-data; name="file"; '
              f'filename="../../x.txt"\r\nContent-Type: text/plain\r\n\r\nplanted\r\n--{boundary}--\r\n').encode()
    answer = guest.send("POST", "/api/knowledge/files", upload, {"content-type": f"multipart/form-data; boundary={boundary}"})
    assert answer.status in (403, 404), answer


def attack_administration(world):
    guest = world.guest(ALL)
    admin = [(method, path) for method, path in ROUTES if "/admin/" in path or path.startswith(("/api/keys", "/api/people", "/api/workspace", "/api/audit")) or path.endswith("/rights")]
    admin += [("GET", "/metrics"), ("GET", "/api/audit"), ("GET", "/api/usage/requests"), ("GET", "/api/outbox"), ("POST", "/api/console/links"), ("GET", "/api/budgets"),
              ("PUT", "/api/knowledge/collections/hr-secret/rights")]
    for method, path in admin:
        real = path.replace("{id}", world.victims["demo"]["key"] if "keys" in path else "3").replace("{name}", "hr-secret")
        answer = guest.send(method, real, bodies(path) if method != "GET" else None)
        assert answer.status in (403, 404, 405), answer
    assert not pathlib.Path("/tmp/stolen.db").exists()
    # A person sees what their own requests used, and nothing of others.
    answer = guest.send("GET", "/api/usage?group_by=user&from=2000-01-01", None)
    assert answer.status == 200 and len(answer.json["rows"]) <= 1, answer


def attack_the_server_as_admin_of_a_tenant(world):
    """Scope admin is for one tenant: not the server, not another tenant."""
    guest = world.guest(("admin",))
    for path in ("/api/admin/reload", "/api/admin/backup", "/api/admin/import", "/api/admin/retention"):
        answer = guest.send("POST", path, bodies(path))
        assert answer.status == 403, answer
    victim = world.victims[OTHER]
    guest.key = world.operator("POST", "/api/keys", {"tenant": "demo", "scopes": ["admin"]})["key"]
    for answer in (guest.send("DELETE", f"/api/keys/{victim['key']}"), guest.send("POST", f"/api/keys/{victim['key']}/rotate", {}),
                   guest.send("GET", f"/api/conversations/{victim['conversation']}"), guest.send("POST", f"/api/approvals/{victim['approval']}", {"decision": "approve"}),
                   guest.send("GET", f"/api/tool-calls/{victim['call']}"), guest.send("POST", f"/api/tool-calls/{victim['waiting']}/cancel", {})):
        assert answer.status == 404, answer
    answer = guest.send("POST", "/api/workspace/import", {"tenant": OTHER, "users": []})
    assert answer.status in (403, 404, 422), answer
    answer = guest.send("POST", "/api/keys", {"tenant": OTHER, "user_id": "3", "scopes": ["chat"]})
    assert answer.status in (403, 404), answer


def attack_calls_and_turns_of_others(world):
    guest = world.guest(ALL)
    for victim in world.victims.values():
        for path in (f"tool-calls/{victim['call']}/retry", f"tool-calls/{victim['call']}/cancel", f"tool-calls/{victim['waiting']}/cancel", f"turns/{victim['turn']}/cancel"):
            assert guest.send("POST", f"/api/{path}", {"force": True}).status == 404
    for victim in world.victims.values():
        [row] = world.server.rows("SELECT status FROM tool_calls WHERE id = ?", victim["waiting"])
        assert row["status"] == "queued", row


def attack_paths_that_leave_their_folder(world):
    names = ["..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/keys", "..;/api/keys", "%00", "a%0d%0ab", "%ff%fe", "%e2%80%ae", "con", "." * 3000, "%252e%252e"]
    for name in names:
        guest = world.guest(ALL)
        for path in (f"/api/tools/{name}", f"/api/knowledge/documents/{name}", f"/api/knowledge/collections/{name}", f"/api/conversations/{name}", f"/v1/models/{name}",
                     f"/v1/responses/{name}", f"/api/{name}", f"/console/{name}", f"/{name}", f"/docs/{name}"):
            answer = guest.send("GET", path)
            assert answer.status in (301, 303, 307, 308, 400, 404, 405, 414), answer


def attack_ids_with_sql(world):
    for text in ("' OR '1'='1", "1; DROP TABLE users; --", "%", "_", "x' UNION SELECT content FROM messages --", '" OR ""="', "\\", "$1", "?1", ":id", "00000000-0000-0000-0000-000000000000'"):
        guest = world.guest(ALL)
        quoted = urllib.parse.quote(text, safe="")
        for method, path in ROUTES:
            if "{" in path:
                answer = guest.send(method, path.replace("{id}", quoted).replace("{name}", quoted), bodies(path) if method != "GET" else None)
                assert answer.status in HIDDEN, answer
        for path in (f"/api/tool-calls?conversation_id={quoted}", f"/api/tool-calls?tool={quoted}", f"/api/tool-calls?status={quoted}", f"/api/approvals?status={quoted}",
                     f"/api/conversations?user_id={quoted}", f"/api/knowledge/documents?collection={quoted}"):
            answer = guest.send("GET", path)
            assert answer.status in (400, 403, 404) or all(value in ([], None) for value in answer.json.values()), answer
    assert world.server.rows("SELECT count(*) AS n FROM users")[0]["n"] > 6


def attack_text_that_databases_dislike(world):
    """NUL, lone surrogates, and numbers beyond every type, in every text that is stored."""
    guest = world.guest(ALL)
    conversation = guest.chat("hi").json["conversation_id"]
    for value in ("\u0000", "a\u0000b", "\ud800", "\ufffe\uffff", "\u202e" * 100):
        text = json.dumps(value).encode()
        for method, path, body in (("POST", "/api/chat", b'{"message": %s}'), ("PATCH", f"/api/conversations/{conversation}/state", b'{"x": %s}'),
                                   ("PATCH", f"/api/conversations/{conversation}/state", b'{%s: 1}'), ("POST", "/api/tools/test_echo/invoke", b'{"input": {"value": %s}}'),
                                   ("POST", "/v1/chat/completions", b'{"model": "fake", "messages": [{"role": "user", "content": %s}]}'),
                                   ("POST", "/v1/chat/completions", b'{"model": %s, "messages": [{"role": "user", "content": "x"}]}'),
                                   ("POST", "/v1/responses", b'{"model": "fake", "input": %s}'), ("POST", "/v1/responses", b'{"model": "fake", "input": "x", "metadata": {"k": %s}}'),
                                   ("POST", "/api/conversations", b'{"format": "openai", "title": %s, "messages": [{"role": "user", "content": "x"}]}'),
                                   ("POST", "/api/conversations", b'{"format": "openai", "messages": [{"role": "user", "content": %s}]}'),
                                   ("POST", "/api/knowledge/search", b'{"query": %s}'), ("POST", "/api/knowledge/search", b'{"query": "x", "collection": %s}')):
            answer = guest.send(method, path, body % text)
            assert answer.status in (200, 201, 400, 404, 409, 422), answer
    guest = world.guest(ALL)
    for number in (b"1e999999", b"-0", b"123456789012345678901234567890", b"0.1e-400", b"NaN"):
        answer = guest.send("POST", "/api/tools/test_echo/invoke", b'{"input": {"value": %s}}' % number)
        assert answer.status in (200, 400), answer
