"""kill -9 at the worst moments: nothing acknowledged is lost, every chat stays usable, no `once` call is sent twice."""
import signal
import threading

from check_turns import Scenario
from fakes import calls, text
from server import until

# Continues the declaration of the tool: every attempt that left costs something.
PRICE = 'price_usd = "0.25"\n'


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.process.stdout.close()
    server.log.close()


def begin(server, message, conversation=None):
    body = {"message": message, "background": True, **({"conversation_id": conversation} if conversation else {})}
    status, accepted, _ = server.call("POST", "/api/chat", body)
    assert status == 202, accepted
    return accepted


def finished(server, turn):
    return until(lambda: server.rows("SELECT * FROM turns WHERE id = ? AND finished_at IS NOT NULL", turn), 30, "the turn's end")[0]


def valid(server, conversation):
    seqs = [e["seq"] for e in server.rows("SELECT seq FROM events WHERE conversation_id = ? ORDER BY seq", conversation)]
    assert seqs == list(range(1, len(seqs) + 1)), seqs
    ends = server.rows("SELECT turn_id, count(*) AS n FROM events WHERE conversation_id = ? AND type IN ('final', 'error') GROUP BY turn_id", conversation)
    assert all(e["n"] == 1 for e in ends), ends
    status, answer, _ = server.chat("Are you there?", conversation)
    assert status == 200, answer  # the scripted model rejects an invalid history with 400


def check_killed_during_a_model_request():
    gate = threading.Event()
    with Scenario() as (model, _, server):
        model.script = [lambda request: (gate.wait(30), text("Too late."))[1], text("After the crash.")]
        accepted = begin(server, "Think")
        until(lambda: model.requests)
        kill(server)
        gate.set()
        server.start()
        turn = finished(server, accepted["turn_id"])
        assert (turn["status"], turn["message"], turn["takeovers"]) == ("completed", "After the crash.", 1), turn
        usage = server.rows("SELECT estimated FROM api_usage WHERE turn_id = ? ORDER BY id", turn["id"])
        assert [u["estimated"] for u in usage] == [1, 0], "the request that may have been sent has an estimated usage row"
        valid(server, accepted["conversation_id"])


def crash_in_tool(effect):
    """A tool whose first call is running when the server dies; the second call answers at once."""
    gate = threading.Event()

    def behave(request, number):
        if number == 1:
            gate.wait(30)
        return 200, {"number": number}, {}

    with Scenario(behave, effect=effect, config=PRICE) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}), ("test_echo", {"value": 7})), text("Done after all.")]
        accepted = begin(server, "Do it")
        until(lambda: tool.requests)
        until(lambda: server.rows("SELECT 1 FROM tool_calls WHERE tool_name = 'test_echo' AND status = 'succeeded'"))
        kill(server)
        server.start()
        turn = finished(server, accepted["turn_id"])
        gate.set()
        assert (turn["status"], turn["message"]) == ("completed", "Done after all."), turn
        [row] = server.rows("SELECT * FROM tool_calls WHERE tool_name = 'get_weather'")
        [sibling] = server.rows("SELECT * FROM tool_calls WHERE tool_name = 'test_echo'")
        assert (sibling["status"], sibling["attempt"]) == ("succeeded", 1), "a sibling that was done is not run again"
        _, final, _ = server.call("GET", f"/api/conversations/{accepted['conversation_id']}/events?after=0")
        assert len(final["events"][-1]["data"]["tool_results"]) == 2
        spent = server.rows("SELECT estimated, cost_nano_usd, call_id FROM api_usage WHERE operation = 'tool' ORDER BY id")
        assert all((u["cost_nano_usd"], u["call_id"]) == (250_000_000, row["id"]) for u in spent), spent
        # The attempt that was lost with its process may have left. Each one since has a row of its own.
        assert [u["estimated"] for u in spent] == [1, 0][:row["attempt"]], spent
        valid(server, accepted["conversation_id"])
        return row, tool


def check_killed_while_a_read_runs():
    row, tool = crash_in_tool("read")
    assert (row["status"], row["attempt"], len(tool.requests)) == ("succeeded", 2, 2), row


def check_killed_while_an_idempotent_call_runs():
    row, tool = crash_in_tool("idempotent")
    assert (row["status"], row["attempt"], len(tool.requests)) == ("succeeded", 2, 2), row
    assert len({r["headers"]["idempotency-key"] for r in tool.requests}) == 1


def check_killed_while_a_once_call_runs():
    row, tool = crash_in_tool("once")
    assert (row["status"], row["error_code"], row["error_type"], row["attempt"], len(tool.requests)) == ("failed", "outcome_unknown", "FATAL", 1, 1), row
    assert row["finished_at"]


