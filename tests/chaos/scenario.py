"""The programs around a crashing server: a model that answers from the history alone, a tool that counts requests, clients that retry."""
import atexit
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))
from fakes import FakeEndpoint, FakeServer, calls, chunk, text  # noqa: E402
from server import Server, events, until  # noqa: E402

EFFECTS = ("read", "idempotent", "once")
# Signs the notifications about ended turns.
SECRET = "secret-of-the-notifications"
LOST = (urllib.error.URLError, ConnectionError, http.client.HTTPException, TimeoutError, ValueError, OSError)


def message(run, effect, shape="one", rounds=1, think_ms=0, work_ms=0, pace_ms=0, suffix="", **more):
    fields = {"run": run, "effect": effect + suffix, "shape": shape, "rounds": rounds, "think": think_ms, "work": work_ms, "pace": pace_ms, **more}
    return " ".join(f"{name}={value}" for name, value in fields.items())


def wanted(request):
    """The fields of the last user message, and the number of finished rounds of calls."""
    messages = request["messages"]
    at = max(i for i, m in enumerate(messages) if m["role"] == "user")
    fields = dict(re.findall(r"(\w+)=(\S+)", messages[at]["content"]))
    return fields, sum(1 for m in messages[at:] if m.get("tool_calls"))


class Model(FakeServer):
    """Stateless: answers from the history in the request, so a request can be repeated any number of times."""

    def __init__(self):
        self.answered = []

        class Endpoint(FakeEndpoint):
            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})

            def do_POST(self):
                request = json.loads(self.body())
                fields, done = wanted(request)
                self.owner.note({"run": fields["run"]})
                time.sleep(int(fields["think"]) / 1000)
                self.close_connection = True
                try:
                    self.owner.send_response(self, fields, done, [b"data: " + item + b"\n\n" for item in stream(fields, done)])
                    self.owner.answered.append(fields["run"])
                except OSError:
                    pass  # the server died while it received the response

        super().__init__(Endpoint)
        self.http.handle_error = lambda *_: None  # connections break here all the time

    def send_response(self, endpoint, fields, done, pieces):
        endpoint.send_response(200)
        endpoint.send_header("content-type", "text/event-stream")
        endpoint.send_header("connection", "close")
        endpoint.end_headers()
        for piece in pieces:
            endpoint.wfile.write(piece)
            if done == int(fields["rounds"]):
                time.sleep(int(fields["pace"]) / 1000)


def stream(fields, done):
    """The SSE payloads of one response."""
    if done < int(fields["rounds"]):
        other = "chaos_" + fields["effect"]
        wanted_calls = {"one": [(other, 0)], "three": [(other, 0), (other, 1), (other, 2)], "twins": [(other, 0), (other, 0)],
                        "mixed": [("chaos_read", 0), ("chaos_once", 1)]}[fields["shape"]]
        arguments = lambda n: {"run": fields["run"], "n": n, "round": done, "work": int(fields["work"])}
        chunks = calls(*((tool, arguments(n)) for tool, n in wanted_calls), before="Let me see. ")
    else:
        answer = f"This is the whole answer to {fields['run']}, sent in a few pieces."
        # WhatsApp needs as many messages as there are paragraphs.
        more = (f"Part {n} of the answer to {fields['run']}: " + "word " * 600 + "end." for n in range(2, int(fields.get("parts", 1)) + 1))
        chunks = text("\n\n".join([answer + " word" * 600 if "parts" in fields else answer, *more]), 4)
    usage = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
    return [json.dumps(item).encode() for item in chunks + [usage]] + [b"[DONE]"]


