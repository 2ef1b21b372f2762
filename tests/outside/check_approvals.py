"""Calls that need an approval: the conversation continues meanwhile, restarts change nothing, no call runs twice."""
import json

from check_recovery import finished, kill, valid
from fakes import calls, text
from server import Server, until, with_model_and_tool

CONFIG = """
[[tools]]
name = "pay"
description = "Pays."
kind = "http"
url = "{url}/pay"
effect = "once"
permission = "none"
approval = "lead"
parameters = '''{{"type": "object", "properties": {{"amount": {{"type": "integer"}}}}, "required": ["amount"]}}'''

[safety.careful]
approval_required_for = ["test_echo"]
"""


def scenario(env=None, more=""):
    return with_model_and_tool(CONFIG + more, lambda request, number: (200, {"paid": request["body"]["arguments"]["amount"]}, {}), env)


def key(server, user, scopes=("chat", "read", "tools")):
    status, made, _ = server.call("POST", "/api/keys", {"user_id": str(user), "scopes": list(scopes)})
    assert status == 201, made
    return made["key"]


def request_payment(server, user=3, amount=5, conversation=None, model=None, extra=()):
    model.script.append(calls(("pay", {"amount": amount}), *extra))
    status, answer, _ = server.chat(f"Pay {amount}", conversation, user=user)
    assert (status, answer["status"]) == (202, "awaiting_approval"), answer
    return answer


def decide(server, approval, decision="approve", **who):
    return server.call("POST", f"/api/approvals/{approval}", {"decision": decision}, **who)


def check_an_approved_call_runs_once_and_the_answer_follows():
    with scenario() as (model, tool, server):
        model.script = [calls(("pay", {"amount": 5}), ("test_echo", {"value": 1}))]
        received = server.stream("Pay 5", user=3)
        assert [name for _, name, _ in received] == ["init", "tool_started", "tool_finished", "approval_required"], received
        wanted = received[-1][2]
        assert (wanted["tool"], wanted["arguments"]) == ("pay", {"amount": 5}), wanted
        conversation, turn = received[0][2]["conversation_id"], received[0][2]["turn_id"]
        [row] = server.rows("SELECT * FROM tool_calls WHERE id = ?", wanted["job_id"])
        assert (row["status"], row["attempt"], row["started_at"]) == ("queued", 0, None), row
        [seat] = server.rows("SELECT * FROM messages WHERE tool_name = 'pay'")
        assert seat["status"] == "pending" and server.rows("SELECT owner FROM leases WHERE conversation_id = ?", conversation) == [{"owner": None}]
        # The conversation continues meanwhile, and the placeholder in the history says that the call awaits approval.
        model.script = [text("In between.")]
        status, between, _ = server.chat("And the weather?", conversation, user=3)
        assert (status, between["message"]["content"]) == (200, "In between."), between
        waits = [m for m in model.last()["messages"] if m["role"] == "tool" and "approval" in str(m["content"])]
        assert len(waits) == 1, model.last()["messages"]
        assert not tool.requests
        # Bernd has the role lead. He approves, the call runs once, and its result replaces the placeholder.
        model.script = [text("Paid.")]
        status, decided, _ = decide(server, wanted["approval_id"], key=key(server, 2))
        assert (status, decided["status"], decided["decided_by"]) == (200, "approved", "2"), decided
        done = finished(server, turn)
        assert (done["status"], done["message"], done["takeovers"]) == ("completed", "Paid.", 0), done
        assert len(tool.requests) == 1 and tool.requests[0]["headers"]["idempotency-key"] == row["idempotency_key"]
        own = model.last()["messages"]
        assert [m["role"] for m in own[-4:]] == ["user", "assistant", "tool", "tool"] and own[-4]["content"] == "Pay 5", own
        [seat] = server.rows("SELECT * FROM messages WHERE tool_name = 'pay'")
        assert (seat["status"], json.loads(seat["content"])) == ("success", {"paid": 5}), seat
        kinds = [e["type"] for e in server.rows("SELECT type FROM events WHERE turn_id = ? ORDER BY seq", turn)]
        assert kinds == ["init", "tool_started", "tool_finished", "approval_required", "tool_started", "tool_finished", "final"], kinds
        assert server.rows("SELECT count(*) AS n FROM api_usage WHERE turn_id = ?", turn) == [{"n": 2}]
        status, second, _ = decide(server, wanted["approval_id"], "deny")
        assert (status, second["error"]["code"]) == (409, "already_decided"), second
        valid(server, conversation)
        status, explanation, _ = server.call("GET", f"/api/tool-calls/{wanted['job_id']}/explain")
        assert explanation["approval"]["decided_by"] == "2" and explanation["outcome"]["status"] == "succeeded", explanation


