"""A turn with tool calls, end to end, and every fault it must survive."""
import json
import re
import threading

from fakes import Model, Tool, calls, text
from server import ADMIN, DEMO, Server, until

ISO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

WEATHER = """
[[tools]]
name = "get_weather"
description = "The weather of a city"
kind = "http"
url = "%s/weather"
effect = "%s"
permission = "none"
timeout_ms = %d
parameters = '''{"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}'''
"""


def weather(tool, effect="read", timeout_ms=10000):
    return WEATHER % (tool.url, effect, timeout_ms)


def sunny(request, number):
    return 200, {"city": request["body"]["arguments"]["city"], "sky": "blue", "state_patch": {"last_city": request["body"]["arguments"]["city"]}}, {}


class Scenario:
    """A model, a tool and a server, closed at the end."""

    def __init__(self, behave=sunny, effect="read", timeout_ms=10000, env=None, config=""):
        self.model, self.tool = Model(), Tool(behave)
        self.server = Server(self.model, weather(self.tool, effect, timeout_ms) + config, env)

    def __enter__(self):
        return self.model, self.tool, self.server

    def __exit__(self, *_):
        self.server.close()
        self.model.close()
        self.tool.close()


def check_one_call_turn_leaves_exactly_its_rows():
    with Scenario() as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn", "days": "3"}, "call_abc")), text("Blue sky in Bonn.")]
        received = server.stream("How is the weather in Bonn?", headers={"idempotency-key": "k1"})
        names = [name for _, name, _ in received]
        assert names[:3] == ["init", "tool_started", "tool_finished"] and names[-1] == "final", names
        assert set(names[3:-1]) == {"assistant_token"}
        numbered = [number for number, name, _ in received if name != "assistant_token"]
        assert numbered == [1, 2, 3, 4] and all(n is None for n, name, _ in received if name == "assistant_token")
        init, started, finished, final = (data for _, name, data in received if name != "assistant_token")
        conversation, turn = init["conversation_id"], init["turn_id"]
        assert init == {"chatId": conversation, "conversation_id": conversation, "turn_id": turn, "created": True}
        job = started["job_id"]
        assert started == {"tool": "get_weather", "job_id": job, "call_id": "call_abc", "arguments": {"city": "Bonn", "days": 3}}, started
        assert finished == {"tool": "get_weather", "job_id": job, "call_id": "call_abc", "status": "succeeded", "took_ms": finished["took_ms"], "cache_hit": False}
        assert "".join(d["content"] for _, n, d in received if n == "assistant_token") == "Blue sky in Bonn." == final["message"]["content"]
        assert final["tool_result"] == {"city": "Bonn", "sky": "blue"} and final["session_state"] == {"last_city": "Bonn"}, final
        assert final["usage"] == {"input_tokens": 20, "cached_tokens": 0, "output_tokens": 10, "reasoning_tokens": 0, "total_tokens": 30, "cost_usd": None, "model_calls": 2}
        assert [r["status"] for r in final["tool_results"]] == ["succeeded"] and final["status"] == "completed"

        [call] = server.rows("SELECT * FROM tool_calls")
        assert call["id"] == job and call["tenant_id"] == DEMO and call["conversation_id"] == conversation and call["turn_id"] == turn
        assert (call["step"], call["output_index"], call["kind"], call["tool_name"], call["call_id"], call["item_id"]) == (1, 0, "function", "get_weather", "call_abc", None)
        assert (call["status"], call["effect"], call["attempt"], call["error"], call["dedupe_of"], call["retry_of"]) == ("succeeded", "read", 1, None, None, None)
        assert json.loads(call["request"]) == {"city": "Bonn", "days": 3} and json.loads(call["raw_arguments"]) == {"city": "Bonn", "days": "3"}
        assert [r["path"] for r in json.loads(call["repairs"])] == ["/days"]
        assert json.loads(call["response"]) == {"city": "Bonn", "sky": "blue"}
        for column in ("created_at", "updated_at", "started_at", "finished_at"):
            assert ISO.match(call[column]), (column, call[column])
        assert call["created_at"] <= call["started_at"] <= call["finished_at"]
        context = json.loads(call["context"])
        assert context["run_id"] == call["run_id"] and context["invocation_id"] == job and "auth" not in context

        [row] = server.rows("SELECT * FROM turns")
        assert (row["id"], row["status"], row["step"], row["takeovers"], row["user_id"], row["error_code"]) == (turn, "completed", 2, 0, "1", None)
        assert ISO.match(row["finished_at"])
        messages = server.rows("SELECT * FROM messages ORDER BY seq")
        assert [(m["seq"], m["role"]) for m in messages] == [(1, "user"), (2, "assistant"), (3, "tool"), (4, "assistant")]
        assert json.loads(messages[1]["tool_calls"])[0]["id"] == "call_abc" == messages[2]["tool_call_id"]
        assert json.loads(messages[1]["tool_calls"])[0]["name"] == "get_weather" == messages[2]["tool_name"]
        assert messages[2]["status"] == "success" and messages[3]["content"] == "Blue sky in Bonn."
        assert [(e["seq"], e["type"]) for e in server.rows("SELECT seq, type FROM events ORDER BY seq")] == [(1, "init"), (2, "tool_started"), (3, "tool_finished"), (4, "final")]
        usage = server.rows("SELECT * FROM api_usage ORDER BY id")
        assert [(u["operation"], u["tokens_total"], u["estimated"], u["cost_nano_usd"]) for u in usage] == [("chat", 15, 0, None)] * 2
        [inbox] = server.rows("SELECT * FROM inbox")
        assert inbox["turn_id"] == turn and inbox["external_id"] == "k1"

        sent = tool.requests[0]
        assert sent["body"]["arguments"] == {"city": "Bonn", "days": 3} and sent["body"]["job_id"] == job and sent["body"]["attempt"] == 1
        assert sent["body"]["context"]["user_id"] in (1, "1") and sent["body"]["conversation_id"] == conversation and sent["headers"]["idempotency-key"]
        # The queries of the seed documents run unchanged.
        assert len(server.rows("SELECT id, tool_name, status, created_at, started_at, finished_at, error FROM tool_call WHERE chat_id = ? ORDER BY created_at DESC", conversation)) == 1
        assert len(server.rows("SELECT request, response, error FROM tool_call WHERE id = ?", job)) == 1
        assert len(server.rows("SELECT * FROM messages WHERE conversation_id = ? AND tool_calls IS NOT NULL", conversation)) == 1
        assert len(server.rows("SELECT * FROM messages WHERE role = 'tool' AND status = 'error'")) == 0
        assert len(server.rows("SELECT * FROM messages WHERE tool_call_id = 'call_abc'")) == 1
        assert server.rows("SELECT count(*) AS n FROM chats")[0]["n"] == 1 and server.rows("SELECT count(*) AS n FROM api_usage_by_chat WHERE chat_id = ?", conversation)[0]["n"] == 2


