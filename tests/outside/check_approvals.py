"""A person's word before a call runs: the conversation goes on, restarts change nothing, nothing happens twice."""
import contextlib
import json

from check_recovery import begin, finished, kill, valid
from fakes import Model, Tool, calls, text
from house import House, until

CONFIG = """
[[tools]]
name = "pay"
description = "Pays."
kind = "http"
url = "{url}/pay"
effect = "once"
approval = "lead"
parameters = '''{{"type": "object", "properties": {{"amount": {{"type": "integer"}}}}, "required": ["amount"]}}'''

[safety.careful]
approval_required_for = ["test_echo"]
"""


@contextlib.contextmanager
def scene(env=None):
    model, tool = Model(), Tool(lambda request, number: (200, {"paid": request["body"]["arguments"]["amount"]}, {}))
    house = House(model, CONFIG.format(url=tool.url), env)
    try:
        yield model, tool, house
    finally:
        house.close()
        model.close()
        tool.close()


def key(house, user, scopes=("chat", "read", "tools")):
    status, made, _ = house.call("POST", "/api/keys", {"user_id": str(user), "scopes": list(scopes)})
    assert status == 201, made
    return made["key"]


def asked(house, user=3, amount=5, conversation=None, model=None, extra=()):
    model.script.append(calls(("pay", {"amount": amount}), *extra))
    status, answer, _ = house.chat(f"Pay {amount}", conversation, user=user)
    assert (status, answer["status"]) == (202, "awaiting_approval"), answer
    return answer


def decide(house, approval, decision="approve", **who):
    return house.call("POST", f"/api/approvals/{approval}", {"decision": decision}, **who)


def check_an_approved_call_runs_once_and_the_answer_follows():
    with scene() as (model, tool, house):
        model.script = [calls(("pay", {"amount": 5}), ("test_echo", {"value": 1}))]
        heard = house.stream("Pay 5", user=3)
        assert [name for _, name, _ in heard] == ["init", "tool_started", "tool_finished", "approval_required"], heard
        wanted = heard[-1][2]
        assert (wanted["tool"], wanted["arguments"]) == ("pay", {"amount": 5}), wanted
        conversation, turn = heard[0][2]["conversation_id"], heard[0][2]["turn_id"]
        [row] = house.rows("SELECT * FROM tool_calls WHERE id = ?", wanted["job_id"])
        assert (row["status"], row["attempt"], row["started_at"]) == ("queued", 0, None), row
        [seat] = house.rows("SELECT * FROM messages WHERE tool_name = 'pay'")
        assert seat["status"] == "pending" and house.rows("SELECT owner FROM leases WHERE conversation_id = ?", conversation) == [{"owner": None}]
        # The conversation goes on meanwhile, and the model hears that the call waits.
        model.script = [text("In between.")]
        status, between, _ = house.chat("And the weather?", conversation, user=3)
        assert (status, between["message"]["content"]) == (200, "In between."), between
        waits = [m for m in model.last()["messages"] if m["role"] == "tool" and "approval" in str(m["content"])]
        assert len(waits) == 1, model.last()["messages"]
        assert not tool.requests
        # Bernd leads; the word is given, the call runs once, its result takes the placeholder's place.
        model.script = [text("Paid.")]
        status, decided, _ = decide(house, wanted["approval_id"], key=key(house, 2))
        assert (status, decided["status"], decided["decided_by"]) == (200, "approved", "2"), decided
        done = finished(house, turn)
        assert (done["status"], done["message"], done["takeovers"]) == ("completed", "Paid.", 0), done
        assert len(tool.requests) == 1 and tool.requests[0]["headers"]["idempotency-key"] == row["idempotency_key"]
        own = model.last()["messages"]
        assert [m["role"] for m in own[-4:]] == ["user", "assistant", "tool", "tool"] and own[-4]["content"] == "Pay 5", own
        [seat] = house.rows("SELECT * FROM messages WHERE tool_name = 'pay'")
        assert (seat["status"], json.loads(seat["content"])) == ("success", {"paid": 5}), seat
        kinds = [e["type"] for e in house.rows("SELECT type FROM events WHERE turn_id = ? ORDER BY seq", turn)]
        assert kinds == ["init", "tool_started", "tool_finished", "approval_required", "tool_started", "tool_finished", "final"], kinds
        assert house.rows("SELECT count(*) AS n FROM api_usage WHERE turn_id = ?", turn) == [{"n": 2}]
        status, second, _ = decide(house, wanted["approval_id"], "deny")
        assert (status, second["error"]["code"]) == (409, "already_decided"), second
        valid(house, conversation)
        status, told, _ = house.call("GET", f"/api/tool-calls/{wanted['job_id']}/explain")
        assert told["approval"]["decided_by"] == "2" and told["outcome"]["status"] == "succeeded", told


