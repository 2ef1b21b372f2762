"""Several servers on one PostgreSQL, while servers die, stand still and leave, and the database itself goes away and comes back.

People talk to any of the servers, each try to another one; some say the same thing to several at the same instant, some follow a
conversation on a server that does not run it. Besides the auditor's invariants: whoever followed a turn has heard it whole, and no
lease stands still for longer than a takeover may take.
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
from scene import LOST, STARTED, Client, config, in_thread  # noqa: E402
from house import BINARY, House, environment, events, until  # noqa: E402
from yard import Yard  # noqa: E402

REPLICAS = 3
# A takeover: the lease runs out, the next scan sees it. What the promise allows at the lease's default of 15 s.
TAKEOVER_S = 20


class Replicas(House):
    """Looks like one server; every request goes to any of them."""

    def __init__(self, model, tool, env):
        self.postgres = Postgres()
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-fleet-")
        self.env = environment(model, {"WERKRUF_LOG": "warn", **env})
        path = os.path.join(self.folder.name, "werkruf.toml")
        pathlib.Path(path).write_text(config(tool))
        self.arguments = [BINARY, "serve", "--listen", "127.0.0.1:0", "--database", self.postgres.url, "--config", path]
        self.processes, self.urls = [None] * REPLICAS, [None] * REPLICAS
        self.dice = random.Random(1)
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

    def bury(self, at, how=signal.SIGKILL):
        process, self.urls[at] = self.processes[at], None
        process.send_signal(how)
        process.wait(timeout=60)
        process.stdout.close()

    @property
    def url(self):
        return self.dice.choice([url for url in self.urls if url] or ["http://127.0.0.1:1"])

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


class Follower:
    """Hears a conversation from the first event on, on any server, until one of its turns has ended."""

    def __init__(self, replicas, conversation_id, turn_id):
        self.replicas, self.conversation_id, self.turn_id = replicas, conversation_id, turn_id
        self.after, self.spoken, self.final, self.faults = 0, {}, None, []

    def follow(self):
        try:
            until(self.once, 90, f"the end of {self.turn_id} for a follower")
        except AssertionError as error:
            self.faults.append(str(error))

    def once(self):
        try:
            path = f"/api/conversations/{self.conversation_id}/events?after={self.after}"
            with self.replicas.open("GET", path, headers={"accept": "text/event-stream"}, timeout=20) as answer:
                for seq, kind, data in events(answer):
                    if seq is not None and seq != self.after + 1:
                        self.faults.append(f"{self.turn_id}: {seq} was heard after {self.after}")
                    self.after = seq or self.after
                    if self.hear(kind, data):
                        return True
        except LOST:
            pass
        return False

    def hear(self, kind, data):
        step = data.get("step") if isinstance(data, dict) else None
        if kind == "assistant_token":
            self.spoken[step] = self.spoken.get(step, "") + data["content"]
        elif kind == "assistant_snapshot":
            self.spoken[step] = data["content"]
        elif kind == "assistant_reset":
            self.spoken.pop(step, None)
        elif kind in ("final", "error"):
            heard, self.spoken = self.spoken, {}
            if data["turn_id"] == self.turn_id:
                text = data["message"]["content"] if kind == "final" else None
                last = heard.get(max(heard, default=0))
                if text and last not in (None, text, "Let me see. "):
                    self.faults.append(f"{self.turn_id}: followed as {last!r}, stored as {text!r}")
                return True
        return False


class Watch:
    """How long a lease stood still at most, by what an operator sees."""

    def __init__(self, replicas):
        self.replicas, self.worst, self.stop = replicas, 0.0, threading.Event()
        self.seen, self.thread = {}, in_thread(self.look)

    def look(self):
        while not self.stop.wait(0.5):
            try:
                rows = self.replicas.rows("SELECT conversation_id, owner, epoch FROM leases WHERE owner <> ''")
            except AssertionError:
                self.seen.clear()  # the database is away; nobody can take over meanwhile
                continue
            now = time.monotonic()
            self.seen = {key: self.seen.get(key, now) for key in ((r["conversation_id"], r["owner"], r["epoch"]) for r in rows)}
            self.worst = max([self.worst, *(now - since for since in self.seen.values())])


class FleetYard(Yard):
    """The same people and the same ledger; other harm."""

    def __init__(self, name, model, tool, env):
        super().__init__(name, model, tool, victim=Replicas(model, tool, env))
        self.followers = []

    def client(self, label, conversation=None, **words):
        """Every fifth message is said to all servers at the same instant; every third turn has somebody who follows it elsewhere."""
        client = super().client(label, conversation, **words)
        if self.runs % 5 == 0:
            for _ in range(REPLICAS - 1):
                copy = Client(self.victim, client.run, client.body["message"], conversation)
                self.clients.append(copy)
                in_thread(lambda copy=copy: self.attempt(copy))
        if self.runs % 3 == 0:
            in_thread(lambda: self.follow(client))
        return client

    def attempt(self, copy):
        try:
            copy.insist(90)
        except Exception as error:
            self.failures.append(repr(error))

    def follow(self, client):
        try:
            until(lambda: client.turn_id, 90, f"the beginning of {client.run}")
        except AssertionError as error:
            self.failures.append(str(error))
            return
        follower = Follower(self.victim, client.conversation_id, client.turn_id)
        self.followers.append(follower)
        follower.follow()
        self.failures += follower.faults

    def harm(self, options, seconds, ttl):
        dice, watch, end = random.Random(options.seed), Watch(self.victim), time.monotonic() + seconds
        with self.talking(options.seed, "in a fleet", people=6, work_ms=(0, 20, 200)):
            while time.monotonic() < end:
                time.sleep(dice.uniform(0.2, 2))
                dice.choice((self.kill, self.kill, self.stand_still, self.leave, self.restart_database))(dice, ttl)
        watch.stop.set()
        watch.thread.join()
        self.note = f"longest lease without a move {watch.worst:.1f} s, {len(self.followers)} followed elsewhere"
        if watch.worst > TAKEOVER_S:
            self.failures.append(f"a lease stood still for {watch.worst:.1f} s")

    def kill(self, dice, _):
        at = dice.randrange(REPLICAS)
        self.victim.bury(at)
        self.kills += 1
        time.sleep(dice.uniform(0, 3))
        self.victim.start(at)

    def leave(self, dice, _):
        """As a deployment does it: told to go, its turns released, another one in its place."""
        at = dice.randrange(REPLICAS)
        self.victim.bury(at, signal.SIGTERM)
        self.faults += 1
        self.victim.start(at)

    def stand_still(self, dice, ttl):
        at = dice.randrange(REPLICAS)
        self.victim.processes[at].send_signal(signal.SIGSTOP)
        self.faults += 1
        time.sleep(dice.uniform(0.8, 1.6) * ttl)
        self.victim.processes[at].send_signal(signal.SIGCONT)

    def restart_database(self, dice, _):
        self.victim.postgres.stop(dice.choice(("fast", "immediate")))
        self.faults += 1
        time.sleep(dice.choice((0, 0, dice.uniform(0, 5))))
        self.victim.postgres.start()

    def audited(self):
        return audit_rows(self.victim.rows, self.ledger())

    def close(self, keep):
        """The last word: everything ended, the auditor has looked."""
        try:
            ended = lambda: not self.victim.rows("SELECT 1 AS one FROM turns WHERE finished_at IS NULL")
            until(ended, 60, "the end of all turns")
        except Exception as error:
            self.failures.append(f"{self.name}: {error!r}")
        violations = self.audited() + self.failures
        if keep or violations:
            folder = pathlib.Path(keep or points.ROOT / "target/chaos/evidence") / self.name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.victim.folder.name, folder)
            (folder / "ledger.json").write_text(json.dumps(self.ledger()))
        self.victim.close()
        return violations


def fleet(options, model, tool):
    ttl_ms = 15000 if options.full else 2000
    yard = FleetYard("fleet", model, tool, {"WERKRUF_LIMIT_LEASE_TTL_MS": str(ttl_ms), "WERKRUF_LIMIT_DRAIN_MS": "500"})
    yard.harm(options, options.minutes * 60, ttl_ms / 1000)
    print(f"fleet    {yard.note}", flush=True)
    return [yard]