def check_faulty_calls_end_with_typed_errors_and_the_chat_continues():
    with Scenario(timeout_ms=700, env={"WERKRUF_LIMIT_TOOL_MS": "700"}) as (model, tool, server):
        model.script = [
            calls(("no_such_tool", {}), ("get_weather", '{"city": "Bo'), ("get_weather", {"days": "many"}), ("test_panic", {}),
                  ("test_sleep", {"ms": 60000}), ("test_bytes", {"n": 10 * 1024 * 1024}), ("test_echo", {"value": 1}), ("get_weather", {"city": "Ulm"})),
            text("Some of it failed."),
        ]
        status, answer, _ = server.chat("All at once")
        assert status == 200 and answer["message"]["content"] == "Some of it failed.", answer
        found = {(r["tool"], r["status"], (r.get("error") or {}).get("type"), (r.get("error") or {}).get("code")) for r in answer["tool_results"]}
        assert found == {
            ("no_such_tool", "failed", "VALIDATION", "unknown_tool"), ("get_weather", "failed", "VALIDATION", "invalid_arguments"),
            ("test_panic", "failed", "FATAL", "tool_panicked"), ("test_sleep", "timeout", "TIMEOUT", "tool_timeout"),
            ("test_bytes", "failed", "FATAL", "response_too_large"), ("test_echo", "succeeded", None, None), ("get_weather", "succeeded", None, None)}, found
        rows = server.rows("SELECT tool_name, status, attempt, started_at, finished_at FROM tool_calls")
        assert len(rows) == 8 and all(r["finished_at"] for r in rows)
        for row in rows:
            never_sent = row["attempt"] == 0
            assert never_sent == (row["started_at"] is None), row
        assert len(tool.requests) == 1
        model.script = [text("Still here.")]
        status, answer, _ = server.chat("And now?", answer["conversation_id"])
        assert (status, answer["message"]["content"]) == (200, "Still here.")


