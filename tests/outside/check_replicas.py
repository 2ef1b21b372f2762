"""One message, three servers: whoever it reaches, and however often, it is one turn."""
import collections
import concurrent.futures
import json
import tempfile
import threading

from databases import Postgres, postgres_only
from check_spine import Scene
from fakes import calls, text
from house import House, until

COPIES = 100


class Neighbour(House):
    """One more server on the database of another house."""

    def __init__(self, house):
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-outside-")
        self.database, self.env = house.database, house.env
        self.arguments = list(house.arguments)
        self.start()


class Held:
    """An answer that comes when it is let go."""

    def __init__(self, entry):
        self.entry, self.asked, self.open = entry, threading.Event(), threading.Event()

    def __call__(self, _request):
        self.asked.set()
        assert self.open.wait(60)
        return self.entry


def post_everywhere(servers, path, body, headers):
    """The same bytes to all servers at once; (status, body, headers) of each copy."""
    raw, ready = json.dumps(body).encode(), threading.Barrier(COPIES)

    def post(number):
        ready.wait(30)
        return servers[number % len(servers)].call("POST", path, raw, headers=headers)

    with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
        return list(pool.map(post, range(COPIES)))


def turn_of(answer):
    """The turn an answer speaks of, and how: as INTERFACE says, its answer, its replay, or where it runs."""
    status, body, headers = answer
    if status == 409:
        assert body["error"]["code"] == "turn_running", body
        return headers["location"].removeprefix("/api/turns/"), "running"
    assert status == 200, (status, body)
    return body["turn_id"], "replay" if headers["idempotent-replayed"] == "true" else "answer"


def row_of(house, table, where="1 = 1"):
    return house.rows(f"SELECT count(*) AS n FROM {table} WHERE {where}")[0]["n"]


@postgres_only
def check_a_message_that_reaches_three_servers_a_hundred_times_is_one_turn():
    with Scene() as (model, tool, house):
        servers = [house, Neighbour(house), Neighbour(house)]
        try:
            assert len({server.process.pid for server in servers}) == 3 and len({server.url for server in servers}) == 3
            held = Held(text("Blue sky in Bonn."))
            model.script = [calls(("get_weather", {"city": "Bonn"}, "call_abc")), held]
            headers = {"accept": "application/json", "idempotency-key": "once-and-only-once"}
            body = {"message": "How is the weather in Bonn?"}
            letting_go = threading.Thread(target=lambda: (held.asked.wait(60), until(lambda: row_of(house, "turns") > 0), held.open.set()))
            letting_go.start()
            answers = post_everywhere(servers, "/api/chat", body, headers)
            letting_go.join()
            heard = [turn_of(answer) for answer in answers]
            how = collections.Counter(kind for _, kind in heard)
            assert len({turn for turn, _ in heard}) == 1 and how["answer"] == 1, (how, heard)
            [turn] = {turn for turn, _ in heard}
            assert row_of(house, "turns") == row_of(house, "inbox") == row_of(house, "conversations") == 1
            said = house.rows("SELECT role, turn_id FROM messages ORDER BY seq")
            assert [row["role"] for row in said] == ["user", "assistant", "tool", "assistant"] and {row["turn_id"] for row in said} == {turn}, said
            assert row_of(house, "tool_calls") == len(tool.requests) == 1 and len(model.requests) == 2
            assert [e["type"] for e in house.rows("SELECT type FROM events ORDER BY seq")] == ["init", "tool_started", "tool_finished", "final"]
            # Afterwards every server repeats the one answer, also to the same bytes over SSE.
            for server in servers:
                status, again, replayed = server.call("POST", "/api/chat", body, headers=headers)
                assert (status, again["turn_id"], replayed["idempotent-replayed"]) == (200, turn, "true"), again
                assert again["message"]["content"] == "Blue sky in Bonn."
                with server.open("POST", "/api/chat", body, headers={**headers, "accept": "text/event-stream"}) as stream:
                    assert stream.headers["idempotent-replayed"] == "true" and turn in stream.read().decode()
                status, refused, _ = server.call("POST", "/api/chat", {"message": "Another"}, headers=headers)
                assert (status, refused["error"]["code"]) == (422, "idempotency_key_reused"), refused
            assert row_of(house, "turns") == 1 and len(model.requests) == 2
        finally:
            for server in servers[1:]:
                server.close()


@postgres_only
def check_the_other_doors_know_a_copy_on_every_server_too():
    """The same key on OpenAI's two doors."""
    with Scene() as (model, _, house):
        servers = [house, Neighbour(house), Neighbour(house)]
        try:
            for number, (path, body) in enumerate((
                ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Hello"}]}),
                ("/v1/responses", {"model": "default", "input": "Hello"}),
            ), 1):
                answers = post_everywhere(servers, path, body, {"idempotency-key": f"door-{number}"})
                assert {status for status, _, _ in answers} <= {200, 409}, answers
                fine = [(said["id"], headers["idempotent-replayed"] == "true") for status, said, headers in answers if status == 200]
                assert len({name for name, _ in fine}) == 1 and [again for _, again in fine].count(False) == 1, fine
                assert {headers["location"] for status, _, headers in answers if status == 409} <= \
                    {"/api/turns/" + row["id"] for row in house.rows("SELECT id FROM turns ORDER BY id DESC LIMIT 1")}
                assert row_of(house, "turns") == row_of(house, "conversations") == number and len(model.requests) == number
                assert row_of(house, "messages") == 2 * number
        finally:
            for server in servers[1:]:
                server.close()


def check_a_direct_call_that_comes_a_hundred_times_at_once_is_sent_once():
    """Also where the copy that became the turn had joined another copy, which then had to leave."""
    with Scene(effect="once") as (_, tool, house):
        shared = isinstance(house.database, Postgres)
        servers = [house] + ([Neighbour(house), Neighbour(house)] if shared else [])
        try:
            for number in range(1, 9):
                path, body = "/api/tools/get_weather/invoke", {"input": {"city": f"Bonn {number}"}}
                answers = post_everywhere(servers, path, body, {"idempotency-key": f"call-{number}"})
                assert {status for status, _, _ in answers} <= {200, 409}, answers
                jobs = {headers["x-tool-call-id"] for status, _, headers in answers if status == 200}
                [row] = house.rows("SELECT id, status, attempt, dedupe_of, error_code FROM tool_calls ORDER BY id DESC LIMIT 1")
                assert jobs == {row["id"]} and (row["status"], row["attempt"], row["dedupe_of"]) == ("succeeded", 1, None), (number, jobs, row)
                assert all(said["status"] == "ok" for status, said, _ in answers if status == 200), answers
                assert len(tool.requests) == row_of(house, "tool_calls") == row_of(house, "turns") == number, "sent once"
        finally:
            for server in servers[1:]:
                server.close()
