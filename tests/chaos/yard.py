"""One database, its server and everything that is done to it: the runs, the people who talk, the ledger of what was seen outside."""
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
from proof import blind
from scene import EFFECTS, LOST, Client, Direct, Victim, in_thread, message, until

# How often a run is repeated whose crash was passed over, before the point is taken to have moved.
TRIES = 5


class Yard:
    """One database and its server, one thread; the model and the tool are shared by all."""

    def __init__(self, name, model, tool, env=None, victim=None):
        self.name, self.model, self.tool = name, model, tool
        self.victim = victim or Victim(model, tool, env)
        self.clients, self.directs, self.labels, self.failures = [], [], {}, []
        # Codes a run's turn may end with besides an answer.
        self.may_fail = {}
        self.runs = self.kills = self.faults = 0
        self.reached = True

    def run_id(self, label):
        self.runs += 1
        run = f"{self.name}-{self.runs}"
        self.labels[run] = label
        return run

    def client(self, label, conversation=None, **words):
        run = self.run_id(label)
        client = Client(self.victim, run, message(run, **words), conversation)
        self.clients.append(client)
        return client

    def again(self, crash=None):
        self.victim.bury()
        self.victim.start(crash)

    def dead(self, crash, threads):
        """Waits for the death, or for the end of everything where the point was not reached."""
        until(lambda: self.victim.died() or not any(t.is_alive() for t in threads), 30, f"the crash {crash}")
        if self.victim.died() or until_dead(self.victim):
            self.kills += 1
        else:
            self.reached = False

    def boots(self):
        """How often a server has begun on this database."""
        return int(self.victim.rows("SELECT value FROM settings WHERE name = 'boot_epoch'")[0]["value"])

    def go_on(self, *clients, threads=()):
        self.again()
        for thread in threads:
            thread.join(30)
        for client in clients:
            client.insist()

    # ------------------------------------------------------------ one run each

    def point(self, effect, what, crash, shape, rounds):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, shape=shape, rounds=rounds)
        self.again(crash)
        thread = in_thread(client.ask)
        self.dead(crash, [thread])
        self.go_on(client, threads=[thread])

    def held(self, effect, what, n, shape):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, shape=shape)
        self.hold(client, n)
        self.go_on(client)

    def hold(self, client, n):
        if self.victim.died():
            self.again()
        self.tool.deadly[client.run, n] = self.victim.process.kill
        thread = in_thread(client.ask)
        self.dead("held", [thread])
        thread.join(30)

    def takeover(self, effect, what, crash, shape):
        client = self.client(f"{effect}: takeover, {what}", self.conversation(), effect=effect, shape=shape or "one")
        if shape is None:
            self.again("mid_stream:1")
            thread = in_thread(client.ask)
            self.dead("mid_stream:1", [thread])
            thread.join(30)
        else:
            self.hold(client, {"three": 2}.get(shape, 0))
        self.again(crash)
        unreached = effect == "once" and crash.startswith("tool_answered")
        if unreached:
            client.insist()  # nothing is sent again, so there is nothing to die at
        else:
            thread = in_thread(client.insist)
            self.dead(crash, [thread])
            self.again()
            thread.join(40)
        client.insist()

    def waiting(self, effect, what, crash):
        first = self.client(f"{effect}: {what} (first)", None, effect=effect, think_ms=60)
        self.again(crash)
        threads = [in_thread(first.ask)]
        until(lambda: first.conversation_id, what="init")
        second = self.client(f"{effect}: {what} (second)", first.conversation_id, effect=effect)
        threads.append(in_thread(second.ask))
        self.dead(crash, threads)
        self.go_on(first, second, threads=threads)

    def approval(self, effect, what, crash, shape):
        client = self.client(f"{effect}: approval, {what}", self.conversation(), effect=effect, shape=shape, asks="_asked")
        self.again(crash)
        thread = in_thread(lambda: client.insist(60))
        approver = in_thread(lambda: self.approve_until(lambda: client.ended))
        self.dead(crash, [thread])
        self.again()
        thread.join(60)
        approver.join(10)
        client.insist()

    def approve_until(self, done):
        """Somebody who says yes to everything, again and again."""
        while not done():
            try:
                _, answer, _ = self.victim.call("GET", "/api/approvals?status=pending", timeout=10)
                for row in (answer or {}).get("approvals", []):
                    self.victim.call("POST", f"/api/approvals/{row['id']}", {"decision": "approve"}, timeout=10)
            except LOST:
                pass
            time.sleep(0.02)

    def long(self, effect, what, crash):
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, pace_ms=300)
        self.again(crash)
        thread = in_thread(client.ask)
        self.dead(crash, [thread])
        self.go_on(client, threads=[thread])

    def cancels(self, effect, what, crash):
        first = self.client(f"{effect}: {what} (first)", None, effect=effect, work_ms=400)
        self.again(crash)
        threads = [in_thread(first.ask)]
        until(lambda: first.conversation_id, what="init")
        second = self.client(f"{effect}: {what} (second)", first.conversation_id, effect=effect)
        second.canceled = True
        threads.append(in_thread(second.ask))
        until(lambda: second.turn_id, what="the second init")
        self.victim.call("POST", f"/api/turns/{second.turn_id}/cancel", {})
        self.dead(crash, threads)
        self.go_on(first, second, threads=threads)

    def retention(self, effect, what, crash):
        """The first batch runs when the server starts; the second is asked for while a turn is under way."""
        client = self.client(f"{effect}: {what}", self.conversation(), effect=effect, think_ms=100)
        self.again(crash)
        thread = in_thread(client.ask)
        until(lambda: any(r["run"] == client.run for r in list(self.model.requests)), what="the request")
        self.victim.call("POST", "/api/admin/retention", {}, user=None)
        self.dead(crash, [thread])
        self.go_on(client, threads=[thread])

    def drain(self, effect, what, crash):
        client = self.client(f"{effect}: {what}", None, effect=effect, work_ms=300)
        self.again(crash)
        thread = in_thread(client.ask)
        until(lambda: any(r["run"] == client.run for r in list(self.tool.requests)), what="the request")
        self.victim.process.send_signal(signal.SIGTERM)
        self.dead(crash, [thread])
        self.go_on(client, threads=[thread])

    def direct(self, effect, what, crash, callers):
        run = self.run_id(f"{effect}: direct, {what}")
        callers = [Direct(self.victim, run, effect, f"key-{run}-{n}") for n in range(callers)]
        self.directs += callers
        self.again(crash)
        if crash is None:
            # Held until every caller's row is there: the second waits for the first.
            rows = lambda: self.victim.rows("SELECT 1 FROM tool_calls WHERE finished_at IS NULL")
            self.tool.deadly[run, 0] = lambda: (until(lambda: len(rows()) == len(callers)), self.victim.process.kill())
        threads = []
        for caller in callers:
            threads.append(in_thread(caller.ask))
            until(lambda: crash or any(r["run"] == run for r in list(self.tool.requests)), what="the first request")
        self.dead(crash or "held", threads)
        self.go_on(*callers, threads=threads)

    def conversation(self):
        """Every third run begins a new conversation."""
        if self.runs % 3 == 0 or not self.clients:
            return None
        return self.clients[-1].conversation_id

    @contextlib.contextmanager
    def talking(self, seed, label="at random", people=5, work_ms=(0, 20)):
        """Several people talk, each message after the answer to the last, until the end of the block."""
        stop, lock = threading.Event(), threading.Lock()

        def talk(own, conversation=None):
            while not stop.is_set():
                with lock:
                    client = self.client(label, conversation, effect=own.choice(EFFECTS), shape=own.choice(("one", "three", "twins")),
                                         rounds=own.choice((1, 1, 2)), think_ms=own.choice((0, 20)), work_ms=own.choice(work_ms))
                try:
                    client.insist(60)
                except Exception as error:
                    self.failures.append(repr(error))
                    return
                conversation = client.conversation_id if own.random() < 0.7 else None

        talkers = [in_thread(lambda n=n: talk(random.Random(f"{seed} {n}"))) for n in range(people)]
        try:
            yield
        finally:
            stop.set()
            for talker in talkers:
                talker.join(70)

    # ------------------------------------------------------------ all runs

    def all(self, effects, only, dice):
        work = []
        for effect in effects:
            for table, do in ((points.POINTS, self.point), (points.HELD, self.held), (points.TAKEOVERS, self.takeover),
                              (points.WAITING, self.waiting), (points.APPROVALS, self.approval), (points.DRAINS, self.drain), (points.DIRECT, self.direct),
                              (points.LONG, self.long), (points.CANCELS, self.cancels),
                              (points.RETENTION, self.retention)):
                work += [(do, effect, *entry) for entry in table if only in f"{do.__name__} {entry[0]} {entry[1]}"]
        dice.shuffle(work)
        return work

    def do(self, work):
        """Once, or again where two answers came as one and the point was passed over; one that is never reached has moved."""
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

    def ledger(self):
        mine = lambda requests: [r for r in list(requests) if r["run"].startswith(self.name + "-")]
        return {"tool": mine(self.tool.requests), "model": mine(self.model.requests), "labels": self.labels, "may_fail": self.may_fail,
                "clients": [client.record() for client in self.clients], "direct": [direct.record() for direct in self.directs]}

    def audited(self):
        return audit(self.victim.db, self.ledger()) or ([] if self.failures else blind(self.victim.db, self.ledger()))

    def close(self, keep):
        """The last word: everything ended, the auditor has looked."""
        try:
            if self.victim.died():
                self.again()
            ended = lambda: not self.victim.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
            until(ended, 30, "the end of all turns")
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")
        self.victim.bury()
        violations = self.audited() + self.failures
        if keep or violations:
            folder = pathlib.Path(keep or points.ROOT / "target/chaos/evidence") / self.name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.victim.folder.name, folder)
            (folder / "ledger.json").write_text(json.dumps(self.ledger()))
        self.victim.folder.cleanup()
        return violations


def until_dead(victim):
    """A connection breaks a moment before its process is gone."""
    try:
        return until(victim.died, 0.2)
    except AssertionError:
        return False