def check_cut_streams_execute_nothing_and_are_requested_again():
    with Scenario() as (model, tool, server):
        model.script = [("cut", calls(("get_weather", {"city": "Bonn"}))), text("Second try.")]
        status, answer, _ = server.chat("Hi")
        assert (status, answer["message"]["content"], tool.requests, answer["tool_results"]) == (200, "Second try.", [], []), answer
        model.script = [("cut", text("Half an answer"))] * 3
        status, answer, _ = server.chat("Hi", answer["conversation_id"])
        assert (status, answer["error"]["code"]) == (502, "model_incomplete"), answer
        assert len(server.rows("SELECT * FROM api_usage")) == 5, "one row per request, retries included"


def check_shown_text_is_reset_before_a_retry():
    with Scenario() as (model, _, server):
        model.script = [("cut", text("Wrong beginning")), text("Right.")]
        received = [(name, data.get("content")) for _, name, data in server.stream("Hi")]
        names = [name for name, _ in received]
        assert "assistant_reset" in names and "".join(c for n, c in received[names.index("assistant_reset"):] if n == "assistant_token") == "Right."


def check_a_busy_model_is_retried_and_a_rejected_request_is_not():
    with Scenario() as (model, _, server):
        model.script = [("status", 429, {"retry-after": "1"}), text("Well.")]
        assert server.chat("Hi")[1]["message"]["content"] == "Well."
        model.requests.clear()
        model.script = [("status", 400)] * 3
        status, answer, _ = server.chat("Hi")
        assert (status, answer["error"]["code"], len(model.requests)) == (400, "model_refused", 1)
        model.requests.clear()
        model.script = [("status", 503)] * 4
        status, answer, _ = server.chat("Hi")
        assert (status, answer["error"]["code"], len(model.requests)) == (502, "model_unavailable", 3)


def check_identical_calls_run_once_each_with_its_row():
    with Scenario() as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}), ("get_weather", {"city": "Bonn"})), calls(("get_weather", {"city": "Bonn"})), text("Same.")]
        _, answer, _ = server.chat("Twice")
        assert len(tool.requests) == 1 and [r["data"] for r in answer["tool_results"]] == [{"city": "Bonn", "sky": "blue"}] * 3
        rows = server.rows("SELECT id, status, attempt, dedupe_of, dedupe_key, started_at FROM tool_calls ORDER BY step, output_index")
        leader = rows[0]["id"]
        assert [r["status"] for r in rows] == ["succeeded"] * 3 and [r["attempt"] for r in rows] == [1, 0, 0]
        assert [r["dedupe_of"] for r in rows] == [None, leader, leader] and len({r["dedupe_key"] for r in rows}) == 1
        assert [r["cache_hit"] for r in answer["tool_results"]] == [False, False, True]
        model.script = [calls(("get_weather", {"city": "Bonn"})), text("Again.")]
        server.chat("A new turn asks anew", answer["conversation_id"])
        assert len(tool.requests) == 2


