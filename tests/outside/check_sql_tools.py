"""SQL tools: a named query on the operator's own database, SQLite and PostgreSQL, that only reads and is bounded in rows, bytes and time."""
import os
import pathlib
import sqlite3
import tempfile
import time

import databases
from databases import postgres_only, sqlite_only
from fakes import Model, calls, text
from server import DEMO, Server, until

TOOL = '''
[[tools]]
kind = "sql"
name = "{name}"
description = "Finds orders."
database = "{database}"
query = """{query}"""
permission = "{permission}"
{more}
parameters = \'\'\'{parameters}\'\'\'
'''
NONE = '{"type": "object", "properties": {}}'
ORDERS = [(1, 3, 1, "tea", "5.60"), (2, 3, 1, "cake", "12.00"), (3, 4, 2, "salt", "0.40"), (4, 1, 1, "it's", "1234567890123456.78")]


def tool(name, query, parameters=NONE, permission="none", more="", database="${ORDERS_DATABASE}"):
    return TOOL.format(name=name, query=query, parameters=parameters, permission=permission, more=more, database=database)


class Orders:
    """The operator's database: another file, or another PostgreSQL database than the server's."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-orders-")
        self.database = databases.make(self.folder.name)
        self.is_postgres = hasattr(self.database, "run")
        amount, data, at = ("numeric(20, 2)", "bytea", "timestamptz") if self.is_postgres else ("TEXT", "BLOB", "TEXT")
        tenant = "uuid" if self.is_postgres else "TEXT"
        statements = [f"CREATE TABLE orders (id integer PRIMARY KEY, tenant_id {tenant}, user_id integer, branch_id integer, title text, "
                      f"amount {amount}, scan {data}, at {at})"]
        bytes_ = "'\\x0102ff'" if self.is_postgres else "x'0102ff'"
        statements += [f"INSERT INTO orders VALUES ({id}, '{DEMO}', {user}, {branch}, '{title.replace(chr(39), chr(39) * 2)}', '{amount}', {bytes_}, "
                       f"'2026-11-18 00:45:32+00')" for id, user, branch, title, amount in ORDERS]
        self.run(statements)

    def run(self, statements):
        if self.is_postgres:
            # The operator's tables are in the schema `public`.
            self.database.run("SET search_path TO public;\n" + ";\n".join(statements) + ";\n")
        else:
            with sqlite3.connect(self.database.file) as db:
                for statement in statements:
                    db.execute(statement)
            db.close()

    def count(self):
        if self.is_postgres:
            return int(self.database.run("SET search_path TO public; SELECT count(*) FROM orders;").split()[-1])
        with sqlite3.connect(self.database.file) as db:
            return db.execute("SELECT count(*) FROM orders").fetchone()[0]


class Scenario:
    def __init__(self, config, env=None):
        self.config, self.env = config, env or {}

    def __enter__(self):
        self.orders, self.model = Orders(), Model()
        self.server = Server(self.model, self.config, {"ORDERS_DATABASE": self.orders.database.url, **self.env})
        return self.orders, self.model, self.server

    def __exit__(self, *_):
        self.server.close()
        self.model.close()
        self.orders.folder.cleanup()


def invoke(server, name, input, user=3):
    status, answer, _ = server.call("POST", f"/api/tools/{name}/invoke", {"input": input}, user=user)
    assert status == 200, answer
    return answer


BY_TITLE = '{"type": "object", "properties": {"title": {"type": "string"}, "limit": {"type": "integer", "default": 10}}, "required": ["title"]}'
MINE = ("SELECT id, title, amount, branch_id FROM orders WHERE user_id = :user_id AND tenant_id = :tenant_id AND branch_id = :branch_id "
        "AND (title LIKE :title OR ':title' = title) ORDER BY id LIMIT :limit -- not :this")


def check_arguments_are_bound_and_the_caller_is_not_an_argument():
    config = tool("my_orders", MINE, BY_TITLE) + tool("all_values", "SELECT scan, at, amount, title, NULL AS missing FROM orders WHERE id = :id",
                                                      '{"type": "object", "properties": {"id": {"type": "integer"}}}')
    with Scenario(config) as (orders, model, server):
        spec = next(entry for entry in server.call("GET", "/api/tools")[1]["tools"] if entry["name"] == "my_orders")
        assert spec["effect"] == "read", spec
        money = (lambda value: value) if not orders.is_postgres else float
        answer = invoke(server, "my_orders", {"title": "%"})
        assert answer["data"] == {"items": [{"id": 1, "title": "tea", "amount": money("5.60"), "branch_id": 1},
                                            {"id": 2, "title": "cake", "amount": money("12.00"), "branch_id": 1}], "count": 2, "truncated": False}, answer
        # Text of a model stays text, whatever it says.
        for title in ("' OR 1=1 --", "%' OR '1'='1", "it's"):
            assert invoke(server, "my_orders", {"title": title})["data"]["count"] == 0, title
        assert invoke(server, "my_orders", {"title": "it's"}, user=1)["data"]["items"][0]["id"] == 4
        # Another person sees her own rows, and a model cannot say that it is somebody else.
        assert [row["id"] for row in invoke(server, "my_orders", {"title": "%"}, user=4)["data"]["items"]] == [3]
        for name in ("user_id", "tenant_id", "branch_id"):
            data = invoke(server, "my_orders", {"title": "%", name: 4})
            assert data["status"] == "error" or [row["id"] for row in data["data"]["items"]] == [1, 2], data
        answer = invoke(server, "all_values", {"id": 4})
        assert answer["status"] == "ok", (answer, server.call("GET", "/api/tool-calls?order=desc&limit=1")[1])
        row = answer["data"]["items"][0]
        expected = {"scan": "AQL/", "at": "2026-11-18T00:45:32+00:00" if orders.is_postgres else "2026-11-18 00:45:32+00",
                    "amount": "1234567890123456.78", "title": "it's", "missing": None}
        assert row == expected, row
        model.script = [calls(("my_orders", {"title": "t%"})), text("One order: tea.")]
        status, answer, _ = server.chat("What did I order?", user=3)
        assert status == 200 and answer["tool_result"]["items"][0]["title"] == "tea", answer
        call = server.rows("SELECT effect, status FROM tool_calls WHERE id = ?", answer["tool_results"][0]["job_id"])[0]
        assert call == {"effect": "read", "status": "succeeded"}, call


def check_nothing_is_written_and_results_are_bounded():
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) SELECT i {1} FROM n"
    wide = "(SELECT repeat('x', 100000)) AS text" if os.environ.get("WERKRUF_OUTSIDE_DATABASE") == "postgres" else "printf('%.*c', 100000, 'x') AS text"
    write = "DELETE FROM orders"
    function = "WITH gone AS (DELETE FROM orders RETURNING id) SELECT id FROM gone"
    config = (tool("many", numbers.format(1000, "")) + tool("few", numbers.format(1000, ""), more="max_rows = 3")
              + tool("wide", numbers.format(100, ", " + wide)) + tool("write", write) + tool("write_inside", function)
              + tool("twice", "SELECT 1 AS a, 2 AS a") + tool("absent", "SELECT * FROM nowhere"))
    with Scenario(config) as (orders, _model, server):
        many = invoke(server, "many", {})
        assert many["data"]["count"] == 200 and many["data"]["truncated"] and many["data"]["items"][-1] == {"i": 200}, many
        few = invoke(server, "few", {})["data"]
        assert few == {"items": [{"i": 1}, {"i": 2}, {"i": 3}], "count": 3, "truncated": True,
                       "message": "There are more rows; only the first 3 are shown. Narrow the search."}, few
        for name, code in (("wide", "response_too_large"), ("write", "upstream_refused"), ("write_inside", "upstream_refused"),
                           ("twice", "upstream_refused"), ("absent", "upstream_refused")):
            answer = invoke(server, name, {})
            assert answer["status"] == "error" and answer["error"]["code"] == code, (name, answer)
            assert "orders" not in answer["error"]["message"] and "nowhere" not in answer["error"]["message"], answer
        assert orders.count() == len(ORDERS)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS most FROM n"


def processor_share(server):
    """The part of a processor that the server uses right now."""
    def used():
        fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before, started = used(), time.monotonic()
    time.sleep(0.5)
    return (used() - before) / (time.monotonic() - started)


def check_an_endless_query_ends_at_its_time_limit_and_by_cancel():
    config = tool("endless", ENDLESS, more="timeout_ms = 500\nattempts = 1") + tool("long", ENDLESS, more="timeout_ms = 30000") + tool("one", "SELECT 1 AS a")
    with Scenario(config) as (_orders, model, server):
        started = time.monotonic()
        answer = invoke(server, "endless", {})
        assert answer["error"]["code"] == "tool_timeout" and time.monotonic() - started < 10, answer
        for count in range(1, 5):
            model.script = [calls(("long", {}))]
            status, answer, _ = server.call("POST", "/api/chat", {"message": "How many?", "background": True}, headers={"accept": "application/json"})
            assert status == 202, answer
            until(lambda: server.rows("SELECT 1 AS a FROM tool_calls WHERE tool_name = 'long' AND status = 'running'"), what="the query runs")
            assert server.call("POST", f"/api/turns/{answer['turn_id']}/cancel")[0] == 202
            until(lambda: len(server.rows("SELECT status FROM tool_calls WHERE tool_name = 'long' AND status = 'canceled'")) == count, what="the call is canceled")
        until(lambda: processor_share(server) < 0.3, 5, "no query runs on")
        assert invoke(server, "one", {})["data"]["items"] == [{"a": 1}]
        assert server.stop() == 0, "no thread of a query keeps the process"
        server.start()


@postgres_only
def check_an_argument_that_does_not_fit_is_the_callers_fault():
    by_id = tool("by_id", "SELECT title FROM orders WHERE id = ANY(:ids) ORDER BY id", '{"type": "object", "properties": {"ids": {"type": "array"}}}')
    by_day = tool("by_day", "SELECT count(*) AS orders, sum(amount) AS total FROM orders WHERE at >= :day AND id < 4",
                  '{"type": "object", "properties": {"day": {"type": "string"}}}')
    with Scenario(by_id + by_day) as (_orders, _model, server):
        assert invoke(server, "by_id", {"ids": [1, 3]})["data"]["items"] == [{"title": "tea"}, {"title": "salt"}]
        wrong = invoke(server, "by_id", {"ids": ["one"]})
        assert (wrong["error"]["type"], wrong["error"]["code"]) == ("VALIDATION", "invalid_arguments"), wrong
        assert invoke(server, "by_day", {"day": "2026-01-01"})["data"]["items"] == [{"orders": 3, "total": 18.0}]
        assert invoke(server, "by_day", {"day": "soon"})["error"]["code"] == "invalid_arguments"


def check_a_missing_database_is_an_upstream_error_and_config_check_opens_nothing():
    nowhere = "postgres://nobody:pass-word-123@127.0.0.1:1/none" if os.environ.get("WERKRUF_OUTSIDE_DATABASE") == "postgres" else "sqlite:/nowhere/at/all.db"
    with Scenario(tool("lost", "SELECT 1 AS a", database=nowhere, more="attempts = 1")) as (_orders, _model, server):
        answer = invoke(server, "lost", {})
        assert answer["error"]["code"] == "upstream_unreachable" and "pass-word-123" not in str(answer), answer
        config = os.path.join(server.folder.name, "werkruf.toml")
        assert server.cli("config", "check", "--config", config).returncode == 0
        for broken, path in ((tool("a", "SELECT :who"), "/tools/0/query"), (tool("a", "SELECT 1; SELECT 2"), "/tools/0/query"),
                             (tool("a", "SELECT :user_id", '{"type": "object", "properties": {"user_id": {}}}'), "/tools/0/parameters"),
                             (tool("a", "SELECT 1", '{"type": "object", "properties": {"unused": {}}}'), "/tools/0/parameters"),
                             (tool("a", "SELECT 1", database="mysql://x"), "/tools/0/database"),
                             (tool("a", "SELECT 1", more="timeout_ms = 3600000"), "/tools/0/timeout_ms"),
                             (tool("a", "SELECT 1", more="url = 'http://x'"), "/tools/0/url"),
                             (tool("a", "SELECT 1").replace('permission = "none"', ""), "/tools/0/permission"),
                             (tool("a", "SELECT 1").replace('"sql"', '"graphql"'), "/tools/0/kind")):
            with open(config, "w") as file:
                file.write(broken)
            checked = server.cli("config", "check", "--config", config, "--json")
            assert checked.returncode == 1 and f'"{path}"' in checked.stdout + checked.stderr, (path, checked.stdout, checked.stderr)


@sqlite_only
def check_a_right_and_tenants_limit_a_query():
    config = tool("guarded", "SELECT count(*) AS n FROM orders", permission="table_requests:table:read") + tool("elsewhere", "SELECT 1 AS a", more="tenants = ['other']")
    with Scenario(config) as (_orders, _model, server):
        assert invoke(server, "guarded", {}, user=1)["data"]["items"] == [{"n": 4}]
        assert invoke(server, "guarded", {}, user=5)["error"]["code"] == "permission_denied"
        assert server.call("POST", "/api/tools/elsewhere/invoke", {"input": {}})[0] == 404
