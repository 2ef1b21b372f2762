"""Old rows are deleted by command and by the server itself; rows of unfinished work stay."""
import json

from check_turns import Scenario
from fakes import calls, text
from server import until

DAYS = "\n[retention]\nmessages_days = 2\nevents_days = 2\ncalls_days = 2\nusage_days = 2\n"
TABLES = ("messages", "events", "tool_calls", "api_usage", "turns", "conversations", "leases", "inbox", "call_attempts", "approvals")


def counted(server):
    return {table: server.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in TABLES}


def later(server, days):
    server.env["WERKRUF_CLOCK_OFFSET_S"] = str(int(days * 86400))


def check_old_rows_are_counted_and_deleted_by_command():
    with Scenario(config=DAYS) as (model, _, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}, "call_abc")), text("Blue sky in Bonn.")]
        _, answer, _ = server.chat("How is the weather in Bonn?", headers={"idempotency-key": "k"})
        server.call("POST", "/api/tools/get_weather/invoke", {"input": {"city": "Rom"}})
        run = lambda *more: json.loads(server.cli("retention", "run", "--json", *more).stdout)
        assert [run()[kind] for kind in ("messages", "events", "calls", "usage")] == [0, 0, 0, 0], "beside the running server; nothing is old yet"
        server.stop()
        before = counted(server)
        later(server, 3)
        would = run("--dry-run")
        assert would["dry_run"] is True and would["conversations"] is None, would
        assert (would["messages"], would["calls"], would["usage"]) == (4, 2, 2) and would["events"] == before["events"], (would, before)
        assert counted(server) == before, "counting deletes nothing"
        shown = server.cli("retention", "run", "--dry-run").stdout
        assert "WOULD GO" in shown and "messages" in shown and "OLDER THAN" in shown, shown
        done = run()
        assert {**done, "dry_run": True, "conversations": None} == {**would, **{k: done[k] for k in would if k.endswith("_before")}}, (done, would)
        assert done["conversations"] == 1
        assert set(counted(server).values()) == {0}, counted(server)
        server.start()
        status, refused, _ = server.call("GET", f"/api/conversations/{answer['conversation_id']}/messages")
        assert (status, refused["error"]["code"]) == (404, "not_found"), refused
        job = answer["tool_results"][0]["job_id"]
        for path in (f"/api/tool-calls/{job}", f"/api/tool-calls/{job}/explain", f"/api/turns/{answer['turn_id']}"):
            assert server.call("GET", path)[0] == 404, path
        status, again, headers = server.chat("How is the weather in Bonn?", headers={"idempotency-key": "k"})
        assert status == 200 and again["turn_id"] != answer["turn_id"] and not headers["idempotent-replayed"]


def check_a_server_deletes_old_rows_and_the_conversation_continues():
    with Scenario(config=DAYS) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}, "call_abc")), text("Blue.")]
        _, answer, _ = server.chat("Weather in Bonn?")
        conversation = answer["conversation_id"]
        server.stop()
        later(server, 1)
        server.start()
        model.script = [calls(("get_weather", {"city": "Rom"}, "call_def")), text("Sunny.")]
        server.chat("And in Rom?", conversation)
        server.stop()
        later(server, 2.5)
        server.start()
        path = f"/api/conversations/{conversation}/messages"
        listed = lambda: server.call("GET", path)[1]["messages"]
        until(lambda: listed()[0]["seq"] == 5, what="the end of the first turn's messages")
        assert [(m["seq"], m["role"]) for m in listed()] == [(5, "user"), (6, "assistant"), (7, "tool"), (8, "assistant")]
        until(lambda: server.rows("SELECT tool_name, call_id FROM tool_calls") == [{"tool_name": "get_weather", "call_id": "call_def"}], what="the end of its call")
        gone = answer["tool_results"][0]["job_id"]
        assert server.call("GET", f"/api/tool-calls/{gone}")[0] == 404
        status, refused, _ = server.call("GET", f"{path}?after=00000000-0000-7000-8000-00000000abcd")
        assert (status, refused["error"]["code"], refused["error"]["details"]) == (410, "messages_gone", {"first_seq": 5}), refused
        status, answer, _ = server.chat("And tomorrow?", conversation)
        assert status == 200, answer
        # The scripted model rejects what a real one would: a call without its result.
        sent = [m["content"] for m in model.last()["messages"] if m["role"] == "user"]
        assert sent == ["And in Rom?", "And tomorrow?"], sent
        assert server.call("GET", f"/api/conversations/{conversation}")[1]["title"] == "And in Rom?"


def check_invalid_retention_windows_are_refused():
    with Scenario() as (_, _, server):
        for line, why in (("messages_days = 0", "must be 1 to 36500"), ("calls_days = -3", "must be 1 to 36500"), ("usage_days = 1.5", "usage_days"), ("turn_days = 1", "turn_days")):
            with open(server.folder.name + "/bad.toml", "w") as file:
                file.write("[retention]\n" + line + "\n")
            done = server.cli("config", "check", "--config", "bad.toml")
            assert done.returncode == 1 and why in done.stdout + done.stderr and "line 2" in done.stdout, done