def check_a_once_call_that_timed_out_is_never_sent_again():
    gate = threading.Event()

    def behave(request, number):
        gate.wait(20)
        return 200, {"sent": True}, {}

    with Scenario(behave, effect="once", timeout_ms=400) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"})), calls(("get_weather", {"city": "Bonn"})), text("Nobody knows.")]
        _, answer, _ = server.chat("Do it")
        first, second = answer["tool_results"]
        assert (first["status"], first["error"]["type"], first["error"]["code"]) == ("timeout", "FATAL", "outcome_unknown"), first
        assert (second["status"], second["error"]["code"]) == ("failed", "outcome_unknown") and len(tool.requests) == 1
        rows = server.rows("SELECT id, status, error_code, attempt FROM tool_calls ORDER BY step")
        assert [(r["status"], r["error_code"], r["attempt"]) for r in rows] == [("timeout", "outcome_unknown", 1), ("failed", "outcome_unknown", 0)]
        messages = model.last()["messages"]
        assert "outcome_unknown" in json.dumps(messages)
        status, refused, _ = server.call("POST", f"/api/tool-calls/{rows[0]['id']}/retry", {})
        assert status == 409 and len(tool.requests) == 1, refused
        gate.set()
        status, forced, _ = server.call("POST", f"/api/tool-calls/{rows[0]['id']}/retry", {"force": True})
        assert status == 202
        [row] = until(lambda: server.rows("SELECT * FROM tool_calls WHERE id = ? AND finished_at IS NOT NULL", forced["job_id"]))
        assert (row["status"], row["retry_of"]) == ("succeeded", rows[0]["id"]) and len(tool.requests) == 2
        assert tool.requests[0]["headers"]["idempotency-key"] == tool.requests[1]["headers"]["idempotency-key"]


def check_retries_follow_the_effect_and_keep_their_key():
    def flaky(request, number):
        return (503, {"error": "busy"}, {}) if number < 3 else (200, {"ok": True}, {})

    for effect, sends, status in (("idempotent", 3, "succeeded"), ("once", 1, "failed")):
        with Scenario(flaky, effect=effect) as (model, tool, server):
            model.script = [calls(("get_weather", {"city": "Bonn"})), text("Done.")]
            _, answer, _ = server.chat("Go")
            assert len(tool.requests) == sends and answer["tool_results"][0]["status"] == status
            assert len({r["headers"]["idempotency-key"] for r in tool.requests}) == 1
            assert [r["body"]["attempt"] for r in tool.requests] == list(range(1, sends + 1))
            _, call, _ = server.call("GET", "/api/tool-calls/" + answer["tool_results"][0]["job_id"])
            assert [a["attempt"] for a in call["attempts"]] == list(range(1, sends + 1)) and call["attempt"] == sends, call
            if effect == "once":
                assert call["error_code"] == "outcome_unknown"


def check_rate_limits_of_a_tool_are_respected():
    def limited(request, number):
        return (429, {"error": "slow down"}, {"retry-after": "1"}) if number == 1 else (200, {"ok": True}, {})

    with Scenario(limited) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"})), text("Done.")]
        _, answer, _ = server.chat("Go")
        assert answer["tool_results"][0]["status"] == "succeeded" and len(tool.requests) == 2


def check_endless_loops_end():
    with Scenario(env={"WERKRUF_LIMIT_STEPS": "5"}) as (model, tool, server):
        def again(request):
            return calls(("get_weather", {"city": "Bonn"})) if request.get("tools") else text("I stop here.")
        model.script = [again] * 30
        status, answer, _ = server.chat("Loop")
        assert (status, answer["message"]["content"]) == (200, "I stop here.") and len(tool.requests) == 1
        assert "repeat_limit" in {r["error_code"] for r in server.rows("SELECT error_code FROM tool_calls")}
        number = iter(range(1000))
        model.script = [lambda request: calls(("get_weather", {"city": f"City {next(number)}"}))] * 30
        model.requests.clear()
        status, answer, _ = server.chat("Loop on")
        assert (status, answer["error"]["code"], len(model.requests)) == (500, "step_limit", 6), answer
        model.script = [calls(("nope", {"n": n})) for n in range(10)]
        status, answer, _ = server.chat("Wrong on and on")
        assert (status, answer["error"]["code"]) == (500, "repeat_limit"), answer


