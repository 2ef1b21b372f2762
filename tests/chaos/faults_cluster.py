"""Several servers on one PostgreSQL, while servers are killed, paused and drained, and the database itself restarts.

Users send each attempt to another server. Some messages go to several servers at the same moment, and some conversations have a
subscriber on a server that does not run them. Besides the auditor's invariants: a subscriber receives the whole turn, and no
lease stays unchanged for longer than a takeover may take.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "postgres"))
import points  # noqa: E402
from auditor import audit_rows  # noqa: E402
from own import Postgres  # noqa: E402
from scenario import LOST, SECRET, STARTED, Client, config, in_thread  # noqa: E402
from server import BINARY, Server, environment, events, until  # noqa: E402
from experiment import Experiment  # noqa: E402
from whatsapp import WRITERS  # noqa: E402

REPLICAS = 3
# The documented limit of a takeover with the default lease of 15 s: the lease expires, and the next scan finds it.
TAKEOVER_S = 20


class Replicas(Server):
    """Has the interface of one server; every request goes to a random replica."""

    def __init__(self, model, tool, env):
        self.postgres = Postgres()
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-cluster-")
        self.env = environment(model, {"WERKRUF_LOG": "warn", "CHAOS_SECRET": SECRET, **env})
        path = os.path.join(self.folder.name, "werkruf.toml")
        pathlib.Path(path).write_text(config(tool) + "\n[workspace]\n")
        self.arguments = [BINARY, "serve", "--listen", "127.0.0.1:0", "--database", self.postgres.url, "--config", path]
        self.processes, self.urls = [None] * REPLICAS, [None] * REPLICAS
        self.rng = random.Random(1)
        for at in range(REPLICAS):
            self.start(at)

    def start(self, at):
        log = open(os.path.join(self.folder.name, f"log-{at}"), "ab")
        process = subprocess.Popen(self.arguments, env=self.env, cwd=self.folder.name, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        STARTED[:] = [one for one in STARTED if one.poll() is None] + [process]
        for line in process.stdout:
            if "http://" in line:
                self.urls[at] = line[line.index("http://"):].split()[0].rstrip("/")
                break
        else:
            raise AssertionError("serve did not start: " + pathlib.Path(self.folder.name, f"log-{at}").read_text()[-2000:])
        self.processes[at] = process

    def terminate(self, at, how=signal.SIGKILL):
        process, self.urls[at] = self.processes[at], None
        process.send_signal(how)
        process.wait(timeout=60)
        process.stdout.close()

    @property
    def url(self):
        return self.rng.choice([url for url in self.urls if url] or ["http://127.0.0.1:1"])

    def rows(self, sql):
        return self.postgres.rows(sql)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()
        self.postgres.close()
        self.folder.cleanup()


class Subscriber:
    """Reads a conversation from the first event on, on any server, until one of its turns has ended."""

    def __init__(self, replicas, conversation_id, turn_id):
        self.replicas, self.conversation_id, self.turn_id = replicas, conversation_id, turn_id
        self.after, self.texts, self.final, self.faults = 0, {}, None, []

    def run(self):
        try:
            until(self.once, 90, f"the end of {self.turn_id} for a subscriber")
        except AssertionError as error:
            self.faults.append(str(error))

    def once(self):
        try:
            path = f"/api/conversations/{self.conversation_id}/events?after={self.after}"
            with self.replicas.open("GET", path, headers={"accept": "text/event-stream"}, timeout=20) as answer:
                for seq, kind, data in events(answer):
                    if seq is not None and seq != self.after + 1:
                        self.faults.append(f"{self.turn_id}: {seq} was received after {self.after}")
                    self.after = seq or self.after
                    if self.receive(kind, data):
                        return True
        except LOST:
            pass
        return False

    def receive(self, kind, data):
        step = data.get("step") if isinstance(data, dict) else None
        if kind == "assistant_token":
            self.texts[step] = self.texts.get(step, "") + data["content"]
        elif kind == "assistant_snapshot":
            self.texts[step] = data["content"]
        elif kind == "assistant_reset":
            self.texts.pop(step, None)
        elif kind in ("final", "error"):
            received, self.texts = self.texts, {}
            if data["turn_id"] == self.turn_id:
                text = data["message"]["content"] if kind == "final" else None
                last = received.get(max(received, default=0))
                if text and last not in (None, text, "Let me see. "):
                    self.faults.append(f"{self.turn_id}: received as {last!r}, stored as {text!r}")
                return True
        return False


class LeaseWatch:
    """Measures the longest time that a lease kept its owner and epoch."""

    def __init__(self, replicas):
        self.replicas, self.worst, self.stop = replicas, 0.0, threading.Event()
        self.since, self.thread = {}, in_thread(self.poll)

    def poll(self):
        while not self.stop.wait(0.5):
            try:
                rows = self.replicas.rows("SELECT conversation_id, owner, epoch FROM leases WHERE owner <> ''")
            except AssertionError:
                self.since.clear()  # the database is down, so no takeover is possible
                continue
            now = time.monotonic()
            self.since = {key: self.since.get(key, now) for key in ((r["conversation_id"], r["owner"], r["epoch"]) for r in rows)}
            self.worst = max([self.worst, *(now - since for since in self.since.values())])


class ClusterExperiment(Experiment):
    """The same clients and observations, with faults for several servers."""

    def __init__(self, name, model, tool, env):
        super().__init__(name, model, tool, env, Replicas)
        self.subscribers, self.threads = [], []

    def client(self, label, conversation=None, **fields):
        """Every fifth message is sent to all servers at the same moment; every third turn has a subscriber on a random server."""
        client = super().client(label, conversation, **fields)
        if self.runs % 5 == 0:
            for _ in range(REPLICAS - 1):
                copy = Client(self.server, client.run, client.body["message"], conversation)
                self.clients.append(copy)
                self.threads.append(in_thread(lambda copy=copy: self.finish_copy(copy)))
        if self.runs % 3 == 0:
            self.threads.append(in_thread(lambda: self.subscribe(client)))
        return client

    def finish_copy(self, copy):
        try:
            copy.finish(90)
        except Exception as error:
            self.failures.append(repr(error))

    def subscribe(self, client):
        try:
            until(lambda: client.turn_id, 90, f"the beginning of {client.run}")
        except AssertionError as error:
            self.failures.append(str(error))
            return
        subscriber = Subscriber(self.server, client.conversation_id, client.turn_id)
        self.subscribers.append(subscriber)
        subscriber.run()
        self.failures += subscriber.faults

    def inject_faults(self, options, seconds, ttl):
        rng, watch, end = random.Random(options.seed), LeaseWatch(self.server), time.monotonic() + seconds
        with self.load(options.seed, "in a cluster", users=6, work_ms=(0, 20, 200), writers=WRITERS):
            while time.monotonic() < end:
                time.sleep(rng.uniform(0.2, 2))
                rng.choice((self.kill, self.kill, self.pause, self.drain_server, self.restart_database))(rng, ttl)
        # A copy that a fault delayed has not been acknowledged yet.
        for thread in self.threads:
            thread.join(100)
        watch.stop.set()
        watch.thread.join()
        self.note = f"longest unchanged lease {watch.worst:.1f} s, {len(self.subscribers)} subscribers"
        if watch.worst > TAKEOVER_S:
            self.failures.append(f"a lease stayed unchanged for {watch.worst:.1f} s")

    def kill(self, rng, _):
        at = rng.randrange(REPLICAS)
        self.server.terminate(at)
        self.kills += 1
        time.sleep(rng.uniform(0, 3))
        self.server.start(at)

    def drain_server(self, rng, _):
        """As a deployment does it: SIGTERM, its turns are released, and a new server starts in its place."""
        at = rng.randrange(REPLICAS)
        self.server.terminate(at, signal.SIGTERM)
        self.faults += 1
        self.server.start(at)

    def pause(self, rng, ttl):
        at = rng.randrange(REPLICAS)
        self.server.processes[at].send_signal(signal.SIGSTOP)
        self.faults += 1
        time.sleep(rng.uniform(0.8, 1.6) * ttl)
        self.server.processes[at].send_signal(signal.SIGCONT)

    def restart_database(self, rng, _):
        self.server.postgres.stop(rng.choice(("fast", "immediate")))
        self.faults += 1
        time.sleep(rng.choice((0, 0, rng.uniform(0, 5))))
        self.server.postgres.start()

    def audited(self):
        return audit_rows(self.server.rows, self.observations())

    def close(self, keep):
        """Waits for the end of all turns, audits the database, and returns the violations."""
        try:
            ended = lambda: not self.server.rows("SELECT 1 AS one FROM turns WHERE finished_at IS NULL")
            until(ended, 90, "the end of all turns")
            self.await_notifications()
            self.await_whatsapp()
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")
        self.meta.close()
        violations = self.violations(keep)
        self.server.close()
        return violations


def cluster(options, model, tool):
    ttl_ms = 15000 if options.full else 2000
    experiment = ClusterExperiment("cluster", model, tool, {"WERKRUF_LIMIT_LEASE_TTL_MS": str(ttl_ms), "WERKRUF_LIMIT_DRAIN_MS": "500"})
    experiment.inject_faults(options, options.minutes * 60, ttl_ms / 1000)
    print(f"cluster     {experiment.note}", flush=True)
    return [experiment]
