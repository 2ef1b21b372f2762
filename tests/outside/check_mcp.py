"""The server of the Model Context Protocol at /mcp: both eras, rights, records, approvals, and requests that are sent again."""
import json
import select
import socket
import threading
import time

from fakes import calls, text
from mcp_client import NEW, OLD, Client, Refused, Rpc, key_of
from server import Server, until, with_model_and_tool

PAY = """
[[tools]]
name = "pay"
description = "Pays."
kind = "http"
url = "{url}/pay"
effect = "once"
permission = "none"
APPROVAL
parameters = '''{{"type": "object", "properties": {{"amount": {{"type": "integer"}}}}, "required": ["amount"]}}'''
"""
BOTH = (OLD, NEW)
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def raised(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def pay(approval="", env=None, answer=None):
    answer = answer or (lambda request, number: (200, {"paid": request["body"]["arguments"]["amount"]}, {}))
    return with_model_and_tool(PAY.replace("APPROVAL", approval), answer, env)


def check_mcp_lists_tools_in_a_fixed_order_with_schemas_and_effects():
    with pay('approval = "lead"') as (_, _, server):
        lists = [Client(server, version).request("tools/list")["tools"] for version in BOTH]
        assert lists[0] == lists[1]
        names = [tool["name"] for tool in lists[0]]
        _, known, _ = server.call("GET", "/api/tools")
        assert names == sorted(tool["name"] for tool in known["tools"]), names
        by_name = {tool["name"]: tool for tool in lists[0]}
        assert by_name["get_requests"]["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
        assert by_name["pay"]["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
        assert by_name["pay"]["inputSchema"]["required"] == ["amount"] and "outputSchema" not in by_name["pay"]
        output = by_name["get_requests"]["outputSchema"]
        assert output["type"] == "object" and set(output["required"]) == {"items", "count", "truncated", "message"}, output
        waiting = by_name["create_request"]["outputSchema"]["anyOf"][1]
        assert waiting["required"] == ["status", "approval_id", "job_id", "message"], waiting
        # Rights hide nothing, and the scope hides everything.
        assert Client(server, key=key_of(server, 5, "tools")).request("tools/list")["tools"] == lists[1]
        assert Client(server, key=key_of(server, 1, "read")).request("tools/list")["tools"] == []


def check_mcp_calls_pass_the_pipeline_and_are_recorded_like_invoke():
    server = Server()
    try:
        _, invoked, _ = server.call("POST", "/api/tools/get_todos/invoke", {"input": {}}, user=3)
        for version in BOTH:
            client = Client(server, version, user=3)
            called = client.call("get_todos")
            assert called["structuredContent"] == invoked["data"] and not called.get("isError"), called
            assert json.loads(called["content"][0]["text"]) == invoked["data"]
        first, *others = server.rows("SELECT t.kind, c.tool_name, c.status, c.effect, c.attempt, c.kind AS call_kind, c.runner, c.permission FROM tool_calls c JOIN turns t ON t.id = c.turn_id ORDER BY c.created_at")
        assert others == [first, first], (first, others)
        # What fails is a result of the tool; what does not exist is an error of the protocol.
        for version in BOTH:
            client = Client(server, version, user=3)
            failed = client.call("get_todos", {"dueDate": "never"})
            assert failed["isError"] and failed["_meta"]["werkruf/error"]["type"] == "VALIDATION", failed
            assert raised(Rpc, lambda: client.call("no_such_tool")).error["code"] == -32602
            assert raised(Rpc, lambda: client.request("no/such/method")).error["code"] == -32601
    finally:
        server.close()


def check_mcp_refuses_what_the_person_or_the_key_may_not():
    server = Server()
    try:
        guest = key_of(server, 5, "tools", "read")
        for version in BOTH:
            refused = Client(server, version, key=guest).call("get_requests")
            assert refused["isError"] and refused["_meta"]["werkruf/error"]["code"] == "permission_denied", refused
            assert "structuredContent" not in refused and "items" not in refused["content"][0]["text"], refused
            assert json.loads(refused["content"][0]["text"])["error"] == refused["_meta"]["werkruf/error"], refused
        rows = server.rows("SELECT status, error_type, error_code FROM tool_calls")
        assert rows == [{"status": "failed", "error_type": "FATAL", "error_code": "permission_denied"}] * 2, rows
        reader = Client(server, key=key_of(server, 1, "read")).call("get_requests")
        assert reader["_meta"]["werkruf/error"]["code"] == "forbidden", reader
        nobody = Client(server, user=None).call("get_requests")
        assert nobody["_meta"]["werkruf/error"]["code"] == "user_required", nobody
        assert len(server.rows("SELECT id FROM tool_calls")) == 2
        assert raised(Refused, lambda: Client(server, key=None).request("tools/list")).status == 401
        approver = raised(Refused, lambda: Client(server, key=key_of(server, 1, "approve")).request("tools/list"))
        assert (approver.status, approver.body["error"]["code"]) == (403, "forbidden")
        # A session belongs to the credential and the person that opened it.
        own = Client(server, OLD, user=1)
        other = Client(server, OLD, user=2)
        other.session = own.session
        stolen = raised(Refused, lambda: other.request("tools/list"))
        assert (stolen.status, stolen.body["error"]["code"]) == (404, "not_found"), stolen.body
        assert own.receive(own.send(None, "DELETE")) == []
        assert raised(Refused, lambda: own.request("tools/list")).status == 404
        # Names that were made to point here, and pages of strangers.
        for headers in ({"host": "evil.example.com"}, {"origin": "http://evil.example.com"}):
            for version in BOTH:
                assert raised(Refused, lambda: Client(server, version, headers=headers).request("tools/list")).status == 403
        assert Client(server, headers={"host": "localhost:1", "origin": "http://localhost:5173"}).request("tools/list")["tools"]
    finally:
        server.close()


def check_mcp_progress_reaches_the_client_and_the_chat():
    with with_model_and_tool("", lambda request, number: (200, {}, {})) as (model, _, server):
        for version in BOTH:
            messages = Client(server, version).exchange("tools/call", {"name": "test_tool_with_progress", "arguments": {}}, {"progressToken": "p1"})
            reports = [m["params"] for m in messages if m.get("method") == "notifications/progress"]
            assert [(r["progressToken"], r["progress"], r["total"], r["message"]) for r in reports] == [
                ("p1", 0, 100, "started"), ("p1", 50, 100, "half done"), ("p1", 100, 100, "done")], messages
            assert messages[-1]["result"]["structuredContent"] == {"text": "done"}, messages
            silent = Client(server, version).exchange("tools/call", {"name": "test_tool_with_progress", "arguments": {}})
            assert [m for m in silent if "method" in m] == [], silent
        model.script = [calls(("test_tool_with_progress", {})), text("Done.")]
        received = server.stream("Go")
        job = next(data["job_id"] for _, name, data in received if name == "tool_started")
        reports = [(number, data) for number, name, data in received if name == "tool_progress"]
        assert reports == [(None, {"tool": "test_tool_with_progress", "job_id": job, "progress": done, "total": 100.0, "message": message})
                           for done, message in ((0.0, "started"), (50.0, "half done"), (100.0, "done"))], received
        numbers = [number for number, _, _ in received if number]
        assert numbers == list(range(1, len(numbers) + 1)), received


def check_mcp_calls_are_canceled_by_a_notification_or_a_closed_stream():
    server = Server()
    try:
        def one(status):
            return until(lambda: server.rows("SELECT id FROM tool_calls WHERE tool_name = 'test_sleep' AND status = ?", status), 30, status)
        client = Client(server, OLD)
        connection, number = client.start("test_sleep", {"ms": 25000})
        one("running")
        client.notify("notifications/cancelled", {"requestId": number, "reason": "enough"})
        one("canceled")
        connection.close()
        # In the new era a closed stream cancels what only reads, unless the request comes again.
        connection, _ = Client(server, NEW).start("test_sleep", {"ms": 25001})
        until(lambda: server.rows("SELECT id FROM tool_calls WHERE status = 'running'"), what="running")
        connection.sock.close()
        connection.close()
        until(lambda: len(server.rows("SELECT id FROM tool_calls WHERE status = 'canceled'")) == 2, 20, "the cancel")
        connection, _ = Client(server, NEW).start("test_sleep", {"ms": 14000})
        until(lambda: server.rows("SELECT id FROM tool_calls WHERE status = 'running'"), what="running")
        connection.close()
        again = Client(server, NEW).call("test_sleep", {"ms": 14000})
        assert again["structuredContent"] == {"slept_ms": 14000}, again
    finally:
        server.close()


def check_mcp_a_once_call_that_was_sent_goes_on_when_its_request_is_canceled():
    paid = threading.Event()

    def answer(request, number):
        paid.wait(30)
        return 200, {"paid": request["body"]["arguments"]["amount"]}, {}

    with pay(answer=answer) as (_, tool, server):
        session, key = Client(server, OLD), {"werkruf/idempotency-key": "once"}
        requests = [session.start("pay", {"amount": 1}, key)]
        until(lambda: len(tool.requests) == 1, what="the request")
        # A second request joins the call, and is canceled too.
        requests.append(session.start("pay", {"amount": 1}, key))
        other, _ = Client(server, NEW).start("pay", {"amount": 2})
        until(lambda: len(tool.requests) == 2, what="the other request")
        other.sock.close()
        other.close()
        for _, number in requests:
            session.notify("notifications/cancelled", {"requestId": number})
        assert session.request("tools/list")["tools"]
        paid.set()
        rows = until(lambda: (rows := server.rows("SELECT status, response FROM tool_calls ORDER BY created_at")) and all(row["status"] != "running" for row in rows) and rows, what="the ends")
        assert [(row["status"], json.loads(row["response"])) for row in rows] == [("succeeded", {"paid": 1}), ("succeeded", {"paid": 2})], rows
        assert len(tool.requests) == 2
        for connection, _ in requests:
            connection.close()


def check_mcp_answers_that_a_session_keeps_count_in_the_byte_budget():
    server = Server(None, "[limits]\nbytes_in_flight = 2000000\n")
    try:
        for user, method, params in ((3, "resources/read", {"uri": "werkruf://calls/JOB"}), (4, "tasks/get", {"taskId": "JOB"})):
            key = key_of(server, user, "tools", "read")
            assert server.call("POST", "/api/tools/test_bytes/invoke", {"input": {"n": 300000}}, key=key)[0] == 200
            job = server.rows("SELECT id FROM tool_calls ORDER BY created_at DESC")[0]["id"]
            params = {name: value.replace("JOB", job) for name, value in params.items()}
            client = Client(server, OLD, key=key, capabilities=TASKS)
            assert client.request(method, params)

            def refusal():
                try:
                    return client.request(method, params) and None
                except Rpc as error:
                    return error.error["data"]["code"]
                except Refused as refused:
                    return refused.body["error"]["code"]
            assert refusal() == "memory_busy"
            until(lambda: refusal() is None or time.sleep(0.2), 20, "the answers are not kept any more")
    finally:
        server.close()


def check_mcp_only_direct_calls_are_tasks():
    with pay() as (model, _, server):
        model.script = [calls(("get_todos", {})), text("Done.")]
        server.chat("My todos?", user=3)
        [chat] = server.rows("SELECT id FROM tool_calls")
        tools, reader = (Client(server, key=key_of(server, 3, scope), capabilities=TASKS) for scope in ("tools", "read"))
        for client in (tools, reader):
            assert raised(Rpc, lambda: client.request("tasks/get", {"taskId": chat["id"]})).error["code"] == -32602
        direct = tools.call("get_todos")["_meta"]["werkruf/job_id"]
        for client in (tools, reader):
            assert client.request("tasks/get", {"taskId": direct})["status"] == "completed"


def check_mcp_a_call_that_needs_an_approval_names_it_and_finishes_later():
    with pay('approval = "lead"') as (_, tool, server):
        for version, amount in ((OLD, 5), (NEW, 6)):
            client, meta = Client(server, version, user=3), {"werkruf/idempotency-key": f"order-{amount}"}
            waiting = client.call("pay", {"amount": amount}, meta)
            named = waiting["structuredContent"]
            assert not waiting.get("isError") and named["status"] == "awaiting_approval", waiting
            assert client.call("pay", {"amount": amount}, meta)["structuredContent"] == named, "the same key names the same approval"
            assert client.call("pay", {"amount": amount})["structuredContent"] == named, "an identical call too"
            other = client.call("pay", {"amount": amount + 100}, meta)
            assert other["_meta"]["werkruf/error"]["code"] == "idempotency_key_reused", other
            status, decided, _ = server.call("POST", f"/api/approvals/{named['approval_id']}", {"decision": "approve"}, key=key_of(server, 2, "approve", "chat"))
            assert status == 200, decided
            done = client.call("pay", {"amount": amount}, meta)
            assert done["structuredContent"] == {"paid": amount} and done["_meta"]["werkruf/job_id"] == named["job_id"], done
            read = client.request("resources/read", {"uri": "werkruf://calls/" + named["job_id"]})["contents"][0]
            assert json.loads(read["text"])["response"] == {"paid": amount}, read
        assert [r["body"]["arguments"]["amount"] for r in tool.requests] == [5, 6]
        # A client that speaks tasks asks for the task.
        client = Client(server, NEW, user=3, capabilities=TASKS)
        made = client.call("pay", {"amount": 7})
        assert (made["resultType"], made["status"]) == ("task", "working"), made
        assert client.request("tasks/get", {"taskId": made["taskId"]})["status"] == "working"
        stranger = Client(server, NEW, key=key_of(server, 4, "tools", "read"), capabilities=client.capabilities)
        assert raised(Rpc, lambda: stranger.request("tasks/get", {"taskId": made["taskId"]})).error["code"] == -32602
        server.call("POST", f"/api/approvals/{made['_meta']['werkruf/approval_id']}", {"decision": "approve"}, key=key_of(server, 2, "approve", "chat"))
        done = until(lambda: (task := client.request("tasks/get", {"taskId": made["taskId"]}))["status"] != "working" and task, what="the task")
        assert (done["status"], done["result"]["structuredContent"]) == ("completed", {"paid": 7}), done


def patiently(act):
    """What the server refuses because its database is busy is asked again, as the refusal says."""
    while True:
        try:
            answer = act()
            if not isinstance(answer, dict) or answer.get("_meta", {}).get("werkruf/error", {}).get("type") != "RETRYABLE":
                return answer
        except Refused as refusal:
            if refusal.status != 503:
                raise
        time.sleep(0.5)


def refused(connection):
    """Whether the server has refused the request already. A stream may begin before its call has run."""
    readable, _, _ = select.select([connection.sock], [], [], 0)
    return bool(readable) and not connection.sock.recv(12, socket.MSG_PEEK).endswith(b"200")


def check_mcp_requests_sent_again_run_once():
    """200 connections are dropped in the middle of a call, and each request is sent again: 200 results, 200 executions."""
    count, arrived, release = 200, set(), threading.Event()

    def answer(request, number):
        amount = request["body"]["arguments"]["amount"]
        arrived.add(amount)
        assert release.wait(120)
        return 200, {"paid": amount}, {}

    env = {"WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER": "0", "WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY": "0", "WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY": "0", "WERKRUF_LIMIT_TOOL_MS": "120000"}
    with pay("timeout_ms = 120000", env, answer) as (_, tool, server):
        results, faults = {}, []

        def drop_and_repeat(amount):
            try:
                # Three of four clients send a key; the others rely on the identical call in flight.
                meta = {"werkruf/idempotency-key": f"k{amount}"} if amount % 4 else {}
                client = patiently(lambda: Client(server, OLD if amount % 2 else NEW, user=amount % 6 + 1))
                while amount not in arrived:
                    connection, _ = client.start("pay", {"amount": amount}, meta)
                    until(lambda: amount in arrived or refused(connection), 100, f"call {amount}")
                    connection.sock.close()
                    connection.close()
                results[amount] = patiently(lambda: client.call("pay", {"amount": amount}, meta))["structuredContent"]
            except BaseException as fault:
                faults.append(f"{amount}: {fault!r}")

        threads = [threading.Thread(target=drop_and_repeat, args=(amount,)) for amount in range(count)]
        for thread in threads:
            thread.start()
        until(lambda: len(arrived) == count or faults, 100, "every call at the tool")
        # The calls that came again without a key have rows of their own, and wait for the first ones.
        def followed():
            rows = [json.loads(row["request"])["amount"] for row in server.rows("SELECT request FROM tool_calls")]
            return all(rows.count(amount) > 1 for amount in range(0, count, 4))
        until(lambda: followed() or faults, 100, "the calls that follow")
        release.set()
        for thread in threads:
            thread.join(100)
        assert not faults, faults[:3]
        assert results == {amount: {"paid": amount} for amount in range(count)}, len(results)
        paid = sorted(request["body"]["arguments"]["amount"] for request in tool.requests)
        assert paid == list(range(count)), len(paid)
        # A finished call without a key is a new one, and one with its key is the old one.
        client = Client(server, NEW, user=2)
        assert client.call("pay", {"amount": 1}, {"werkruf/idempotency-key": "k1"})["structuredContent"] == {"paid": 1}
        assert len(tool.requests) == count + (0 if 1 % 6 + 1 == 2 else 1)
        assert client.call("pay", {"amount": 1})["structuredContent"] == {"paid": 1}
        assert len(tool.requests) == count + 1


def check_mcp_resources_are_read_by_right():
    with with_model_and_tool("", lambda request, number: (200, {}, {})) as (model, _, server):
        for collection, document in (("default", "rules"), ("hr", "pay/2026 ä")):
            status, body, _ = server.call("POST", "/api/knowledge/documents", {"collection": collection, "documents": [{"id": document, "title": f"About {document}", "text": "Nobody works on Sunday."}]})
            assert status == 200, body
        status, body, _ = server.call("PUT", "/api/knowledge/collections/hr/rights", {"read": ["lead"], "write": []})
        assert status == 200, body
        model.script = [calls(("test_echo", {"value": 1})), text("Done.")]
        _, chat, _ = server.chat("Echo", user=3)
        conversation = chat["conversation_id"]
        of_call = f"werkruf://conversations/{conversation}/calls"
        of_hr = "werkruf://knowledge/hr/pay%2F2026%20%C3%A4"
        for version in BOTH:
            lead, clara = Client(server, version, key=key_of(server, 2, "tools", "read")), Client(server, version, key=key_of(server, 3, "tools", "read"))

            def uris(client):
                first = client.request("resources/list")
                rest = client.request("resources/list", {"cursor": first["nextCursor"]})
                assert "nextCursor" not in rest, rest
                return [r["uri"] for r in first["resources"] + rest["resources"]]
            assert uris(lead) == ["werkruf://knowledge/default/rules", of_hr]
            assert uris(clara) == ["werkruf://knowledge/default/rules", of_call]
            templates = [t["uriTemplate"] for t in clara.request("resources/templates/list")["resourceTemplates"]]
            assert templates == ["werkruf://knowledge/{collection}/{document}", "werkruf://conversations/{id}/calls{?after}", "werkruf://calls/{job_id}"]
            [document] = lead.request("resources/read", {"uri": of_hr})["contents"]
            assert "Nobody works on Sunday." in document["text"] and document["mimeType"] == "text/plain", document
            [recorded] = clara.request("resources/read", {"uri": of_call})["contents"]
            assert [c["tool_name"] for c in json.loads(recorded["text"])["tool_calls"]] == ["test_echo"], recorded
            missing = -32602 if version == NEW else -32002
            for client, uri in ((clara, of_hr), (lead, of_call), (clara, "werkruf://knowledge/none/x"), (clara, "file:///etc/passwd"), (clara, "werkruf://calls/x")):
                assert raised(Rpc, lambda: client.request("resources/read", {"uri": uri})).error["code"] == missing, uri