def check_too_many_calls_and_odd_ids():
    with Scenario() as (model, _, server):
        model.script = [calls(*(("test_echo", {"value": n}) for n in range(129))), text("Many.")]
        _, answer, _ = server.chat("Many")
        outcomes = [r["status"] for r in answer["tool_results"]]
        assert outcomes.count("succeeded") == 128 and answer["tool_results"][128]["error"]["code"] == "too_many_calls"
        conversation = answer["conversation_id"]
        for _ in range(2):
            model.script = [calls(("test_echo", {"value": "a"}, "call_0"), ("test_echo", {"value": "b"}, "call_0"), ("test_echo", {"value": "c"}, "")), text("Odd.")]
            status, answer, _ = server.chat("Odd ids", conversation)
            assert status == 200 and [r["data"]["value"] for r in answer["tool_results"]] == ["a", "b", "c"], answer
        ids = [m["tool_call_id"] for m in server.rows("SELECT tool_call_id FROM messages WHERE role = 'tool'")]
        assert len(ids) == len(set(ids)) and "call_0" in ids
        stored = [r["call_id"] for r in server.rows("SELECT call_id FROM tool_calls WHERE tool_name = 'test_echo' ORDER BY id DESC LIMIT 3")]
        assert "call_0" in stored, "the provider's id is stored unchanged"


def check_invalid_model_output_never_breaks_the_chat():
    with Scenario() as (model, _, server):
        huge = {"city": 5, "days": ["x" * 1000] * 200}
        model.script = [calls(("multi_tool_use.parallel", "{broken"), ("", "[1]"), ("get_weather", huge), ("test_echo", {"value": 1}, "")), text("Odd.")]
        status, answer, _ = server.chat("Odd")
        assert (status, answer["message"]["content"]) == (200, "Odd."), answer
        shown = [m for m in model.last()["messages"] if m["role"] == "tool"]
        assert len(shown) == 4 and all(len(m["content"]) < 20000 for m in shown)
        [row] = server.rows("SELECT id FROM tool_calls WHERE tool_name = 'test_echo'")
        assert shown[3]["tool_call_id"] == "call_" + row["id"]
        assert server.chat("Still usable?", answer["conversation_id"])[0] == 200
        raw = [r["raw_arguments"] for r in server.rows("SELECT raw_arguments FROM tool_calls ORDER BY output_index")]
        assert raw[0] == "{broken", "the registry keeps what the model wrote"


def check_a_refused_invoke_stays_refused_on_retry():
    with Scenario() as (_, tool, server):
        _, out, headers = server.call("POST", "/api/tools/get_weather/invoke", {"input": {"days": "many"}})
        assert out["error"]["code"] == "invalid_arguments" and out["input"] == {"days": "many"}, out
        status, again, _ = server.call("POST", f"/api/tool-calls/{headers['x-tool-call-id']}/retry", {})
        assert status == 202
        [row] = until(lambda: server.rows("SELECT * FROM tool_calls WHERE id = ? AND finished_at IS NOT NULL", again["job_id"]))
        assert (row["status"], row["error_code"], tool.requests) == ("failed", "invalid_arguments", []), row


