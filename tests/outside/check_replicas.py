"""One message sent to three servers: no matter which server it reaches, and how often, it is one turn."""
import collections
import concurrent.futures
import json
import threading
import time

from databases import Postgres, postgres_only
from check_turns import Scenario
from fakes import calls, text
from server import Replica, until

COPIES = 100


class WithheldResponse:
    """A model response that is withheld until `open` is set."""

    def __init__(self, entry):
        self.entry, self.requested, self.open = entry, threading.Event(), threading.Event()

    def __call__(self, _request):
        self.requested.set()
        assert self.open.wait(60)
        return self.entry


def post_everywhere(replicas, path, body, headers):
    """Sends the same bytes to all replicas at once; returns (status, body, headers) of each copy."""
    raw, ready = json.dumps(body).encode(), threading.Barrier(COPIES)

    def post(number):
        ready.wait(30)
        return replicas[number % len(replicas)].call("POST", path, raw, headers=headers)

    with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
        return list(pool.map(post, range(COPIES)))


def turn_of(answer):
    """The turn of a response, and its kind as INTERFACE defines them: the answer, a replay, or a running turn."""
    status, body, headers = answer
    if status == 409:
        assert body["error"]["code"] == "turn_running", body
        return headers["location"].removeprefix("/api/turns/"), "running"
    assert status == 200, (status, body)
    return body["turn_id"], "replay" if headers["idempotent-replayed"] == "true" else "answer"


def row_of(server, table, where="1 = 1"):
    return server.rows(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0]["n"]


@postgres_only
def check_a_message_that_reaches_three_servers_a_hundred_times_is_one_turn():
    with Scenario() as (model, tool, server):
        replicas = [server, Replica(server), Replica(server)]
        try:
            assert len({replica.process.pid for replica in replicas}) == 3 and len({replica.url for replica in replicas}) == 3
            held = WithheldResponse(text("Blue sky in Bonn."))
            model.script = [calls(("get_weather", {"city": "Bonn"}, "call_abc")), held]
            headers = {"accept": "application/json", "idempotency-key": "once-and-only-once"}
            body = {"message": "How is the weather in Bonn?"}
            releasing = threading.Thread(target=lambda: (held.requested.wait(60), until(lambda: row_of(server, "turns") > 0), held.open.set()))
            releasing.start()
            answers = post_everywhere(replicas, "/api/chat", body, headers)
            releasing.join()
            turns = [turn_of(answer) for answer in answers]
            how = collections.Counter(kind for _, kind in turns)
            assert len({turn for turn, _ in turns}) == 1 and how["answer"] == 1, (how, turns)
            [turn] = {turn for turn, _ in turns}
            assert row_of(server, "turns") == row_of(server, "inbox") == row_of(server, "conversations") == 1
            messages = server.rows("SELECT role, turn_id FROM messages ORDER BY seq")
            assert [row["role"] for row in messages] == ["user", "assistant", "tool", "assistant"] and {row["turn_id"] for row in messages} == {turn}, messages
            assert row_of(server, "tool_calls") == len(tool.requests) == 1 and len(model.requests) == 2
            assert [e["type"] for e in server.rows("SELECT type FROM events ORDER BY seq")] == ["init", "tool_started", "tool_finished", "final"]
            # Afterwards every replica replays the one answer, also to the same bytes over SSE.
            for replica in replicas:
                status, again, replayed = replica.call("POST", "/api/chat", body, headers=headers)
                assert (status, again["turn_id"], replayed["idempotent-replayed"]) == (200, turn, "true"), again
                assert again["message"]["content"] == "Blue sky in Bonn."
                with replica.open("POST", "/api/chat", body, headers={**headers, "accept": "text/event-stream"}) as stream:
                    assert stream.headers["idempotent-replayed"] == "true" and turn in stream.read().decode()
                status, refused, _ = replica.call("POST", "/api/chat", {"message": "Another"}, headers=headers)
                assert (status, refused["error"]["code"]) == (422, "idempotency_key_reused"), refused
            assert row_of(server, "turns") == 1 and len(model.requests) == 2
        finally:
            for replica in replicas[1:]:
                replica.close()