def check_who_may_see_and_decide():
    with scene() as (model, tool, house):
        approval = asked(house, 3, model=model)["approval_id"]
        for user, status in ((3, 403), (4, 404), (5, 404)):
            who = key(house, user)
            assert house.call("GET", f"/api/approvals/{approval}", key=who)[0] == status, user
            assert decide(house, approval, key=who)[0] == status, user
            assert house.call("GET", "/api/approvals?status=pending", key=who)[1]["approvals"] == []
        bernd = key(house, 2)
        [seen] = house.call("GET", "/api/approvals?status=pending", key=bernd)[1]["approvals"]
        assert (seen["id"], seen["tool"], seen["asked_by"], seen["approver_roles"]) == (approval, "pay", "3", ["lead"]), seen
        # Ana has the role admin, not lead: without scope admin it is not hers.
        assert decide(house, approval, key=key(house, 1))[0] == 404
        assert house.call("POST", f"/api/approvals/{approval}", {"decision": "perhaps"}, key=bernd)[0] == 400
        model.script = [text("It was refused.")]
        assert decide(house, approval, "deny", key=bernd)[1]["status"] == "denied"
        done = finished(house, seen["turn_id"])
        assert (done["status"], done["message"]) == ("completed", "It was refused."), done
        [row] = house.rows("SELECT * FROM tool_calls WHERE id = ?", seen["job_id"])
        assert (row["status"], row["error_type"], row["error_code"], row["attempt"]) == ("failed", "FATAL", "approval_denied", 0), row
        assert not tool.requests
        # A key of the operator with scope admin decides without being anybody.
        approval = asked(house, 3, 6, model=model)["approval_id"]
        _, made, _ = house.call("POST", "/api/keys", {"scopes": ["admin"]})
        status, decided, _ = decide(house, approval, key=made["key"])
        assert status == 200 and decided["decided_by"].startswith("key:"), decided
        until(lambda: tool.requests)


def check_it_survives_kill_9_at_every_stage():
    with scene() as (model, tool, house):
        answer = asked(house, model=model)
        kill(house)
        house.start()
        assert house.rows("SELECT status FROM turns WHERE id = ?", answer["turn_id"]) == [{"status": "awaiting_approval"}]
        model.script = [text("Paid late.")]
        assert decide(house, answer["approval_id"])[0] == 200
        done = finished(house, answer["turn_id"])
        assert (done["message"], done["takeovers"], len(tool.requests)) == ("Paid late.", 0, 1), done
        valid(house, answer["conversation_id"])
        # The word was given, and the process died before anybody acted on it.
        answer = asked(house, amount=7, model=model)
        kill(house)
        house.change(("UPDATE approvals SET status = 'approved', decided_by = '2', decided_at = created_at WHERE id = ?", [answer["approval_id"]]))
        model.script = [text("Paid after the crash.")]
        house.start()
        assert finished(house, answer["turn_id"])["message"] == "Paid after the crash."
        assert len(tool.requests) == 2
        # Arguments that are not those that were approved do not run.
        answer = asked(house, amount=8, model=model)
        kill(house)
        house.change(("UPDATE approvals SET status = 'approved', decided_at = created_at WHERE id = ?", [answer["approval_id"]]),
                     ("UPDATE tool_calls SET request = '{\"amount\": 8000}' WHERE turn_id = ?", [answer["turn_id"]]))
        model.script = [text("No.")]
        house.start()
        finished(house, answer["turn_id"])
        assert house.rows("SELECT error_code FROM tool_calls WHERE turn_id = ?", answer["turn_id"]) == [{"error_code": "approval_denied"}]
        assert len(tool.requests) == 2


def check_what_nobody_decides_expires():
    with scene({"WERKRUF_LIMIT_APPROVAL_TTL_S": "2"}) as (model, tool, house):
        answer = asked(house, model=model)
        model.script = [text("Nobody said a word.")]
        done = finished(house, answer["turn_id"])
        assert (done["status"], done["message"]) == ("completed", "Nobody said a word."), done
        assert house.rows("SELECT status, error_code FROM tool_calls") == [{"status": "failed", "error_code": "approval_expired"}]
        status, late, _ = decide(house, answer["approval_id"])
        assert (status, late["error"]["code"]) == (409, "already_decided") and not tool.requests, late


def check_a_turn_or_call_that_waits_can_be_canceled():
    with scene() as (model, tool, house):
        answer = asked(house, model=model)
        assert house.call("POST", f"/api/turns/{answer['turn_id']}/cancel")[0] == 202
        done = finished(house, answer["turn_id"])
        assert (done["status"], done["error_code"]) == ("canceled", "canceled"), done
        assert house.rows("SELECT status FROM approvals") == [{"status": "canceled"}], house.rows("SELECT * FROM approvals")
        assert house.rows("SELECT status FROM tool_calls") == [{"status": "canceled"}]
        valid(house, answer["conversation_id"])
        assert decide(house, answer["approval_id"])[0] == 409
        answer = asked(house, amount=9, model=model)
        [row] = house.rows("SELECT id FROM tool_calls WHERE turn_id = ?", answer["turn_id"])
        model.script = [text("Then not.")]
        assert house.call("POST", f"/api/tool-calls/{row['id']}/cancel")[0] == 202
        assert finished(house, answer["turn_id"])["message"] == "Then not."
        assert house.rows("SELECT status FROM tool_calls WHERE id = ?", row["id"]) == [{"status": "canceled"}] and not tool.requests