def check_users_see_only_their_own_data():
    with Scenario() as (model, _, server):
        model.script = [calls(("test_echo", {"value": "secret"})), text("Ok.")]
        _, answer, _ = server.chat("Mine", user=2)
        conversation, turn, job = answer["conversation_id"], answer["turn_id"], answer["tool_results"][0]["job_id"]
        _, key, _ = server.call("POST", "/api/keys", {"user_id": "3", "scopes": ["chat", "read", "tools"]})
        paths = [f"/api/conversations/{conversation}", f"/api/conversations/{conversation}/messages", f"/api/conversations/{conversation}/state",
                 f"/api/conversations/{conversation}/events", f"/api/turns/{turn}", f"/api/tool-calls/{job}"]
        unknown = "01900000-0000-7000-8000-000000000000"
        for path in paths:
            foreign = server.call("GET", path, key=key["key"])
            absent = server.call("GET", path.replace(conversation, unknown).replace(turn, unknown).replace(job, unknown), key=key["key"])
            for _, body, _ in (foreign, absent):
                body["error"].pop("request_id", None)
            assert foreign[0] == absent[0] == 404 and foreign[1] == absent[1], (path, foreign, absent)
            assert server.call("GET", path, user=2)[0] == 200
            assert server.call("GET", path, key=None)[0] == 401 and server.call("GET", path, key="wk_wrong")[0] == 401
        assert server.chat("Let me in", conversation, key=key["key"])[0] == 404
        assert server.call("POST", f"/api/turns/{turn}/cancel", {}, key=key["key"])[0] == 404
        assert server.call("GET", "/api/tool-calls", key=key["key"])[1]["tool_calls"] == []
        assert server.call("GET", "/api/conversations", key=key["key"])[1]["conversations"] == []


def check_debug_events_are_for_operators():
    with Scenario() as (model, _, server):
        _, key, _ = server.call("POST", "/api/keys", {"user_id": "3", "scopes": ["chat"]})
        model.script = [calls(("test_echo", {"value": 1})), text("Ok.")] * 2
        assert "debug" not in [n for _, n, _ in server.stream("Hi", key=key["key"], body={"debug": True})]
        received = [d["type"] for _, n, d in server.stream("Hi", body={"debug": True}) if n == "debug"]
        assert {"llm_choice", "llm_tool_call_arguments", "tool_pipeline_start", "tool_pipeline_execution"} <= set(received), received
        assert "debug" not in [e["type"] for e in server.rows("SELECT type FROM events")]
        whole = server.logged() + json.dumps([dict(r) for r in server.rows("SELECT data FROM events")])
        assert ADMIN not in whole and key["key"] not in whole


def check_invoke_answers_envelopes():
    with Scenario() as (_, tool, server):
        status, out, headers = server.call("POST", "/api/tools/get_weather/invoke", {"input": {"city": "Bonn"}}, headers={"x-trace-id": "t-1", "x-case-id": "crm-1"})
        assert status == 200 and out["status"] == "ok" and out["data"] == {"city": "Bonn", "sky": "blue"} and out["meta"]["took_ms"] >= 0, out
        [row] = server.rows("SELECT * FROM tool_calls WHERE id = ?", headers["x-tool-call-id"])
        assert (row["status"], row["trace_id"], row["case_id"], row["conversation_id"]) == ("succeeded", "t-1", "crm-1", None) and row["run_id"].startswith("run_")
        status, out, _ = server.call("POST", "/api/tools/get_weather/invoke", {"input": {"days": 1}})
        assert status == 200 and out["error"]["type"] == "VALIDATION" and out["error"]["code"] == "invalid_arguments"
        assert server.call("POST", "/api/tools/nope/invoke", {"input": {}})[0] == 404
        assert server.call("POST", "/api/tools/get_weather/invoke", b"not json")[0] == 400
        both = {"x-run-id": "run_1", "x-ingestion-run-id": "ingest_1"}
        for bad in (both, {"x-timeout-ms": "0"}, {"x-timeout-ms": "soon"}):
            status, out, _ = server.call("POST", "/api/tools/get_weather/invoke", {"input": {"city": "x"}}, headers=bad)
            assert (status, out["error"]["code"]) == (400, "invalid_context"), out
        status, out, _ = server.call("POST", "/api/tools/test_sleep/invoke", {"input": {"ms": 60000}}, headers={"x-timeout-ms": "300"})
        assert out["error"]["type"] == "TIMEOUT", out
        _, answer, _ = server.chat("Hi")
        status, out, _ = server.call("POST", "/api/tools/get_weather/invoke", {"input": {"city": "Ulm"}, "conversation_id": answer["conversation_id"]})
        assert out["meta"]["routing"]["state_patch"] == {"last_city": "Ulm"}, out
        assert server.call("GET", f"/api/conversations/{answer['conversation_id']}/state")[1] == {"last_city": "Ulm"}
        assert server.call("PATCH", f"/api/conversations/{answer['conversation_id']}/state", {"a": 1, "last_city": None})[1] == {"a": 1}