@postgres_only
def check_the_openai_apis_know_a_copy_on_every_replica_too():
    """The same idempotency key on OpenAI's two APIs."""
    with Scenario() as (model, _, server):
        replicas = [server, Replica(server), Replica(server)]
        try:
            for number, (path, body) in enumerate((
                ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Hello"}]}),
                ("/v1/responses", {"model": "default", "input": "Hello"}),
            ), 1):
                answers = post_everywhere(replicas, path, body, {"idempotency-key": f"api-{number}"})
                assert {status for status, _, _ in answers} <= {200, 409}, answers
                accepted = [(answer["id"], headers["idempotent-replayed"] == "true") for status, answer, headers in answers if status == 200]
                assert len({name for name, _ in accepted}) == 1 and [again for _, again in accepted].count(False) == 1, accepted
                assert {headers["location"] for status, _, headers in answers if status == 409} <= \
                    {"/api/turns/" + row["id"] for row in server.rows("SELECT id FROM turns ORDER BY id DESC LIMIT 1")}
                assert row_of(server, "turns") == row_of(server, "conversations") == number and len(model.requests) == number
                assert row_of(server, "messages") == 2 * number
        finally:
            for replica in replicas[1:]:
                replica.close()


def check_a_direct_call_that_comes_a_hundred_times_at_once_is_sent_once():
    """This includes the case that the copy which became the turn had joined another copy, whose client then disconnected."""
    with Scenario(effect="once") as (_, tool, server):
        shared = isinstance(server.database, Postgres)
        replicas = [server] + ([Replica(server), Replica(server)] if shared else [])
        try:
            for number in range(1, 9):
                path, body = "/api/tools/get_weather/invoke", {"input": {"city": f"Bonn {number}"}}
                answers = post_everywhere(replicas, path, body, {"idempotency-key": f"call-{number}"})
                assert {status for status, _, _ in answers} <= {200, 409}, answers
                jobs = {headers["x-tool-call-id"] for status, _, headers in answers if status == 200}
                [row] = server.rows("SELECT id, status, attempt, dedupe_of, error_code FROM tool_calls ORDER BY id DESC LIMIT 1")
                assert jobs == {row["id"]} and (row["status"], row["attempt"], row["dedupe_of"]) == ("succeeded", 1, None), (number, jobs, row)
                assert all(answer["status"] == "ok" for status, answer, _ in answers if status == 200), answers
                assert len(tool.requests) == row_of(server, "tool_calls") == row_of(server, "turns") == number, "sent once"
        finally:
            for replica in replicas[1:]:
                replica.close()


@postgres_only
def check_replicas_share_the_limits_of_a_key_and_its_revocation():
    """The turns of a minute count over all servers, and a key that one server revokes ends its streams on the others."""
    with Scenario(env={"WERKRUF_LIMIT_TURNS_PER_MINUTE_KEY": "9"}) as (_, _, server):
        replicas = [server, Replica(server), Replica(server)]
        try:
            _, made, _ = server.call("POST", "/api/keys", {"user_id": 1, "scopes": ["read", "chat"]})
            _, other, _ = server.call("POST", "/api/keys", {"user_id": 1, "scopes": ["read", "chat"]})
            json_only = {"accept": "application/json"}
            statuses = [replica.call("POST", "/api/chat", {"message": "hello"}, key=made["key"], headers=json_only)[0] for replica in replicas for _ in range(9)]
            # Alone each server would admit all of its nine. A new minute of the database may begin meanwhile, and then nine more are admitted.
            assert set(statuses) == {200, 429} and 9 <= statuses.count(200) <= 18, statuses
            conversation = server.rows("SELECT id FROM conversations")[0]["id"]
            path = f"/api/conversations/{conversation}/events"
            with replicas[1].open("GET", path, key=other["key"], headers={"accept": "text/event-stream"}) as stream:
                assert server.call("DELETE", "/api/keys/" + other["id"])[0] == 204
                revoked = time.monotonic()
                stream.read()
                assert time.monotonic() - revoked < 5
            assert replicas[2].call("GET", "/api/conversations", key=other["key"])[0] == 401
        finally:
            for replica in replicas[1:]:
                replica.close()