def check_the_same_call_twice_waits_once():
    with scene() as (model, tool, house):
        answer = asked(house, extra=[("pay", {"amount": 5})], model=model)
        assert len(house.rows("SELECT id FROM approvals")) == 1, "a copy in the same answer rides along"
        model.script = [calls(("pay", {"amount": 5})), text("It waits already.")]
        status, again, _ = house.chat("Pay 5, please", answer["conversation_id"], user=3)
        assert (status, again["tool_results"][0]["error"]["code"]) == (200, "approval_pending"), again
        model.script = [text("Paid once.")]
        decide(house, answer["approval_id"])
        assert finished(house, answer["turn_id"])["status"] == "completed"
        rows = house.rows("SELECT status, dedupe_of FROM tool_calls WHERE turn_id = ? ORDER BY output_index", answer["turn_id"])
        assert [r["status"] for r in rows] == ["succeeded", "succeeded"] and len(tool.requests) == 1, rows
        valid(house, answer["conversation_id"])


def check_two_words_in_one_answer_are_given_one_by_one():
    with scene() as (model, tool, house):
        answer = asked(house, amount=1, extra=[("pay", {"amount": 2})], model=model)
        first, second = house.call("GET", "/api/approvals?status=pending")[1]["approvals"]
        assert answer["approval_id"] == first["id"]
        decide(house, second["id"])
        until(lambda: len(tool.requests) == 1)
        until(lambda: house.rows("SELECT status FROM turns WHERE id = ?", answer["turn_id"]) == [{"status": "awaiting_approval"}])
        model.script = [text("Both done.")]
        decide(house, first["id"], "deny")
        assert finished(house, answer["turn_id"])["message"] == "Both done."
        rows = house.rows("SELECT status FROM tool_calls ORDER BY output_index")
        assert [r["status"] for r in rows] == ["failed", "succeeded"], rows
        asks = house.rows("SELECT count(*) AS n FROM events WHERE type = 'approval_required'")
        assert asks == [{"n": 2}], "each is asked for once"
        valid(house, answer["conversation_id"])


def check_invoke_waits_too():
    with scene() as (model, tool, house):
        body, headers = {"input": {"amount": 3}}, {"idempotency-key": "i-1"}
        status, first, _ = house.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, first["status"]) == (202, "awaiting_approval") and set(first) == {"job_id", "approval_id", "status"}, first
        status, again, seen = house.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, again, seen["idempotent-replayed"]) == (202, first, "true"), again
        decide(house, first["approval_id"])
        until(lambda: house.rows("SELECT 1 FROM tool_calls WHERE status = 'succeeded'"))
        status, done, _ = house.call("POST", "/api/tools/pay/invoke", body, user=3, headers=headers)
        assert (status, done["data"]) == (200, {"paid": 3}) and len(tool.requests) == 1, done
        # A safety profile asks for a word where the tool does not; admins give it.
        status, waits, _ = house.call("POST", "/api/tools/test_echo/invoke", {"input": {"value": 1}}, user=3, headers={"x-safety-mode": "careful"})
        assert status == 202, waits
        assert decide(house, waits["approval_id"], key=key(house, 2))[0] == 404
        assert decide(house, waits["approval_id"], key=key(house, 1))[0] == 200
        until(lambda: house.rows("SELECT 1 FROM tool_calls WHERE tool_name = 'test_echo' AND status = 'succeeded'"))


def check_create_request_writes_one_row_after_a_word():
    house = House()
    try:
        before = house.rows("SELECT max(id) AS n FROM requests")[0]["n"]
        heard = house.stream("Erstelle eine Anfrage: Drucker im Flur reparieren", user=3)
        assert heard[-1][1] == "approval_required" and heard[-1][2]["arguments"] == {"title": "Drucker im Flur reparieren"}, heard
        listed = house.cli("approvals", "list", "--json")
        [row] = json.loads(listed.stdout)["approvals"]
        assert row["approver_roles"] == ["lead", "admin"], row
        assert house.rows("SELECT max(id) AS n FROM requests")[0]["n"] == before
        approved = house.cli("approvals", "approve", row["id"][:13])
        assert approved.returncode == 0 and "approved" in approved.stdout, approved
        done = finished(house, heard[0][2]["turn_id"])
        assert "Drucker im Flur reparieren" in done["message"], done
        [made] = house.rows("SELECT * FROM requests WHERE id > ?", before)
        assert (made["title"], made["status"], made["requester_id"], made["branch_id"]) == ("Drucker im Flur reparieren", "open", 3, 1), made
        assert house.cli("approvals", "deny", row["id"]).returncode == 1
        # A guest has no right to it, and nobody is asked.
        status, refused, _ = house.call("POST", "/api/tools/create_request/invoke", {"input": {"title": "x"}}, user=5)
        assert (status, refused["error"]["code"]) == (200, "permission_denied"), refused
    finally:
        house.close()
