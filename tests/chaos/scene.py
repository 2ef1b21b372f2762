"""What stands around the server while it dies: a model that answers from the history alone, a tool that counts, clients that ask again."""
import atexit
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
import house as outside  # noqa: E402
from fakes import Quiet, Server, calls, chunk, text  # noqa: E402
from house import House, events, until  # noqa: E402

EFFECTS = ("read", "idempotent", "once")
LOST = (urllib.error.URLError, ConnectionError, http.client.HTTPException, TimeoutError, ValueError, OSError)


def message(run, effect, shape="one", rounds=1, think_ms=0, work_ms=0, pace_ms=0, asks="", **more):
    words = {"run": run, "effect": effect + asks, "shape": shape, "rounds": rounds, "think": think_ms, "work": work_ms, "pace": pace_ms, **more}
    return " ".join(f"{name}={value}" for name, value in words.items())


def wanted(request):
    """What the last message of the person asks for, and how many rounds of calls are done."""
    messages = request["messages"]
    at = max(i for i, m in enumerate(messages) if m["role"] == "user")
    words = dict(re.findall(r"(\w+)=(\S+)", messages[at]["content"]))
    return words, sum(1 for m in messages[at:] if m.get("tool_calls"))


class Model(Server):
    """Knows only the history it is given, so it may be asked any number of times."""

    def __init__(self):
        self.answered = []

        class Handler(Quiet):
            def do_GET(self):
                self.answer(200, {"object": "list", "data": [{"id": "fake", "object": "model"}]})

            def do_POST(self):
                request = json.loads(self.body())
                words, done = wanted(request)
                self.owner.note({"run": words["run"]})
                time.sleep(int(words["think"]) / 1000)
                self.close_connection = True
                try:
                    self.owner.speak(self, words, done, [b"data: " + item + b"\n\n" for item in stream(words, done)])
                    self.owner.answered.append(words["run"])
                except OSError:
                    pass  # the server died while it listened

        super().__init__(Handler)
        self.http.handle_error = lambda *_: None  # connections break here all the time

    def speak(self, handler, words, done, pieces):
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
            if done == int(words["rounds"]):
                time.sleep(int(words["pace"]) / 1000)


def stream(words, done):
    """The payloads of one answer."""
    if done < int(words["rounds"]):
        other = "chaos_" + words["effect"]
        wanted_calls = {"one": [(other, 0)], "three": [(other, 0), (other, 1), (other, 2)], "twins": [(other, 0), (other, 0)],
                        "mixed": [("chaos_read", 0), ("chaos_once", 1)]}[words["shape"]]
        arguments = lambda n: {"run": words["run"], "n": n, "round": done, "work": int(words["work"])}
        chunks = calls(*((tool, arguments(n)) for tool, n in wanted_calls), before="Let me see. ")
    else:
        chunks = text(f"This is the whole answer to {words['run']}, said in a few pieces.", 4)
    usage = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
    return [json.dumps(item).encode() for item in chunks + [usage]] + [b"[DONE]"]


class Tool(Server):
    """Counts every request before it does anything else. A run in `deadly` has its server killed while the request is held."""

    def __init__(self):
        self.deadly, self.answered = {}, []

        class Handler(Quiet):
            def do_POST(self):
                body = json.loads(self.body())
                asked = body["arguments"]
                self.owner.note({"run": asked["run"], "n": asked["n"], "round": asked["round"], "effect": self.path.strip("/"),
                                 "job_id": body["job_id"], "turn_id": body["turn_id"], "key": self.headers["idempotency-key"]})
                with self.owner.lock:
                    kill = self.owner.deadly.pop((asked["run"], asked["n"]), None)
                if kill:
                    kill()
                    self.close_connection = True
                    return
                time.sleep((asked["work"] + 15 * asked["n"]) / 1000)
                try:
                    self.answer(200, {"n": asked["n"], "done": True})
                    self.owner.answered.append(asked["run"])
                except OSError:
                    pass  # the server died while it waited

        super().__init__(Handler)
        self.http.handle_error = lambda *_: None  # connections break here all the time


TOOL = """
[[tools]]
name = "chaos_%(name)s"
description = "Counts"
kind = "http"
url = "%(url)s/%(effect)s"
effect = "%(effect)s"
timeout_ms = 10000
parameters = '''{"type": "object", "properties": {"run": {"type": "string"}, "n": {"type": "integer"}, "round": {"type": "integer"}, "work": {"type": "integer"}}, "required": ["run", "n", "round", "work"]}'''
"""


