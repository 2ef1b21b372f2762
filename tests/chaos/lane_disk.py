"""The disk of the database takes no more bytes, again and again, while people talk.

What is refused is refused clearly, what was acknowledged reaches its end, nothing is sent that could not be recorded, and
the server goes on by itself once there is room. Two ways to have no room: a file system that is full (a tmpfs in a mount
namespace of our own, where the system allows one), and a limit on the size of files, which needs no right at all.
"""
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from scene import Direct, until

ROOM = 48 << 20
UNLIMITED = resource.RLIM_INFINITY


class Small:
    """A small file system; the log of the server is on it too."""

    def __init__(self, folder):
        self.ballast = pathlib.Path(folder) / "ballast"

    def fill(self, victim):
        with open(self.ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    def free(self, victim):
        self.ballast.unlink()


class Limit:
    """No file may grow beyond a few bytes, the log included."""

    def fill(self, victim):
        resource.prlimit(victim.process.pid, resource.RLIMIT_FSIZE, (1024, UNLIMITED))

    def free(self, victim):
        resource.prlimit(victim.process.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


def disk(options, model, tool, Yard):
    """One half per process: `in_small_file_system` has the other."""
    if not options.mounted:
        return [rounds(Yard("limit", model, tool), Limit(), options)]
    tempfile.tempdir = options.mounted
    yard, small = Yard("space", model, tool), Small(options.mounted)
    rounds(yard, small, options)
    started_on_a_full_disk(yard, small)
    # Proofs make copies, for which there is no room here.
    tempfile.tempdir = None
    return [yard]


def rounds(yard, room, options):
    dice = random.Random(options.seed)
    process = yard.victim.process
    with yard.talking(options.seed, "no room", work_ms=(0, 20, 300)):
        for number in range(15 if options.full else 3):
            time.sleep(dice.uniform(0.1, 0.6))
            room.fill(yard.victim)
            yard.faults += 1
            try:
                # Every other time it lasts longer than a turn's write is tried without patience.
                full(yard, dice.uniform(2.2, 4 if options.full else 2.6) if number % 2 else dice.uniform(0.1, 1))
            except Exception as error:
                yard.failures.append(f"round {number}: {error!r}")
            room.free(yard.victim)
            until(lambda: yard.victim.call("GET", "/readyz", key=None, timeout=5)[0] == 200, 5, "readiness with room again")
    for direct in yard.directs:
        direct.insist()
    if yard.victim.process is not process or yard.victim.died():
        yard.failures.append("the server did not live through it")
    codes = {code for client in yard.clients for status, code in client.refused if status == 503}
    if codes - {"storage_full"}:
        yard.failures.append(f"refused with {codes}")
    lost = yard.victim.rows("SELECT id, status, error_code, attempt FROM tool_calls WHERE status <> 'succeeded' OR attempt > 1")
    lost += yard.victim.rows("SELECT id, status, takeovers FROM turns WHERE takeovers > 0")
    if lost:
        # Every wait was shorter than a turn may last: whoever knew the outcome was still there to write it.
        yard.failures.append(f"forgotten while there was no room: {lost[:3]}")
    return yard


def full(yard, seconds):
    """What holds while there is no room."""
    victim, end = yard.victim, time.monotonic() + seconds
    refused = until(lambda: refusal(yard), 20, "a refusal")
    assert refused == (503, "storage_full", "5"), refused
    while True:
        status, ready, _ = victim.call("GET", "/readyz", key=None, timeout=5)
        assert status == 503 and any("storage_full" in warning for warning in ready["warnings"]), (status, ready)
        assert victim.call("GET", "/api/conversations?limit=5")[0] == 200, "what is stored can be read"
        stored = {row["id"] for row in victim.rows("SELECT id FROM tool_calls WHERE status <> 'queued' OR attempt > 0")}
        sent = {r["job_id"] for r in list(yard.tool.requests) if r["run"].startswith(yard.name + "-")}
        assert sent <= stored, f"sent without a record: {sent - stored}"
        if time.monotonic() > end:
            return
        time.sleep(0.1)


def refusal(yard):
    """How a new call is refused; one that finds a little room still is accepted, and must come to its end."""
    run = yard.run_id("no room")
    direct = Direct(yard.victim, run, "read", f"key-{run}")
    direct.ask(3)
    if not direct.refused:
        yard.directs.append(direct)
    return direct.refused


def started_on_a_full_disk(yard, room):
    victim = yard.victim
    victim.bury()
    room.fill(victim)
    tried = subprocess.run(victim.arguments, env=victim.env, cwd="/", capture_output=True, text=True, timeout=60)
    room.free(victim)
    if tried.returncode != 1 or "storage_full" not in tried.stderr:
        yard.failures.append(f"a start on a full disk ended {tried.returncode}: {tried.stderr[-500:]}")
    victim.start()


def in_small_file_system(options):
    """The same lane once more, in a namespace with a small file system of its own; its sums, or None where none can be made."""
    with tempfile.TemporaryDirectory(prefix="werkruf-small-") as folder:
        prefix = ["unshare", *(["--mount"] if os.getuid() == 0 else ["--map-root-user", "--user", "--mount"])]
        mount = f"mount -t tmpfs -o size={ROOM} none {folder}"
        try:
            possible = subprocess.run([*prefix, "sh", "-c", mount], capture_output=True).returncode == 0
        except FileNotFoundError:
            possible = False
        if not possible:
            return None
        again = [sys.executable, sys.argv[0], "--lanes", "disk", "--mounted", folder, "--seed", str(options.seed)]
        again += ["--full"] if options.full else []
        again += ["--keep", options.keep] if options.keep else []
        ran = subprocess.run([*prefix, "sh", "-c", mount + ' && exec "$@"', "sh", *again], stdout=subprocess.PIPE, text=True)
    said = ran.stdout.splitlines()
    return [line for line in said if line.startswith("VIOLATION")], json.loads(said[-1]) if said and said[-1].startswith("[") else None
