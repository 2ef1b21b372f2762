"""The server is paused (SIGSTOP) for longer than its lease lasts, and continues afterwards.

While it is paused, a second server on the same file must refuse to start: the lock on the file belongs to the process, not to its
heartbeat. No request is sent twice, and the time of the pause causes no timeout. When the paused server is killed, the next
one takes over its leases.
"""
import random
import signal
import subprocess
import time

from scenario import in_thread, until

LEASE_MS = 200
# Shorter than the pauses: a response that arrived during a pause is in time.
SHORT_LIMIT_MS = 600
SHORT_LIMITS = {f"WERKRUF_LIMIT_{name}_MS": str(SHORT_LIMIT_MS) for name in ("TOOL", "MODEL_FIRST_BYTE", "MODEL_IDLE")}


def pause(options, model, tool, Experiment):
    env = {"WERKRUF_LIMIT_LEASE_TTL_MS": str(LEASE_MS)}
    number = 60 if options.full else 6
    return [paused(Experiment("stop", model, tool, env), options, number),
            answered_while_paused(Experiment("limits", model, tool, {**env, **SHORT_LIMITS}), options, number),
            killed_while_paused(Experiment("dead", model, tool, env), options, number // 2)]


def paused(experiment, options, number):
    """Paused and continued; a second server tries to start meanwhile."""
    rng, process = random.Random(options.seed), experiment.server.process
    with experiment.load(options.seed, "paused", work_ms=(0, 20, 200)):
        for round_ in range(number):
            time.sleep(rng.uniform(0.02, 0.4))
            pause_for(experiment, rng.uniform(0.8, 3) * LEASE_MS / 1000, second=round_ % 2 == 0)
    untouched(experiment, process)
    return experiment


def answered_while_paused(experiment, options, number):
    """Paused for longer than the limit of a tool or the model, while the response arrives."""
    process = experiment.server.process
    for round_ in range(number):
        effect, other = (("once", experiment.tool), ("read", experiment.tool), ("idempotent", experiment.tool), ("read", experiment.model))[round_ % 4]
        wait = {"think_ms": 150} if other is experiment.model else {"work_ms": 150}
        client = experiment.client(f"{effect}: answered while stopped", effect=effect, **wait)
        sending = in_thread(client.finish)
        until(lambda: any(r["run"] == client.run for r in list(other.requests)), what="the request")
        process.send_signal(signal.SIGSTOP)
        until(lambda: client.run in list(other.answered), what="the answer")
        time.sleep(1.2 * SHORT_LIMIT_MS / 1000)
        process.send_signal(signal.SIGCONT)
        experiment.faults += 1
        sending.join(30)
        client.finish()
    untouched(experiment, process)
    return experiment


def killed_while_paused(experiment, options, number):
    """Killed while paused: the next server continues, and the first one does nothing after that."""
    rng = random.Random(options.seed)
    with experiment.load(options.seed, "killed while stopped"):
        for _ in range(number):
            time.sleep(rng.uniform(0.02, 0.4))
            experiment.server.process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0.8, 3) * LEASE_MS / 1000)
            experiment.kills += 1
            boots = experiment.boots()
            experiment.restart()
            if experiment.boots() != boots + 1:
                experiment.failures.append(f"boot epoch {boots} was followed by {experiment.boots()}")
    return experiment


def pause_for(experiment, seconds, second):
    end = time.monotonic() + seconds
    experiment.server.process.send_signal(signal.SIGSTOP)
    experiment.faults += 1
    try:
        if second:
            boots = experiment.boots()
            tried = subprocess.run(experiment.server.arguments, env=experiment.server.env, cwd=experiment.server.folder.name, capture_output=True, text=True, timeout=30)
            if tried.returncode != 1 or "database_in_use" not in tried.stderr or experiment.boots() != boots:
                experiment.failures.append(f"a second server ended {tried.returncode}: {tried.stderr[-300:]}")
        time.sleep(max(0, end - time.monotonic()))
    finally:
        experiment.server.process.send_signal(signal.SIGCONT)


def untouched(experiment, process):
    """The server survived and no other process wrote: every call was sent once and succeeded, and no turn was taken over."""
    if experiment.server.process is not process or experiment.server.died():
        experiment.failures.append("the server did not survive")
    ended = lambda: not experiment.server.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
    until(ended, 30, "the end of all turns")
    calls = experiment.server.rows("SELECT id, effect, status, error_code, attempt FROM tool_calls WHERE status <> 'succeeded' OR attempt > 1")
    turns = experiment.server.rows("SELECT id, status, error_code, takeovers FROM turns WHERE takeovers > 0 OR status <> 'completed'")
    lost = experiment.server.rows("SELECT turn_id FROM api_usage WHERE estimated = 1")
    if calls or turns or lost:
        experiment.failures.append(f"changed by a pause: {calls[:3]} {turns[:3]} ({len(calls)} calls, {len(turns)} turns, {len(lost)} model requests)")