def check_who_may_see_and_decide():
    with scenario() as (model, tool, server):
        approval = request_payment(server, 3, model=model)["approval_id"]
        for user, status in ((3, 403), (4, 404), (5, 404)):
            who = key(server, user)
            assert server.call("GET", f"/api/approvals/{approval}", key=who)[0] == status, user
            assert decide(server, approval, key=who)[0] == status, user
            assert server.call("GET", "/api/approvals?status=pending", key=who)[1]["approvals"] == []
        bernd = key(server, 2)
        [pending] = server.call("GET", "/api/approvals?status=pending", key=bernd)[1]["approvals"]
        assert (pending["id"], pending["tool"], pending["asked_by"], pending["approver_roles"]) == (approval, "pay", "3", ["lead"]), pending
        # Ana has the role admin, not lead: without scope admin she may not decide.
        assert decide(server, approval, key=key(server, 1))[0] == 404
        assert server.call("POST", f"/api/approvals/{approval}", {"decision": "perhaps"}, key=bernd)[0] == 400
        model.script = [text("It was refused.")]
        assert decide(server, approval, "deny", key=bernd)[1]["status"] == "denied"
        done = finished(server, pending["turn_id"])
        assert (done["status"], done["message"]) == ("completed", "It was refused."), done
        [row] = server.rows("SELECT * FROM tool_calls WHERE id = ?", pending["job_id"])
        assert (row["status"], row["error_type"], row["error_code"], row["attempt"]) == ("failed", "FATAL", "approval_denied", 0), row
        assert not tool.requests
        # An operator's key with scope admin decides without being a user.
        approval = request_payment(server, 3, 6, model=model)["approval_id"]
        _, made, _ = server.call("POST", "/api/keys", {"scopes": ["admin"]})
        status, decided, _ = decide(server, approval, key=made["key"])
        assert status == 200 and decided["decided_by"].startswith("key:"), decided
        until(lambda: tool.requests)


def check_whoever_asked_may_deny_but_not_approve():
    with scenario(more="[approvals]\nfour_eyes = true\n") as (model, tool, server):
        bernd, other = key(server, 2), key(server, 2, ("approve",))
        # Bernd asks himself; the operator asks for Clara. After a kill the rows still say who asked.
        model.script = [calls(("pay", {"amount": 1}))]
        status, own, _ = server.call("POST", "/api/chat", {"message": "Pay 1"}, key=bernd, headers={"accept": "application/json"})
        assert status == 202, own
        for_clara = request_payment(server, 3, 2, model=model)
        kill(server)
        server.start()
        for who in ({"key": bernd}, {"key": other}, {"user": 2}):
            status, refused, _ = decide(server, own["approval_id"], **who)
            assert (status, refused["error"]["code"]) == (403, "four_eyes"), (who, refused)
        for who in ({"user": 2}, {"user": None}):
            status, refused, _ = decide(server, for_clara["approval_id"], **who)
            assert (status, refused["error"]["code"]) == (403, "four_eyes"), (who, refused)
        model.script = [text("Then not."), text("Paid.")]
        assert decide(server, own["approval_id"], "deny", key=bernd)[1]["status"] == "denied"
        finished(server, own["turn_id"])
        assert decide(server, for_clara["approval_id"], key=other)[1]["status"] == "approved"
        assert finished(server, for_clara["turn_id"])["message"] == "Paid." and len(tool.requests) == 1
        rows = server.rows("SELECT asked_by, asked_key, decided_by, decided_key FROM approvals ORDER BY id")
        assert [(r["asked_by"], r["decided_by"]) for r in rows] == [("2", "2"), ("3", "2")], rows
        assert rows[0]["asked_key"] == rows[0]["decided_key"] != rows[1]["decided_key"] and rows[1]["asked_key"] == "operator", rows


