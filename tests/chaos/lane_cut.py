"""The model's stream breaks off after byte N, for every N of an answer with text and two calls, one of them `once`.

Nothing of a cut answer may run. The turn asks again, three times in all, and ends with an answer or a named failure.
"""
import concurrent.futures
import socket
import struct

from auditor import group
from scene import Model, stream

AT_ONCE = 96
GIVEN_UP = ("model_incomplete", "model_unavailable")


class CutModel(Model):
    """Breaks its first answers to a run off as the message says: `cut` bytes into the body (-1: before the head), `cuts` times."""

    def __init__(self):
        super().__init__()
        self.sends = {}

    def speak(self, handler, words, done, pieces):
        with self.lock:
            sent = self.sends[words["run"], done] = self.sends.get((words["run"], done), 0) + 1
        if done or sent > int(words["cuts"]):
            return super().speak(handler, words, done, pieces)
        at = int(words["cut"])
        if at >= 0:
            super().speak(handler, words, done, [b"".join(pieces)[:at]])
        if words["how"] == "reset":
            # Closing with bytes of ours under way: the other side gets a reset instead of an end.
            handler.wfile.flush()
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()


def recording(run):
    """How long the answer is, and where the provider has said that it is done."""
    words = {"run": run, "effect": "read", "shape": "mixed", "rounds": 1, "work": 0}
    payloads = stream(words, 0)
    finish = next(at for at, payload in enumerate(payloads) if b'"finish_reason": "tool_calls"' in payload)
    pieces = [b"data: " + payload + b"\n\n" for payload in payloads]
    return sum(map(len, pieces)), sum(map(len, pieces[:finish + 1])) - len(b"\n\n")


def cut(options, tool, Yard):
    model = CutModel()
    # No time of waiting is tested here: the pauses between sends are the server's own.
    yard = Yard("cut", model, tool)
    total, told = recording("cut-1000")
    wanted = [(at, cuts, how) for at in range(-1, total + 1) for cuts, how in plans(at, options.full)]
    if not options.full:
        wanted = [entry for entry in wanted if entry[0] % 11 == 0 or entry[0] in (-1, told - 1, told, told + 1, told + 2, total)]
    runs = []
    for at, cuts, how in wanted:
        client = yard.client(f"cut {cuts} times after byte {at}, {how}", None, effect="read", shape="mixed", cut=at, cuts=cuts, how=how)
        if cuts == 3 and at < recording(client.run)[1] + len("\n\n"):
            yard.may_fail[client.run] = GIVEN_UP
        runs.append((client, at, cuts))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(pool.map(lambda run: insist(run[0]), runs))
    requests = group(list(tool.requests), "run")
    for (client, at, cuts), failure in zip(runs, failures):
        yard.failures += [f"cut after {at}: {failure}"] if failure else judge(client, at, cuts, model, sorted(r["n"] for r in requests[client.run]))
    yard.faults = sum(min(cuts, model.sends.get((client.run, 0), 0)) for client, _, cuts in runs)
    return [yard]


def plans(at, full):
    """How often, and how the connection ends. The short form takes one of them in turn."""
    every = [(1, "end"), (3, "end"), (2, "reset")]
    return every if full else [every[at % 3]]


def insist(client):
    try:
        client.insist(60)
    except Exception as error:
        return repr(error)


def judge(client, at, cuts, model, requests):
    """What a run must have come to."""
    wrong = []
    sends, (_, told) = model.sends[client.run, 0], recording(client.run)
    if at < told:
        expected = (3, "given up", []) if cuts == 3 else (cuts + 1, "answered", [0, 1])
    else:
        # All was said but the end of the line or of the stream: taken as whole, or asked again. Never half.
        expected = (sends, "answered" if client.text else "given up", [0, 1] if client.text else [])
    found = (sends, "answered" if client.text else "given up" if client.error in GIVEN_UP else client.error, requests)
    if found != expected:
        wrong.append(f"cut {cuts} times after byte {at} of the answer (done at {told}): (sends, end, calls) are {found}, not {expected}")
    return wrong
