"""The disk of the database is full, again and again, while users send messages.

Rejected requests get a clear error, acknowledged turns end, no tool request is sent that could not be recorded, and the server
continues by itself once there is space. Two ways to make writes fail: a full file system (a tmpfs in a mount namespace of
its own, where the system allows one), and a limit on the size of files, which needs no privileges.
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

from scenario import Direct, until

FILE_SYSTEM_BYTES = 48 << 20
UNLIMITED = resource.RLIM_INFINITY


class SmallFileSystem:
    """A small file system, which also holds the log of the server."""

    def __init__(self, folder):
        self.ballast = pathlib.Path(folder) / "ballast"

    def fill(self, server):
        with open(self.ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass

    def free(self, server):
        self.ballast.unlink()


class FileSizeLimit:
    """A limit of a few bytes on every file, the log included."""

    def fill(self, server):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1024, UNLIMITED))

    def free(self, server):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


def disk(options, model, tool, Experiment):
    """Each process runs one half: `in_small_file_system` starts the other one."""
    if not options.mounted:
        return [rounds(Experiment("limit", model, tool), FileSizeLimit(), options)]
    tempfile.tempdir = options.mounted
    experiment, small = Experiment("space", model, tool), SmallFileSystem(options.mounted)
    rounds(experiment, small, options)
    start_on_a_full_disk(experiment, small)
    # proof.py copies databases, for which the small file system has no space.
    tempfile.tempdir = None
    return [experiment]


def rounds(experiment, space, options):
    rng = random.Random(options.seed)
    process = experiment.server.process
    with experiment.load(options.seed, "disk full", work_ms=(0, 20, 300)):
        for number in range(15 if options.full else 3):
            time.sleep(rng.uniform(0.1, 0.6))
            space.fill(experiment.server)
            experiment.faults += 1
            try:
                # Every other time the disk is full for longer than the quick retries of a turn's write.
                full(experiment, rng.uniform(2.2, 4 if options.full else 2.6) if number % 2 else rng.uniform(0.1, 1))
            except Exception as error:
                experiment.failures.append(f"round {number}: {error!r}")
            space.free(experiment.server)
            until(lambda: experiment.server.call("GET", "/readyz", key=None, timeout=5)[0] == 200, 5, "readiness with space again")
    for direct in experiment.directs:
        direct.finish()
    if experiment.server.process is not process or experiment.server.died():
        experiment.failures.append("the server did not survive")
    codes = {code for client in experiment.clients for status, code in client.refused if status == 503}
    if codes - {"storage_full"}:
        experiment.failures.append(f"refused with {codes}")
    lost = experiment.server.rows("SELECT id, status, error_code, attempt FROM tool_calls WHERE status <> 'succeeded' OR attempt > 1")
    lost += experiment.server.rows("SELECT id, status, takeovers FROM turns WHERE takeovers > 0")
    if lost:
        # Every wait was shorter than a turn may last, so the process that knew an outcome could still write it.
        experiment.failures.append(f"lost while the disk was full: {lost[:3]}")
    return experiment


def full(experiment, seconds):
    """Checks the invariants while the disk is full."""
    server, end = experiment.server, time.monotonic() + seconds
    refused = until(lambda: refusal(experiment), 20, "a refusal")
    assert refused == (503, "storage_full", "5"), refused
    while True:
        status, ready, _ = server.call("GET", "/readyz", key=None, timeout=5)
        assert status == 503 and any("storage_full" in warning for warning in ready["warnings"]), (status, ready)
        assert server.call("GET", "/api/conversations?limit=5")[0] == 200, "stored rows can be read"
        stored = {row["id"] for row in server.rows("SELECT id FROM tool_calls WHERE status <> 'queued' OR attempt > 0")}
        sent = {r["job_id"] for r in list(experiment.tool.requests) if r["run"].startswith(experiment.name + "-")}
        assert sent <= stored, f"sent without a record: {sent - stored}"
        if time.monotonic() > end:
            return
        time.sleep(0.1)


def refusal(experiment):
    """The error of a new call. A call that still finds a little space is accepted, and must end."""
    run = experiment.run_id("disk full")
    direct = Direct(experiment.server, run, "read", f"key-{run}")
    direct.attempt(3)
    if not direct.refused:
        experiment.directs.append(direct)
    return direct.refused


def start_on_a_full_disk(experiment, space):
    server = experiment.server
    server.terminate()
    space.fill(server)
    tried = subprocess.run(server.arguments, env=server.env, cwd="/", capture_output=True, text=True, timeout=60)
    space.free(server)
    if tried.returncode != 1 or "storage_full" not in tried.stderr:
        experiment.failures.append(f"a start on a full disk ended {tried.returncode}: {tried.stderr[-500:]}")
    server.start()


def in_small_file_system(options):
    """Runs the disk faults in a namespace with a small file system; returns violations and sums, or None if it cannot be mounted."""
    with tempfile.TemporaryDirectory(prefix="werkruf-small-") as folder:
        prefix = ["unshare", *(["--mount"] if os.getuid() == 0 else ["--map-root-user", "--user", "--mount"])]
        mount = f"mount -t tmpfs -o size={FILE_SYSTEM_BYTES} none {folder}"
        try:
            possible = subprocess.run([*prefix, "sh", "-c", mount], capture_output=True).returncode == 0
        except FileNotFoundError:
            possible = False
        if not possible:
            return None
        command = [sys.executable, sys.argv[0], "--faults", "disk", "--mounted", folder, "--seed", str(options.seed)]
        command += ["--full"] if options.full else []
        command += ["--keep", options.keep] if options.keep else []
        ran = subprocess.run([*prefix, "sh", "-c", mount + ' && exec "$@"', "sh", *command], stdout=subprocess.PIPE, text=True)
    printed = ran.stdout.splitlines()
    return [line for line in printed if line.startswith("VIOLATION")], json.loads(printed[-1]) if printed and printed[-1].startswith("[") else None