def check_same_key_is_the_same_turn():
    with Scenario() as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"})), text("Once.")]
        key = {"idempotency-key": "one"}
        status, first, _ = server.chat("Hi", headers=key)
        status, again, headers = server.chat("Hi", headers=key)
        assert status == 200 and again["turn_id"] == first["turn_id"] and headers["idempotent-replayed"] == "true"
        assert again == first and len(tool.requests) == 1
        status, other, _ = server.chat("Something else", headers=key)
        assert (status, other["error"]["code"]) == (422, "idempotency_key_reused")
        assert [name for _, name, _ in server.stream("Hi", headers=key)] == ["init", "tool_started", "tool_finished", "final"]
        gate = threading.Event()
        model.script = [lambda request: (gate.wait(20), text("Late."))[1]]
        late = threading.Thread(target=server.chat, args=("Slow",), kwargs={"headers": {"idempotency-key": "two"}})
        late.start()
        until(lambda: server.rows("SELECT * FROM inbox WHERE external_id = 'two'"))
        status, busy, headers = server.chat("Slow", headers={"idempotency-key": "two"})
        assert (status, busy["error"]["code"]) == (409, "turn_running") and headers["location"].startswith("/api/turns/"), busy
        gate.set()
        late.join()


def check_cancel_ends_the_turn_and_keeps_history_valid():
    with Scenario() as (model, _, server):
        model.script = [calls(("test_sleep", {"ms": 25000})), text("Never.")]
        received = []
        reader = threading.Thread(target=lambda: received.extend(server.stream("Sleep")))
        reader.start()
        [turn] = until(lambda: server.rows("SELECT turns.id, turns.conversation_id FROM turns JOIN tool_calls ON turn_id = turns.id WHERE tool_calls.status = 'running'"))
        assert server.rows("SELECT status FROM turns")[0]["status"] == "acting"
        assert server.call("POST", f"/api/turns/{turn['id']}/cancel", {})[0] == 202
        reader.join()
        assert received[-1][1] == "error" and received[-1][2]["code"] == "canceled" and received[-1][2]["type"] == "FATAL"
        assert server.rows("SELECT status FROM tool_calls")[0]["status"] == "canceled" and server.rows("SELECT status FROM turns")[0]["status"] == "canceled"
        model.script = [text("Going on.")]
        status, answer, _ = server.chat("And?", turn["conversation_id"])
        assert (status, answer["message"]["content"]) == (200, "Going on.")
        assert server.call("POST", f"/api/turns/{turn['id']}/cancel", {})[0] == 409


def check_messages_of_one_conversation_run_in_order():
    with Scenario() as (model, _, server):
        _, answer, _ = server.chat("First")
        conversation = answer["conversation_id"]
        gate = threading.Event()
        model.script = [lambda request: (gate.wait(20), text("A"))[1], text("B"), text("C")]
        for number, message in enumerate("abc", 1):
            status, accepted, _ = server.call("POST", "/api/chat", {"message": message, "conversation_id": conversation, "background": True}, headers={"accept": "application/json"})
            assert status == 202 and accepted["conversation_id"] == conversation, accepted
        gate.set()
        until(lambda: len(server.rows("SELECT 1 FROM turns WHERE status = 'completed'")) == 4)
        messages = [(m["role"], m["content"]) for m in server.rows("SELECT role, content FROM messages WHERE conversation_id = ? ORDER BY seq", conversation)][2:]
        assert messages == [("user", "a"), ("assistant", "A"), ("user", "b"), ("assistant", "B"), ("user", "c"), ("assistant", "C")], messages
        seqs = [e["seq"] for e in server.rows("SELECT seq FROM events WHERE conversation_id = ? ORDER BY seq", conversation)]
        assert seqs == list(range(1, len(seqs) + 1))


