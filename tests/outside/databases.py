"""The database of a server, read and changed from outside: the same SQL and the same values on SQLite and PostgreSQL."""
import base64
import json
import os
import pathlib
import re
import sqlite3
import subprocess

SCRIPTS = pathlib.Path(__file__).resolve().parents[1] / "postgres"
TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?\+00:00$")


class Sqlite:
    env = {}
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table'"

    def __init__(self, folder):
        self.file = os.path.join(folder, "w.db")
        self.url = "sqlite:" + self.file

    def rows(self, sql, values):
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, values)]

    def change(self, statements):
        with sqlite3.connect(self.file) as db:
            for sql, values in statements:
                db.execute(sql, values)
        db.close()


class Postgres:
    """Uses psql, because Python's standard library has no PostgreSQL client. Times, flags and JSON are returned as SQLite spells them."""

    # The turns of a killed server resume when its lease has expired, so the lease is short.
    # Servers on several machines share no key file, so the key that encrypts stored tokens is always set.
    tables = "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'werkruf'"
    env = {"WERKRUF_LIMIT_LEASE_TTL_MS": "3000", "WERKRUF_SECRET_KEY": base64.b64encode(b"k" * 32).decode()}

    def __init__(self, _folder):
        made = subprocess.run([SCRIPTS / "fresh", str(os.getpid())], capture_output=True, text=True)
        if made.returncode:
            raise AssertionError(made.stderr)
        self.url = made.stdout.strip()

    def run(self, sql):
        done = subprocess.run([SCRIPTS / "sql", self.url], input="SET search_path TO werkruf; SET TimeZone TO 'UTC';\n" + sql, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{sql}: {done.stderr}")
        return done.stdout

    def rows(self, sql, values):
        answer = self.run(f"SELECT row_to_json(result) FROM ({bound(sql, values)}) AS result;")
        return [{name: spelled(value) for name, value in json.loads(line).items()} for line in answer.splitlines() if line]

    def change(self, statements):
        self.run("".join(bound(sql, values) + ";\n" for sql, values in statements))


def bound(sql, values):
    parts = sql.split("?")
    assert len(parts) == len(values) + 1, sql
    return parts[0] + "".join(literal(value) + part for value, part in zip(values, parts[1:]))


def literal(value):
    if value is None or isinstance(value, (int, float)):
        return "NULL" if value is None else str(value)
    return "'" + str(value).replace("'", "''") + "'"


def spelled(value):
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    found = TIME.match(value) if isinstance(value, str) else None
    if found:
        return f"{found[1]}.{((found[2] or '.')[1:] + '000')[:3]}Z"
    return value


def make(folder):
    kind = {"": Sqlite, "sqlite": Sqlite, "postgres": Postgres}[os.environ.get("WERKRUF_OUTSIDE_DATABASE", "")]
    return kind(folder)


def sqlite_only(check):
    """Marks a check that applies only to a database file."""
    check.only = "sqlite"
    return check


def postgres_only(check):
    """Marks a check that applies only to a shared database."""
    check.only = "postgres"
    return check