def config(tool):
    """Three tools that count, by effect, and three that ask a person first."""
    plain = "".join(TOOL % {"name": effect, "effect": effect, "url": tool.url} for effect in EFFECTS)
    asked = "".join(TOOL % {"name": effect + "_asked", "effect": effect, "url": tool.url} + 'approval = "admin"\n' for effect in EFFECTS)
    return "[retention]\nevents_days = 1\n" + plain + asked


# Whatever goes wrong here, no server is left behind.
STARTED = []
atexit.register(lambda: [process.kill() for process in STARTED if process.poll() is None])


class Victim(House):
    """A server that is expected to die, on a database that outlives it."""

    def __init__(self, model, tool, env=None):
        self.up = threading.Lock()
        self.kills = 0
        super().__init__(model, config(tool), {"WERKRUF_SAMPLE_DATA": "on", "WERKRUF_LOG": "warn", **(env or {})})

    def start(self, crash=None):
        """Up and ready, or dead already where the crash is armed."""
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
            raise AssertionError("serve did not stay: " + self.logged()[-2000:])

    def bury(self, how=signal.SIGKILL):
        """Makes sure that it is dead."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.log.close()

    def died(self):
        return self.process.poll() is not None


class Client:
    """Sends one message under one key, and asks again until it knows the end."""

    def __init__(self, victim, run, content, conversation=None):
        self.victim, self.run, self.key = victim, run, "key-" + run
        self.body = {"message": content, **({"conversation_id": conversation} if conversation else {})}
        self.turn_id, self.conversation_id, self.text, self.heard = None, conversation, None, []
        self.ended, self.error, self.refused, self.canceled = False, None, [], False

    def ask(self):
        """Once: whatever comes before the connection is lost. True when that was the end of the turn."""
        spoken = {}
        try:
            with self.victim.open("POST", "/api/chat", self.body, headers={"idempotency-key": self.key}, timeout=20) as answer:
                for seq, kind, data in events(answer):
                    self.hear(seq, kind, data, spoken)
        except urllib.error.HTTPError as error:
            said = error.read()
            error.close()
            self.refused.append((error.code, code_of(said)))
            if error.code not in (409, 503):
                raise AssertionError(f"{self.run}: {error.code} {said!r}") from error
        except LOST:
            pass
        return self.ended

    def hear(self, seq, kind, data, spoken):
        if seq is not None:
            self.heard.append([seq, kind])
        if kind == "init":
            self.turn_id, self.conversation_id = data["turn_id"], data["conversation_id"]
        elif kind == "assistant_token":
            spoken[data["step"]] = spoken.get(data["step"], "") + data["content"]
        elif kind == "assistant_snapshot":
            spoken[data["step"]] = data["content"]
        elif kind == "assistant_reset":
            spoken.pop(data["step"], None)
        elif kind in ("final", "error"):
            self.ended = True
            if kind == "final":
                self.text = data["message"]["content"]
                shown = spoken.get(max(spoken, default=0))
                # Whoever heard the last step as it was spoken must have heard all of it.
                if shown not in (None, self.text, "Let me see. "):
                    self.text = f"tokens: {shown}"
            else:
                self.error = data["code"]

    def insist(self, seconds=30):
        until(self.ask, seconds, f"the end of {self.run}")

    def record(self):
        return {"run": self.run, "key": self.key, "turn_id": self.turn_id, "conversation_id": self.conversation_id, "text": self.text, "heard": self.heard,
                "canceled": self.canceled}


class Direct:
    """Calls one tool without a model, and asks again until it has the envelope."""

    def __init__(self, victim, run, effect, key):
        self.victim, self.run, self.effect, self.key = victim, run, effect, key
        self.job_id = self.ok = self.refused = None

    def ask(self, timeout=20):
        body = {"input": {"run": self.run, "n": 0, "round": 0, "work": 0}}
        try:
            status, answer, headers = self.victim.call("POST", f"/api/tools/chaos_{self.effect}/invoke", body, headers={"idempotency-key": self.key}, timeout=timeout)
        except LOST:
            return False
        if status in (0, 409, 503):
            self.refused = (status, code_of(json.dumps(answer)), headers.get("retry-after"))
            return False
        if status != 200:
            raise AssertionError(f"{self.run}: {status} {answer}")
        self.job_id, self.ok = headers["x-tool-call-id"], "error" not in answer
        return True

    def insist(self, seconds=30):
        until(self.ask, seconds, f"the end of {self.run}")

    def record(self):
        return {"run": self.run, "key": self.key, "job_id": self.job_id, "ok": self.ok}


def code_of(said):
    try:
        return json.loads(said)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