def check_events_can_be_read_again():
    with Scenario() as (model, _, server):
        model.script = [calls(("test_echo", {"value": 1})), text("Ok.")]
        live = [(n, name, data) for n, name, data in server.stream("Hi") if n]
        conversation = live[0][2]["conversation_id"]
        _, stored, _ = server.call("GET", f"/api/conversations/{conversation}/events?after=0")
        assert [(e["seq"], e["type"], e["data"]) for e in stored["events"]] == live
        assert [e["seq"] for e in server.call("GET", f"/api/conversations/{conversation}/events?after=2")[1]["events"]] == [3, 4]
        assert server.call("GET", f"/api/conversations/{conversation}/events?after=x")[0] == 400


def check_direct_answers_need_no_second_model_call():
    with Scenario(lambda request, number: (200, {"message": "It rains.", "mm": 3}, {}), config='answer = "direct"\n') as (model, _, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}))]
        _, answer, _ = server.chat("Weather?")
        assert answer["message"]["content"] == "It rains." and len(model.requests) == 1 and answer["usage"]["model_calls"] == 1


def check_bad_requests_get_helpful_errors():
    with Scenario() as (_, _, server):
        for body in (b"", b"{", b"[]", b"{}", b'{"message": ""}', b'{"message": 3}', json.dumps({"message": "x" * (1 << 20)}).encode()):
            status, answer, _ = server.call("POST", "/api/chat", body, headers={"accept": "application/json"})
            assert (status, answer["error"]["code"]) == (400, "invalid_request"), (body[:20], status, answer)
        assert server.chat("Hi", "01900000-0000-7000-8000-000000000000")[0] == 404
        assert server.chat("Hi", user=99)[0] == 403 and server.chat("Hi", user=99)[1]["error"]["code"] == "unknown_user"
        assert server.chat("Hi", user=None)[1]["error"]["code"] == "user_required"
        assert server.call("GET", "/nowhere")[0] == 404


def check_assistants_choose_prompt_and_tools():
    config = '[[assistants]]\nname = "clerk"\nprompt = "You are a clerk for {name} on {date}."\ntools = ["test_echo"]\nmodel = "small"\ntemperature = 0.5\n'
    with Scenario(config=config) as (model, _, server):
        server.chat("Hi", body={"assistant": "clerk"})
        request = model.last()
        assert request["messages"][0]["role"] in ("system", "developer") and request["messages"][0]["content"].startswith("You are a clerk for Ana")
        assert [t["function"]["name"] for t in request["tools"]] == ["test_echo"] and request["model"] == "small" and request["temperature"] == 0.5
        assert request["messages"][-1] == {"role": "user", "content": "Hi"}
        assert request["stream"] is True and request["stream_options"] == {"include_usage": True}
        assert server.chat("Hi", body={"assistant": "unknown"})[0] == 400


def check_sigterm_drains_and_stored_messages_stay():
    with Scenario() as (model, _, server):
        _, answer, _ = server.chat("Remember me")
        assert server.stop() == 0
        server.start()
        status, messages, _ = server.call("GET", f"/api/conversations/{answer['conversation_id']}/messages")
        assert [m["role"] for m in messages["messages"]] == ["user", "assistant"]
        status, more, _ = server.chat("Still there?", answer["conversation_id"])
        assert status == 200 and model.last()["messages"][1:] == [{"role": "user", "content": "Remember me"}, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Still there?"}], model.last()["messages"]