class Tool(FakeServer):
    """Records every request before it does anything else. `kill_during` maps a request to a function that kills the server during it."""

    def __init__(self):
        self.kill_during, self.answered, self.notified = {}, [], []

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                raw = self.body()
                body = json.loads(raw)
                if self.path == "/notified":
                    signature = "sha256=" + hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
                    with self.owner.lock:
                        self.owner.notified.append({"id": body["id"], "turn_id": body["turn_id"], "body": raw.decode(),
                                                    "signed": hmac.compare_digest(signature, self.headers["x-werkruf-signature-256"] or "")})
                    return self.answer(200, {})
                arguments = body["arguments"]
                self.owner.note({"run": arguments["run"], "n": arguments["n"], "round": arguments["round"], "effect": self.path.strip("/"),
                                 "job_id": body["job_id"], "turn_id": body["turn_id"], "key": self.headers["idempotency-key"]})
                with self.owner.lock:
                    kill = self.owner.kill_during.pop((arguments["run"], arguments["n"]), None)
                if kill:
                    kill()
                    self.close_connection = True
                    return
                time.sleep((arguments["work"] + 15 * arguments["n"]) / 1000)
                try:
                    self.answer(200, {"n": arguments["n"], "done": True})
                    self.owner.answered.append(arguments["run"])
                except OSError:
                    pass  # the server died while it awaited the response

        super().__init__(Endpoint)
        self.http.handle_error = lambda *_: None  # connections break here all the time


TOOL = """
[[tools]]
name = "chaos_%(name)s"
description = "Counts"
kind = "http"
url = "%(url)s/%(effect)s"
effect = "%(effect)s"
permission = "none"
parameters = '''{"type": "object", "properties": {"run": {"type": "string"}, "n": {"type": "integer"}, "round": {"type": "integer"}, "work": {"type": "integer"}}, "required": ["run", "n", "round", "work"]}'''
"""


# Never used up: the auditor compares their counters with the usage rows.
BUDGETS = "".join(f"[[budgets]]\nscope = '{scope}'\nperiod = 'day'\nunit = '{unit}'\nlimit = 1000000000\n"
                  for scope, unit in (("tenant", "model_calls"), ("user", "tokens")))


def config(tool, budgets=True):
    """Three counting tools, one per effect, three more that need an approval, and budgets."""
    plain = "".join(TOOL % {"name": effect, "effect": effect, "url": tool.url} for effect in EFFECTS)
    with_approval = "".join(TOOL % {"name": effect + "_approved", "effect": effect, "url": tool.url} + 'approval = "admin"\n' for effect in EFFECTS)
    notified = f"[[webhooks]]\nname = 'chaos'\nurl = '{tool.url}/notified'\nevents = ['turn_finished', 'turn_failed']\nsecret_env = 'CHAOS_SECRET'\n"
    # The harness asks and approves with one key.
    return "[retention]\nevents_days = 1\n[approvals]\nfour_eyes = false\n" + notified + plain + with_approval + (BUDGETS if budgets else "")


# No server process is left running when the harness fails.
STARTED = []
atexit.register(lambda: [process.kill() for process in STARTED if process.poll() is None])


