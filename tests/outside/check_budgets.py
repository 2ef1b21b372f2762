"""A budget is a wall: whatever 200 clients, three servers and a kill -9 do, the provider is asked for no more than it allows."""
import concurrent.futures
import json
import os
import signal
import tempfile
import threading

from databases import Postgres
from fakes import Model, calls, text
from server import Replica, Server, until

CLIENTS = 200
# Requests have limits of their own, which would refuse some of the clients first.
UNLIMITED = {"WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER": "0", "WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY": "0"}
ENDED = ("completed", "failed", "canceled")


class Cluster:
    """A model, and one server on SQLite or three on PostgreSQL."""

    def __init__(self, env=None):
        self.model = Model()
        first = Server(self.model, env={**UNLIMITED, **(env or {})})
        more = 2 if isinstance(first.database, Postgres) else 0
        self.servers = [first, *(Replica(first) for _ in range(more))]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers[1:]:
            server.close()
        self.servers[0].close()
        self.model.close()

    def budget(self, unit, limit, **more):
        status, made, _ = self.servers[0].call("POST", "/api/budgets", {"scope": "tenant", "period": "day", "unit": unit, "limit": limit, **more})
        assert status == 201, made
        return made["id"]

    def counted(self):
        """(used, reserved) of the only budget"""
        [only] = self.alive().call("GET", "/api/budgets")[1]["budgets"]
        return only["used"], only["reserved"]

    def alive(self):
        return next(server for server in self.servers if server.process.poll() is None)

    def rows(self, sql):
        return self.servers[0].rows(sql)

    def race(self, message="Hello"):
        """All clients ask at once, each one of the servers; returns their statuses and codes. A server that is killed gives status 0."""
        ready = threading.Barrier(CLIENTS)

        def ask(number):
            ready.wait(60)
            try:
                status, body, headers = self.servers[number % len(self.servers)].chat(message, user=number % 4 + 1)
            except OSError:
                return 0, None
            if status == 429:
                assert int(headers["retry-after"]) >= 1 and body["error"]["type"] == "RATE_LIMIT", body
            return status, body["error"]["code"] if status >= 400 else None

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(ask, range(CLIENTS)))

    def quiet(self):
        """Waits until every turn has ended and nothing is reserved."""
        until(lambda: all(row["status"] in ENDED for row in self.rows("SELECT status FROM turns")), 90, "the end of all turns")
        until(lambda: self.counted()[1] == 0, 30, "the release of all reservations")


def sums(cluster):
    """What the usage rows say: calls, tokens, cost."""
    [row] = cluster.rows("SELECT count(*) AS calls, coalesce(sum(tokens_total), 0) AS tokens, coalesce(sum(cost_nano_usd), 0) AS cost FROM api_usage")
    return int(row["calls"]), int(row["tokens"]), int(row["cost"])


def check_two_hundred_clients_share_ten_model_calls():
    with Cluster() as cluster:
        cluster.budget("model_calls", 10)
        answers = cluster.race()
        assert set(answers) == {(200, None), (429, "budget_exceeded")}, set(answers)
        assert answers.count((200, None)) == 10 == len(cluster.model.requests), answers.count((200, None))
        cluster.quiet()
        assert cluster.counted() == (10, 0) and sums(cluster)[0] == 10
        # A refused message leaves nothing.
        for table, rows in (("turns", 10), ("conversations", 10), ("messages", 20), ("inbox", 0)):
            assert cluster.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] == rows, table


def check_turns_of_several_requests_share_ten_model_calls():
    with Cluster() as cluster:
        cluster.budget("model_calls", 10)
        asked = lambda request: text("Done.") if request["messages"][-1]["role"] == "tool" else calls(("test_echo", {"value": 1}))
        cluster.model.default = asked
        answers = cluster.race()
        assert set(answers) <= {(200, None), (429, "budget_exceeded")}, set(answers)
        assert len(cluster.model.requests) == 10, len(cluster.model.requests)
        cluster.quiet()
        assert cluster.counted() == (10, 0) and sums(cluster)[0] == 10


def check_a_killed_server_spends_nothing_beyond_the_budget():
    with Cluster() as cluster:
        cluster.budget("model_calls", 10)
        enough, go_on = threading.Event(), threading.Event()

        def withheld(_request):
            if len(cluster.model.requests) >= 6:
                enough.set()
            assert go_on.wait(120)
            return text("Done.")

        cluster.model.default = withheld
        killed = cluster.servers[-1]

        def kill():
            assert enough.wait(60)
            killed.stop(signal.SIGKILL)
            if len(cluster.servers) == 1:
                killed.start()
            go_on.set()

        killing = threading.Thread(target=kill)
        killing.start()
        answers = cluster.race()
        killing.join()
        assert {status for status, _ in answers} <= {0, 200, 429, 503}, set(answers)
        cluster.quiet()
        used, _ = cluster.counted()
        assert used == sums(cluster)[0] <= 10 and len(cluster.model.requests) <= 10, (used, len(cluster.model.requests))
        # Every request that the provider saw has a row: what a killed server asked counts too.
        assert len(cluster.model.requests) <= used, (len(cluster.model.requests), used)
        answers = cluster.race() if used == 10 else []
        assert all(answer == (429, "budget_exceeded") for answer in answers if answer[0]), set(answers)


def check_tokens_and_money_are_walls_too():
    with tempfile.TemporaryDirectory(prefix="werkruf-prices-") as folder:
        prices = os.path.join(folder, "prices.json")
        with open(prices, "w", encoding="utf-8") as file:
            json.dump({"models": [{"model": "fake", "usd_per_million": {"input": "2", "output": "8"}}]}, file)
        # An answer uses 300 tokens of prompt and 100 of text: 300 * 2000 + 100 * 8000 nano-dollars.
        for unit, per_request, limit in (("tokens", 400, 30_000), ("nano_usd", 1_400_000, 60_000_000)):
            with Cluster({"WERKRUF_PRICES": prices, "OPENAI_MAX_OUTPUT_TOKENS": "100"}) as cluster:
                cluster.model.usage = (300, 100)
                cluster.budget(unit, limit)
                answers = [answer for _ in range(3) for answer in cluster.race()]
                assert set(answers) == {(200, None), (429, "budget_exceeded")}, set(answers)
                cluster.quiet()
                spent = per_request * len(cluster.model.requests)
                assert cluster.counted() == (spent, 0) and 0 < spent <= limit, (unit, cluster.counted(), spent)
                assert sums(cluster)[1 if unit == "tokens" else 2] == spent