def check_a_queued_call_runs_after_a_killed_once_call():
    gate = threading.Event()

    def behave(request, number):
        gate.wait(30)
        return 200, {}, {}

    with Scenario(behave, effect="once", env={"WERKRUF_LIMIT_PARALLEL": "1"}) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}), ("test_echo", {"value": 7})), text("Done after all.")]
        accepted = begin(server, "Do it")
        until(lambda: tool.requests)
        kill(server)
        server.start()
        turn = finished(server, accepted["turn_id"])
        gate.set()
        assert (turn["status"], turn["takeovers"]) == ("completed", 1), turn
        rows = server.rows("SELECT tool_name, status, error_code, attempt FROM tool_calls ORDER BY output_index")
        assert [tuple(row.values()) for row in rows] == [
            ("get_weather", "failed", "outcome_unknown", 1),
            ("test_echo", "succeeded", None, 1),
        ], rows
        valid(server, accepted["conversation_id"])


def check_killed_while_a_message_waits():
    gate = threading.Event()
    with Scenario() as (model, _, server):
        model.script = [lambda request: (gate.wait(30), text("Lost."))[1]]
        first = begin(server, "First")
        until(lambda: model.requests)
        second = begin(server, "Second", first["conversation_id"])
        kill(server)
        gate.set()
        model.script = [text("One."), text("Two.")]
        server.start()
        assert [finished(server, t["turn_id"])["message"] for t in (first, second)] == ["One.", "Two."]
        messages = [(m["role"], m["content"]) for m in server.rows("SELECT role, content FROM messages ORDER BY seq")]
        assert messages == [("user", "First"), ("assistant", "One."), ("user", "Second"), ("assistant", "Two.")], messages
        valid(server, first["conversation_id"])


def check_killed_during_a_direct_call():
    gate = threading.Event()

    def behave(request, number):
        if number == 1:
            gate.wait(30)
        return 200, {"number": number}, {}

    for effect, status, sends in (("idempotent", "succeeded", 2), ("once", "failed", 1)):
        gate.clear()
        with Scenario(behave, effect=effect, config=PRICE) as (_, tool, server):
            caller = threading.Thread(target=server.call, args=("POST", "/api/tools/get_weather/invoke", {"input": {"city": "Bonn"}}))
            caller.start()
            until(lambda: tool.requests)
            kill(server)
            caller.join()
            server.start()
            [row] = until(lambda: server.rows("SELECT * FROM tool_calls WHERE finished_at IS NOT NULL"), 30)
            gate.set()
            assert (row["status"], len(tool.requests)) == (status, sends), row
            spent = server.rows("SELECT estimated, cost_nano_usd FROM api_usage WHERE operation = 'tool' ORDER BY id")
            assert [(u["estimated"], u["cost_nano_usd"]) for u in spent] == [(1, 250_000_000), (0, 250_000_000)][:sends], spent
            until(lambda: server.rows("SELECT 1 FROM turns WHERE finished_at IS NOT NULL"))


def check_a_message_that_kills_the_server_fails_as_poison():
    with Scenario() as (model, _, server):
        gate = threading.Event()
        model.script = [lambda request: (gate.wait(60), text("Never."))[1]] * 10
        accepted = begin(server, "Poison")
        for times in range(1, 4):
            until(lambda: len(model.requests) >= times)
            kill(server)
            server.start()
        turn = finished(server, accepted["turn_id"])
        gate.set()
        assert (turn["status"], turn["error_code"], turn["takeovers"]) == ("failed", "poison", 3), turn
        model.script = []
        valid(server, accepted["conversation_id"])


def check_drain_releases_unfinished_turns():
    with Scenario(env={"WERKRUF_LIMIT_DRAIN_MS": "300"}) as (model, _, server):
        model.script = [calls(("test_sleep", {"ms": 25000})), text("Woken.")]
        accepted = begin(server, "Sleep")
        until(lambda: server.rows("SELECT 1 FROM tool_calls WHERE status = 'running'"))
        assert server.stop() == 0
        [turn] = server.rows("SELECT status, finished_at FROM turns")
        assert (turn["status"], turn["finished_at"]) == ("acting", None), "released, not failed"
        server.start()
        assert server.call("POST", f"/api/turns/{accepted['turn_id']}/cancel", {})[0] == 202
        turn = finished(server, accepted["turn_id"])
        assert (turn["status"], turn["takeovers"]) == ("canceled", 0), turn
        valid(server, accepted["conversation_id"])
