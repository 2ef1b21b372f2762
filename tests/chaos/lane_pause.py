"""The server is stopped for longer than a lease lasts, and goes on as if nothing had been.

While it is stopped a second server on the same file must refuse to start: the file's lock belongs to the process, not to its
heartbeat. Nothing is sent twice and nothing is timed out for the time the process itself stood still. Killed while stopped,
it is dead, and the next one voids its leases.
"""
import random
import signal
import subprocess
import time

from scene import in_thread, until

LEASE_MS = 200
# Shorter than the pauses: an answer that came while the process stood still is an answer in time.
HASTE_MS = 600
HASTE = {f"WERKRUF_LIMIT_{name}_MS": str(HASTE_MS) for name in ("TOOL", "MODEL_FIRST_BYTE", "MODEL_IDLE")}


def pause(options, model, tool, Yard):
    env = {"WERKRUF_LIMIT_LEASE_TTL_MS": str(LEASE_MS)}
    number = 60 if options.full else 6
    return [paused(Yard("stop", model, tool, env), options, number),
            hurried(Yard("haste", model, tool, {**env, **HASTE}), options, number),
            killed(Yard("dead", model, tool, env), options, number // 2)]


def paused(yard, options, number):
    """Stopped and woken; a second server tries its luck meanwhile."""
    dice, process = random.Random(options.seed), yard.victim.process
    with yard.talking(options.seed, "stopped", work_ms=(0, 20, 200)):
        for round_ in range(number):
            time.sleep(dice.uniform(0.02, 0.4))
            stopped_for(yard, dice.uniform(0.8, 3) * LEASE_MS / 1000, second=round_ % 2 == 0)
    untouched(yard, process)
    return yard


def hurried(yard, options, number):
    """Stopped for longer than a tool or the model may take, while the answer comes."""
    process = yard.victim.process
    for round_ in range(number):
        effect, other = (("once", yard.tool), ("read", yard.tool), ("idempotent", yard.tool), ("read", yard.model))[round_ % 4]
        wait = {"think_ms": 150} if other is yard.model else {"work_ms": 150}
        client = yard.client(f"{effect}: answered while stopped", effect=effect, **wait)
        asking = in_thread(client.insist)
        until(lambda: any(r["run"] == client.run for r in list(other.requests)), what="the request")
        process.send_signal(signal.SIGSTOP)
        until(lambda: client.run in list(other.answered), what="the answer")
        time.sleep(1.2 * HASTE_MS / 1000)
        process.send_signal(signal.SIGCONT)
        yard.faults += 1
        asking.join(30)
        client.insist()
    untouched(yard, process)
    return yard


def killed(yard, options, number):
    """Killed while stopped: the next server goes on, and nothing of the first comes after it."""
    dice = random.Random(options.seed)
    with yard.talking(options.seed, "killed while stopped"):
        for _ in range(number):
            time.sleep(dice.uniform(0.02, 0.4))
            yard.victim.process.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.8, 3) * LEASE_MS / 1000)
            yard.kills += 1
            boots = yard.boots()
            yard.again()
            if yard.boots() != boots + 1:
                yard.failures.append(f"boot epoch {boots} was followed by {yard.boots()}")
    return yard


def stopped_for(yard, seconds, second):
    end = time.monotonic() + seconds
    yard.victim.process.send_signal(signal.SIGSTOP)
    yard.faults += 1
    try:
        if second:
            boots = yard.boots()
            tried = subprocess.run(yard.victim.arguments, env=yard.victim.env, cwd=yard.victim.folder.name, capture_output=True, text=True, timeout=30)
            if tried.returncode != 1 or "database_in_use" not in tried.stderr or yard.boots() != boots:
                yard.failures.append(f"a second server ended {tried.returncode}: {tried.stderr[-300:]}")
        time.sleep(max(0, end - time.monotonic()))
    finally:
        yard.victim.process.send_signal(signal.SIGCONT)


def untouched(yard, process):
    """Nobody died and nobody else wrote: every call was sent once and came to its end, no turn changed hands."""
    if yard.victim.process is not process or yard.victim.died():
        yard.failures.append("the server did not live through it")
    ended = lambda: not yard.victim.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
    until(ended, 30, "the end of all turns")
    calls = yard.victim.rows("SELECT id, effect, status, error_code, attempt FROM tool_calls WHERE status <> 'succeeded' OR attempt > 1")
    turns = yard.victim.rows("SELECT id, status, error_code, takeovers FROM turns WHERE takeovers > 0 OR status <> 'completed'")
    lost = yard.victim.rows("SELECT turn_id FROM api_usage WHERE estimated = 1")
    if calls or turns or lost:
        yard.failures.append(f"changed by a pause: {calls[:3]} {turns[:3]} ({len(calls)} calls, {len(turns)} turns, {len(lost)} model requests)")
