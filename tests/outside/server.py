"""A werkruf process as an operator runs it, and the requests that a client sends to it."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import databases
from fakes import Model, Tool

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WERKRUF_BIN", str(ROOT / "target/debug/werkruf"))
ADMIN = "outside-admin-key-0123456789"
DEMO = "00000000-0000-7000-8000-000000000001"


def until(condition, seconds=20, what="a condition"):
    """Polls a condition until it holds. Checks wait for conditions and never for a fixed time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {seconds} s")
        time.sleep(0.02)


def environment(model=None, env=None):
    """The environment of a server: this process's variables without OPENAI_*, WERKRUF_* and OTEL_*, plus the ones set here."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "WERKRUF_", "OTEL_"))}
    plain.update({"WERKRUF_ADMIN_KEY": ADMIN, "WERKRUF_TEST_TOOLS": "1", "WERKRUF_SAMPLE_DATA": "on", "WERKRUF_LIMIT_TURNS_PER_MINUTE_USER": "0"})
    if model:
        plain.update({"OPENAI_BASE_URL": model.url + "/v1", "OPENAI_MODEL": "fake"})
    return {**plain, **(env or {})}


# With a configuration file only the modules that it names are on; most checks use them all.
MODULES = ("workspace", "flights", "knowledge", "ask_gpt")
# Most checks ask and approve with the operator's key. A check of the rule itself has a section of its own.
ONE_PERSON = "\n[approvals]\nfour_eyes = false\n"


class Server:
    """One server process with a database of its own."""

    def __init__(self, model=None, config="", env=None, modules=MODULES):
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-outside-")
        self.database = databases.make(self.folder.name)
        self.env = environment(model, {**self.database.env, **(env or {})})
        self.arguments = [BINARY, "serve", "--listen", "127.0.0.1:0", "--database", self.database.url]
        if config:
            path = os.path.join(self.folder.name, "werkruf.toml")
            pathlib.Path(path).write_text(config + ("" if "[approvals]" in config else ONE_PERSON) + "".join(f"\n[{module}]\n" for module in modules))
            self.arguments += ["--config", path]
        self.start()

    @property
    def db(self):
        """The database file, on SQLite."""
        return self.database.file

    def start(self):
        self.log = open(os.path.join(self.folder.name, "log"), "ab")
        self.process = subprocess.Popen(self.arguments, env=self.env, cwd=self.folder.name, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.printed = []
        for line in self.process.stdout:
            self.printed.append(line)
            if "http://" in line:
                self.url = line[line.index("http://"):].split()[0].rstrip("/")
                break
        else:
            raise AssertionError("serve printed no address: " + pathlib.Path(self.log.name).read_text()[-2000:])
        until(lambda: self.call("GET", "/readyz", key=None)[0] == 200, what="/readyz")

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.folder.cleanup()

    def logged(self):
        return pathlib.Path(self.log.name).read_text()

    def open(self, method, path, body=None, key=ADMIN, user=1, headers=None, timeout=60):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("content-type", "application/json")
        if key:
            request.add_header("authorization", "Bearer " + key)
        if key == ADMIN and user is not None:
            request.add_header("x-user-id", str(user))
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        return urllib.request.urlopen(request, timeout=timeout)

    def call(self, method, path, body=None, **more):
        """(status, parsed body, headers)"""
        try:
            with self.open(method, path, body, **more) as answer:
                raw, status, headers = answer.read(), answer.status, answer.headers
        except urllib.error.HTTPError as error:
            raw, status, headers = error.read(), error.code, error.headers
        except (urllib.error.URLError, ConnectionError):
            return 0, None, {}
        try:
            return status, json.loads(raw) if raw else None, headers
        except ValueError:
            return status, raw.decode(errors="replace"), headers

    def chat(self, message, conversation=None, headers=None, **more):
        """Sends a chat message in JSON mode."""
        body = {"message": message, **({"conversation_id": conversation} if conversation else {}), **more.pop("body", {})}
        return self.call("POST", "/api/chat", body, headers={"accept": "application/json", **(headers or {})}, **more)

    def stream(self, message, conversation=None, **more):
        """Sends a chat message; returns its SSE events: [(id or None, event, data)]."""
        body = {"message": message, **({"conversation_id": conversation} if conversation else {}), **more.pop("body", {})}
        with self.open("POST", "/api/chat", body, **more) as answer:
            return list(events(answer))

    def rows(self, sql, *values):
        return self.database.rows(sql, values)

    def change(self, *statements):
        """Writes to the database in one transaction: (sql, values) each. Stop the server first."""
        self.database.change(statements)

    def cli(self, *arguments, stdin=None, env=None):
        base = {k: v for k, v in self.env.items() if not k.startswith("OPENAI_")}
        return subprocess.run([BINARY, *arguments], capture_output=True, text=True, input=stdin, cwd=self.folder.name,
                              env={**base, "WERKRUF_DATABASE": self.database.url, **(env or {})}, timeout=60)


class Replica(Server):
    """Another server on the database of the first one."""

    def __init__(self, first):
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-outside-")
        self.database, self.env, self.arguments = first.database, first.env, list(first.arguments)
        self.start()


def events(answer):
    """Parses an SSE body."""
    number = name = None
    data = []
    for line in answer:
        line = line.decode().rstrip("\r\n")
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].lstrip())
        elif not line and name:
            yield number, name, json.loads("\n".join(data))
            number = name = None
            data = []


@contextlib.contextmanager
def with_model_and_tool(config, answer, env=None, modules=MODULES):
    """A server whose configuration names a scripted tool at `{url}`; yields the model, the tool and the server."""
    model, tool = Model(), Tool(answer)
    server = Server(model, config.format(url=tool.url), env, modules)
    try:
        yield model, tool, server
    finally:
        server.close()
        model.close()
        tool.close()