def check_approvals_survive_kill_9_at_every_stage():
    with scenario() as (model, tool, server):
        answer = request_payment(server, model=model)
        kill(server)
        server.start()
        assert server.rows("SELECT status FROM turns WHERE id = ?", answer["turn_id"]) == [{"status": "awaiting_approval"}]
        model.script = [text("Paid late.")]
        assert decide(server, answer["approval_id"])[0] == 200
        done = finished(server, answer["turn_id"])
        assert (done["message"], done["takeovers"], len(tool.requests)) == ("Paid late.", 0, 1), done
        valid(server, answer["conversation_id"])
        # The approval was stored, and the process died before it ran the call.
        answer = request_payment(server, amount=7, model=model)
        kill(server)
        server.change(("UPDATE approvals SET status = 'approved', decided_by = '2', decided_at = created_at WHERE id = ?", [answer["approval_id"]]))
        model.script = [text("Paid after the crash.")]
        server.start()
        assert finished(server, answer["turn_id"])["message"] == "Paid after the crash."
        assert len(tool.requests) == 2
        # A call whose arguments differ from the approved ones does not run.
        answer = request_payment(server, amount=8, model=model)
        kill(server)
        server.change(("UPDATE approvals SET status = 'approved', decided_at = created_at WHERE id = ?", [answer["approval_id"]]),
                     ("UPDATE tool_calls SET request = '{\"amount\": 8000}' WHERE turn_id = ?", [answer["turn_id"]]))
        model.script = [text("No.")]
        server.start()
        finished(server, answer["turn_id"])
        assert server.rows("SELECT error_code FROM tool_calls WHERE turn_id = ?", answer["turn_id"]) == [{"error_code": "approval_denied"}]
        assert len(tool.requests) == 2


def check_an_undecided_approval_expires():
    with scenario({"WERKRUF_LIMIT_APPROVAL_TTL_S": "2"}) as (model, tool, server):
        answer = request_payment(server, model=model)
        model.script = [text("No decision was made.")]
        done = finished(server, answer["turn_id"])
        assert (done["status"], done["message"]) == ("completed", "No decision was made."), done
        assert server.rows("SELECT status, error_code FROM tool_calls") == [{"status": "failed", "error_code": "approval_expired"}]
        status, late, _ = decide(server, answer["approval_id"])
        assert (status, late["error"]["code"]) == (409, "already_decided") and not tool.requests, late


def check_a_turn_or_call_awaiting_approval_can_be_canceled():
    with scenario() as (model, tool, server):
        answer = request_payment(server, model=model)
        assert server.call("POST", f"/api/turns/{answer['turn_id']}/cancel")[0] == 202
        done = finished(server, answer["turn_id"])
        assert (done["status"], done["error_code"]) == ("canceled", "canceled"), done
        assert server.rows("SELECT status FROM approvals") == [{"status": "canceled"}], server.rows("SELECT * FROM approvals")
        assert server.rows("SELECT status FROM tool_calls") == [{"status": "canceled"}]
        valid(server, answer["conversation_id"])
        assert decide(server, answer["approval_id"])[0] == 409
        answer = request_payment(server, amount=9, model=model)
        [row] = server.rows("SELECT id FROM tool_calls WHERE turn_id = ?", answer["turn_id"])
        model.script = [text("Then not.")]
        assert server.call("POST", f"/api/tool-calls/{row['id']}/cancel")[0] == 202
        assert finished(server, answer["turn_id"])["message"] == "Then not."
        assert server.rows("SELECT status FROM tool_calls WHERE id = ?", row["id"]) == [{"status": "canceled"}] and not tool.requests


def check_two_identical_calls_need_one_approval():
    with scenario() as (model, tool, server):
        answer = request_payment(server, extra=[("pay", {"amount": 5})], model=model)
        assert len(server.rows("SELECT id FROM approvals")) == 1, "a copy in the same answer rides along"
        model.script = [calls(("pay", {"amount": 5})), text("It waits already.")]
        status, again, _ = server.chat("Pay 5, please", answer["conversation_id"], user=3)
        assert (status, again["tool_results"][0]["error"]["code"]) == (200, "approval_pending"), again
        model.script = [text("Paid once.")]
        decide(server, answer["approval_id"])
        assert finished(server, answer["turn_id"])["status"] == "completed"
        rows = server.rows("SELECT status, dedupe_of FROM tool_calls WHERE turn_id = ? ORDER BY output_index", answer["turn_id"])
        assert [r["status"] for r in rows] == ["succeeded", "succeeded"] and len(tool.requests) == 1, rows
        valid(server, answer["conversation_id"])


