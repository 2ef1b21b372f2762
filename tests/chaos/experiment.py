"""One experiment: a server on its own database, the faults injected into it, its clients, and what they observed."""
import contextlib
import json
import pathlib
import random
import shutil
import signal
import threading
import time
import traceback

import points
from auditor import audit
from proof import undetected
from scenario import EFFECTS, LOST, Client, CrashingServer, Direct, in_thread, message, until
from whatsapp import KEYWORDS, WRITERS, Graph, Meta, Writer

# How often a run whose crash point was not reached is repeated, before the point counts as unreachable.
TRIES = 5
# So many runs leave enough of everything that can be damaged.
PROVABLE = 10


class Experiment:
    """One server and its database, used by one thread; all experiments share the model and the tool."""

    def __init__(self, name, model, tool, env=None, serve=CrashingServer):
        self.name, self.model, self.tool, self.meta = name, model, tool, Meta(Graph())
        self.server = serve(model, tool, {**self.meta.graph.env(), **(env or {})})
        self.clients, self.directs, self.labels, self.failures = [], [], {}, []
        # Error codes with which the turn of a run may end.
        self.may_fail = {}
        self.runs = self.kills = self.faults = 0
        self.reached = True

    def run_id(self, label):
        self.runs += 1
        run = f"{self.name}-{self.runs}"
        self.labels[run] = label
        return run

    def client(self, label, conversation=None, **fields):
        run = self.run_id(label)
        client = Client(self.server, run, message(run, **fields), conversation)
        self.clients.append(client)
        return client

    def restart(self, crash=None):
        self.server.terminate()
        self.server.start(crash)

    def await_crash(self, crash, threads):
        """Waits for the crash, or for the end of all threads if the crash point was not reached."""
        until(lambda: self.server.died() or not any(t.is_alive() for t in threads), 30, f"the crash {crash}")
        if self.server.died() or died_soon(self.server):
            self.kills += 1
        else:
            self.reached = False

    def boots(self):
        """The number of server starts on this database."""
        return int(self.server.rows("SELECT value FROM settings WHERE name = 'boot_epoch'")[0]["value"])

    def restart_and_finish(self, *clients, threads=()):
        self.restart()
        for thread in threads:
            thread.join(30)
        for client in clients:
            client.finish()

    # ------------------------------------------------------------ one run each

    def point(self, effect, what, crash, shape, rounds):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, shape=shape, rounds=rounds)
        self.restart(crash)
        thread = in_thread(client.attempt)
        self.await_crash(crash, [thread])
        self.restart_and_finish(client, threads=[thread])

    def held(self, effect, what, n, shape):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, shape=shape)
        self.hold(client, n)
        self.restart_and_finish(client)

    def hold(self, client, n):
        if self.server.died():
            self.restart()
        self.tool.kill_during[client.run, n] = self.server.process.kill
        thread = in_thread(client.attempt)
        self.await_crash("held", [thread])
        thread.join(30)

    def takeover(self, effect, what, crash, shape):
        client = self.client(f"{effect}: takeover, {what}", self.conversation(), effect=effect, shape=shape or "one")
        if shape is None:
            self.restart("mid_stream:1")
            thread = in_thread(client.attempt)
            self.await_crash("mid_stream:1", [thread])
            thread.join(30)
        else:
            self.hold(client, {"three": 2}.get(shape, 0))
        self.restart(crash)
        unreached = effect == "once" and crash.startswith("tool_answered")
        if unreached:
            client.finish()  # no request is sent again, so the crash point is not reached
        else:
            thread = in_thread(client.finish)
            self.await_crash(crash, [thread])
            self.restart()
            thread.join(40)
        client.finish()

    def two_turns(self, effect, what, crash, **first_options):
        """A client whose first turn of a conversation runs, and a client for the second."""
        first = self.client(f"{effect}: {what} (first)", None, effect=effect, **first_options)
        self.restart(crash)
        threads = [in_thread(first.attempt)]
        until(lambda: first.conversation_id, what="init")
        second = self.client(f"{effect}: {what} (second)", first.conversation_id, effect=effect)
        return first, second, threads

    def waiting(self, effect, what, crash):
        first, second, threads = self.two_turns(effect, what, crash, think_ms=60)
        threads.append(in_thread(second.attempt))
        self.await_crash(crash, threads)
        self.restart_and_finish(first, second, threads=threads)

    def approval(self, effect, what, crash, shape):
        client = self.client(f"{effect}: approval, {what}", self.conversation(), effect=effect, shape=shape, suffix="_approved")
        self.restart(crash)
        thread = in_thread(lambda: client.finish(60))
        approver = in_thread(lambda: self.approve_until(lambda: client.ended))
        self.await_crash(crash, [thread])
        self.restart()
        thread.join(60)
        approver.join(10)
        client.finish()

    def approve_until(self, done):
        """Approves every pending call until `done` holds."""
        while not done():
            try:
                _, answer, _ = self.server.call("GET", "/api/approvals?status=pending", timeout=10)
                for row in (answer or {}).get("approvals", []):
                    self.server.call("POST", f"/api/approvals/{row['id']}", {"decision": "approve"}, timeout=10)
            except LOST:
                pass
            time.sleep(0.02)

    def long(self, effect, what, crash):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, pace_ms=300)
        self.restart(crash)
        thread = in_thread(client.attempt)
        self.await_crash(crash, [thread])
        self.restart_and_finish(client, threads=[thread])

    def outbox(self, effect, what, crash):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect)
        self.restart(crash)
        thread = in_thread(client.attempt)
        until(lambda: self.server.died() or client.ended, 30, "the end of the turn")
        until(lambda: self.server.died() or self.all_notified(), 30, f"the crash {crash}")
        self.await_crash(crash, [thread])
        self.restart_and_finish(client, threads=[thread])

    def all_notified(self):
        return not self.server.rows("SELECT 1 AS one FROM outbox WHERE status IN ('pending', 'sending')")

    def await_notifications(self):
        """A row that a killed server was sending is sent again after its claim has ended."""
        until(self.all_notified, 60, "the notifications")

    def whatsapp(self, effect, what, crash, kind):
        self.meta.serve(self.server)
        self.await_whatsapp()
        writer = self.writer(f"{effect}: WhatsApp, {what}", WRITERS[self.runs % len(WRITERS)], effect, kind)
        self.restart(crash)
        thread = in_thread(lambda: (writer.attempt(), writer.finish(), self.await_whatsapp()))
        self.await_crash(crash, [thread])
        self.restart()
        thread.join(60)
        writer.finish()

    def writer(self, label, user, effect, kind, **fields):
        """A message of a person: a keyword, a message that needs an approval, one with an answer in several parts, or any other."""
        run = self.run_id(label)
        more = {"approval": {"suffix": "_approved"}, "parts": {"parts": 3}}.get(kind, {})
        content = KEYWORDS[self.runs % len(KEYWORDS)] if kind == "keyword" else message(run, effect, **fields, **more)
        return Writer(self.meta, self.server, run, user, content)

    def await_whatsapp(self):
        """Everything is sent and reported, and nothing follows from the reports. On a busy machine that may take long, but it never stops for a minute."""
        done = lambda: self.all_notified() and self.meta.quiet()
        while not done():
            before = len(self.meta.reported)
            until(lambda: done() or len(self.meta.reported) > before, 60, "the next report of WhatsApp")

    def cancels(self, effect, what, crash):
        first, second, threads = self.two_turns(effect, what, crash, work_ms=400)
        second.canceled = True
        threads.append(in_thread(second.attempt))
        until(lambda: second.turn_id, what="the second init")
        self.server.call("POST", f"/api/turns/{second.turn_id}/cancel", {})
        self.await_crash(crash, threads)
        self.restart_and_finish(first, second, threads=threads)

    def retention(self, effect, what, crash):
        """The first batch runs when the server starts; the second is requested while a turn runs."""
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, think_ms=100)
        self.restart(crash)
        thread = in_thread(client.attempt)
        until(lambda: any(r["run"] == client.run for r in list(self.model.requests)), what="the request")
        self.server.call("POST", "/api/admin/retention", {}, user=None)
        self.await_crash(crash, [thread])
        self.restart_and_finish(client, threads=[thread])

    def drain(self, effect, what, crash):
        client = self.client(f"{effect}: {what}", None, effect=effect, work_ms=300)
        self.restart(crash)
        thread = in_thread(client.attempt)
        until(lambda: any(r["run"] == client.run for r in list(self.tool.requests)), what="the request")
        self.server.process.send_signal(signal.SIGTERM)
        self.await_crash(crash, [thread])
        self.restart_and_finish(client, threads=[thread])

    def direct(self, effect, what, crash, callers):
        run = self.run_id(f"{effect}: direct, {what}")
        callers = [Direct(self.server, run, effect, f"key-{run}-{n}") for n in range(callers)]
        self.directs += callers
        self.restart(crash)
        if crash is None:
            # Held until every caller's row is stored: the second caller waits for the first.
            rows = lambda: self.server.rows("SELECT 1 FROM tool_calls WHERE finished_at IS NULL")
            self.tool.kill_during[run, 0] = lambda: (until(lambda: len(rows()) == len(callers)), self.server.process.kill())
        threads = []
        for caller in callers:
            threads.append(in_thread(caller.attempt))
            until(lambda: crash or any(r["run"] == run for r in list(self.tool.requests)), what="the first request")
        self.await_crash(crash or "held", threads)
        self.restart_and_finish(*callers, threads=threads)

    def conversation(self):
        """The conversation for the next run; every third run starts a new one."""
        if self.runs % 3 == 0 or not self.clients:
            return None
        return self.clients[-1].conversation_id

    @contextlib.contextmanager
    def load(self, seed, label="at random", users=5, work_ms=(0, 20), writers=()):
        """Several users send messages, each after the answer to the previous one, and others write on WhatsApp, until the end of the block."""
        stop, lock = threading.Event(), threading.Lock()

        def send_messages(rng, conversation=None):
            while not stop.is_set():
                with lock:
                    client = self.client(label, conversation, effect=rng.choice(EFFECTS), shape=rng.choice(("one", "three", "twins")),
                                         rounds=rng.choice((1, 1, 2)), think_ms=rng.choice((0, 20)), work_ms=rng.choice(work_ms))
                try:
                    client.finish(60)
                except Exception as error:
                    self.failures.append(repr(error))
                    return
                conversation = client.conversation_id if rng.random() < 0.7 else None

        def write_messages(user, rng):
            while not stop.is_set():
                with lock:
                    writer = self.writer(f"{label}, WhatsApp", user, rng.choice(EFFECTS), rng.choice(("turn", "turn", "keyword", "parts", "approval")),
                                         think_ms=rng.choice((0, 20)), work_ms=rng.choice(work_ms))
                writer.attempt()
                with contextlib.suppress(AssertionError):  # people do not wait for ever
                    writer.finish(rng.choice((0, 2, 5)))

        if writers:
            self.meta.serve(self.server)
            self.meta.faulty = True
        threads = [in_thread(lambda n=n: send_messages(random.Random(f"{seed} {n}"))) for n in range(users)]
        threads += [in_thread(lambda user=user: write_messages(user, random.Random(f"{seed} {user}"))) for user in writers]
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(70)

    # ------------------------------------------------------------ all runs

    def all(self, effects, only, rng):
        work = []
        for effect in effects:
            for table, do in ((points.POINTS, self.point), (points.HELD, self.held), (points.TAKEOVERS, self.takeover),
                              (points.WAITING, self.waiting), (points.APPROVALS, self.approval), (points.DRAINS, self.drain), (points.DIRECT, self.direct),
                              (points.LONG, self.long), (points.CANCELS, self.cancels),
                              (points.RETENTION, self.retention), (points.OUTBOX, self.outbox)):
                work += [(do, effect, *entry) for entry in table if only in f"{do.__name__} {entry[0]} {entry[1]}"]
        rng.shuffle(work)
        return work

    def all_whatsapp(self, part, parts, only, rng):
        """One of several equal parts of the runs over WhatsApp, each with any effect."""
        entries = [entry for entry in points.WHATSAPP if only in f"whatsapp {entry[0]} {entry[1]}"]
        work = [(self.whatsapp, rng.choice(EFFECTS), *entry) for entry in entries[part::parts]]
        rng.shuffle(work)
        return work

    def do(self, work):
        """Runs once, or again if the crash point was not reached because two answers arrived together. A point that is never reached is a failure."""
        do, *rest = work
        try:
            for _ in range(TRIES):
                self.reached = True
                do(*rest)
                if self.reached:
                    return
            self.failures.append(f"{do.__name__} {rest}: not reached in {TRIES} runs")
        except Exception as error:
            self.failures.append(f"{do.__name__} {rest}: {error!r}")
            traceback.print_exc()

    def observations(self):
        mine = lambda requests: [r for r in list(requests) if r["run"].startswith(self.name + "-")]
        return {"tool": mine(self.tool.requests), "model": mine(self.model.requests), "notified": list(self.tool.notified), "labels": self.labels, "may_fail": self.may_fail,
                "whatsapp": self.meta.observation(), "clients": [client.observation() for client in self.clients], "direct": [direct.observation() for direct in self.directs]}

    def audited(self):
        # Little work leaves too little to damage.
        without_proof = self.failures or self.runs < PROVABLE
        return audit(self.server.db, self.observations()) or ([] if without_proof else undetected(self.server.db, self.observations()))

    def close(self, keep):
        """Waits for the end of all turns, audits the database, and returns the violations."""
        try:
            if self.server.died():
                self.restart()
            ended = lambda: not self.server.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
            until(ended, 90, "the end of all turns")
            self.await_notifications()
            self.await_whatsapp()
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")
        self.meta.close()
        self.server.terminate()
        violations = self.violations(keep)
        self.server.folder.cleanup()
        return violations

    def violations(self, keep):
        """Audits the database. After a violation, or with `keep`, the files stay as evidence."""
        violations = self.audited() + self.failures + self.meta.failures
        if keep or violations:
            folder = pathlib.Path(keep or points.ROOT / "target/chaos/evidence") / self.name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.server.folder.name, folder)
            (folder / "observations.json").write_text(json.dumps(self.observations()))
        return violations


def died_soon(server):
    """Waits a moment: a connection breaks before its process has exited."""
    try:
        return until(server.died, 0.2)
    except AssertionError:
        return False