class CrashingServer(Server):
    """A server that is expected to crash, on a database that survives it. Every second one has budgets, which change the order of its commits."""
    made = 0

    def __init__(self, model, tool, env=None):
        self.up = threading.Lock()
        self.kills = 0
        CrashingServer.made += 1
        super().__init__(model, config(tool, budgets=CrashingServer.made % 2 == 0), {"WERKRUF_SAMPLE_DATA": "on", "WERKRUF_LOG": "warn", "CHAOS_SECRET": SECRET, **(env or {})})

    def start(self, crash=None):
        """Returns when the server is ready, or dead if a crash is set."""
        env = {**self.env, **({"WERKRUF_CRASH": crash} if crash else {})}
        self.log = open(os.path.join(self.folder.name, "log"), "ab")
        self.process = subprocess.Popen(self.arguments, env=env, cwd=self.folder.name, stdout=subprocess.PIPE, stderr=self.log, text=True)
        STARTED[:] = [process for process in STARTED if process.poll() is None] + [self.process]
        for line in self.process.stdout:
            if "http://" in line:
                self.url = line[line.index("http://"):].split()[0].rstrip("/")
                break
        ready = lambda: self.process.poll() is not None or self.call("GET", "/readyz", key=None, timeout=5)[0] == 200
        until(ready, what="/readyz")
        if self.process.poll() is not None and not crash:
            raise AssertionError("serve exited: " + self.logged()[-2000:])

    def terminate(self, how=signal.SIGKILL):
        """Ends the process if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()

    def died(self):
        return self.process.poll() is not None


class Client:
    """Sends one message under one idempotency key, and retries until the turn has ended."""

    def __init__(self, server, run, content, conversation=None):
        self.server, self.run, self.key = server, run, "key-" + run
        self.body = {"message": content, **({"conversation_id": conversation} if conversation else {})}
        self.turn_id, self.conversation_id, self.text, self.received = None, conversation, None, []
        self.ended, self.error, self.refused, self.canceled = False, None, [], False

    def attempt(self):
        """One request: reads events until the connection is lost. True if the turn has ended."""
        texts = {}
        try:
            with self.server.open("POST", "/api/chat", self.body, headers={"idempotency-key": self.key}, timeout=20) as answer:
                for seq, kind, data in events(answer):
                    self.receive(seq, kind, data, texts)
        except urllib.error.HTTPError as error:
            body = error.read()
            error.close()
            self.refused.append((error.code, code_of(body)))
            if error.code not in (409, 503):
                raise AssertionError(f"{self.run}: {error.code} {body!r}") from error
        except LOST:
            pass
        return self.ended

    def receive(self, seq, kind, data, texts):
        if seq is not None:
            self.received.append([seq, kind])
        if kind == "init":
            self.turn_id, self.conversation_id = data["turn_id"], data["conversation_id"]
        elif kind == "assistant_token":
            texts[data["step"]] = texts.get(data["step"], "") + data["content"]
        elif kind == "assistant_snapshot":
            texts[data["step"]] = data["content"]
        elif kind == "assistant_reset":
            texts.pop(data["step"], None)
        elif kind in ("final", "error"):
            self.ended = True
            if kind == "final":
                self.text = data["message"]["content"]
                shown = texts.get(max(texts, default=0))
                # A client that received tokens of the last step must have received its whole text.
                if shown not in (None, self.text, "Let me see. "):
                    self.text = f"tokens: {shown}"
            else:
                self.error = data["code"]

    def finish(self, seconds=30):
        until(self.attempt, seconds, f"the end of {self.run}")

    def observation(self):
        return {"run": self.run, "key": self.key, "turn_id": self.turn_id, "conversation_id": self.conversation_id, "text": self.text, "received": self.received,
                "canceled": self.canceled}


class Direct:
    """Calls one tool without a model, and retries until it has the result envelope."""

    def __init__(self, server, run, effect, key):
        self.server, self.run, self.effect, self.key = server, run, effect, key
        self.job_id = self.ok = self.refused = None

    def attempt(self, timeout=20):
        body = {"input": {"run": self.run, "n": 0, "round": 0, "work": 0}}
        try:
            status, answer, headers = self.server.call("POST", f"/api/tools/chaos_{self.effect}/invoke", body, headers={"idempotency-key": self.key}, timeout=timeout)
        except LOST:
            return False
        if status in (0, 409, 503):
            self.refused = (status, code_of(json.dumps(answer)), headers.get("retry-after"))
            return False
        if status != 200:
            raise AssertionError(f"{self.run}: {status} {answer}")
        self.job_id, self.ok = headers["x-tool-call-id"], "error" not in answer
        return True

    def finish(self, seconds=30):
        until(self.attempt, seconds, f"the end of {self.run}")

    def observation(self):
        return {"run": self.run, "key": self.key, "job_id": self.job_id, "ok": self.ok}


def code_of(body):
    try:
        return json.loads(body)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