def check_two_calls_in_one_answer_are_approved_one_by_one():
    with scenario() as (model, tool, server):
        answer = request_payment(server, amount=1, extra=[("pay", {"amount": 2})], model=model)
        first, second = server.call("GET", "/api/approvals?status=pending")[1]["approvals"]
        assert answer["approval_id"] == first["id"]
        decide(server, second["id"])
        until(lambda: len(tool.requests) == 1)
        until(lambda: server.rows("SELECT status FROM turns WHERE id = ?", answer["turn_id"]) == [{"status": "awaiting_approval"}])
        model.script = [text("Both done.")]
        decide(server, first["id"], "deny")
        assert finished(server, answer["turn_id"])["message"] == "Both done."
        rows = server.rows("SELECT status FROM tool_calls ORDER BY output_index")
        assert [r["status"] for r in rows] == ["failed", "succeeded"], rows
        approval_events = server.rows("SELECT count(*) AS n FROM events WHERE type = 'approval_required'")
        assert approval_events == [{"n": 2}], "one approval request per call"
        valid(server, answer["conversation_id"])


def check_invoke_awaits_approval_too():
    with scenario() as (model, tool, server):
        body, headers = {"input": {"amount": 3}}, {"idempotency-key": "i-1"}
        status, first, _ = server.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, first["status"]) == (202, "awaiting_approval") and set(first) == {"job_id", "approval_id", "status"}, first
        status, again, replay_headers = server.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, again, replay_headers["idempotent-replayed"]) == (202, first, "true"), again
        decide(server, first["approval_id"])
        until(lambda: server.rows("SELECT 1 FROM tool_calls WHERE status = 'succeeded'"))
        status, done, _ = server.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, done["data"]) == (200, {"paid": 3}) and len(tool.requests) == 1, done
        # A safety profile requires an approval where the tool does not; admins give it.
        status, waits, _ = server.call("POST", "/api/tools/test_echo/invoke", {"input": {"value": 1}}, user=3, headers={"x-safety-mode": "careful"})
        assert status == 202, waits
        assert decide(server, waits["approval_id"], key=key(server, 2))[0] == 404
        assert decide(server, waits["approval_id"], key=key(server, 1))[0] == 200
        until(lambda: server.rows("SELECT 1 FROM tool_calls WHERE tool_name = 'test_echo' AND status = 'succeeded'"))


def check_create_request_writes_one_row_after_approval():
    server = Server()
    try:
        before = server.rows("SELECT max(id) AS n FROM requests")[0]["n"]
        received = server.stream("Erstelle eine Anfrage: Drucker im Flur reparieren", user=3)
        assert received[-1][1] == "approval_required" and received[-1][2]["arguments"] == {"title": "Drucker im Flur reparieren"}, received
        listed = server.cli("approvals", "list", "--json")
        [row] = json.loads(listed.stdout)["approvals"]
        assert row["approver_roles"] == ["lead", "admin"], row
        assert server.rows("SELECT max(id) AS n FROM requests")[0]["n"] == before
        approved = server.cli("approvals", "approve", row["id"][:13])
        assert approved.returncode == 0 and "approved" in approved.stdout, approved
        done = finished(server, received[0][2]["turn_id"])
        assert "Drucker im Flur reparieren" in done["message"], done
        [made] = server.rows("SELECT * FROM requests WHERE id > ?", before)
        assert (made["title"], made["status"], made["requester_id"], made["branch_id"]) == ("Drucker im Flur reparieren", "open", 3, 1), made
        assert server.cli("approvals", "deny", row["id"]).returncode == 1
        # A guest has no permission for the tool, and no approval is requested.
        status, refused, _ = server.call("POST", "/api/tools/create_request/invoke", {"input": {"title": "x"}}, user=5)
        assert (status, refused["error"]["code"]) == (200, "permission_denied"), refused
    finally:
        server.close()
