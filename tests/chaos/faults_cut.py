"""The model's stream breaks off after byte N, for every N of a response with text and two calls, one of them `once`.

No call of a cut response may run. The turn sends at most three requests and ends with an answer or a typed error.
"""
import concurrent.futures
import socket
import struct

from auditor import group
from scenario import Model, stream

AT_ONCE = 96
GIVEN_UP = ("model_incomplete", "model_unavailable")


class CutModel(Model):
    """Cuts the first responses of a run as its message says: after `cut` bytes of the body (-1: before the headers), `cuts` times."""

    def __init__(self):
        super().__init__()
        self.sends = {}

    def send_response(self, endpoint, fields, done, pieces):
        with self.lock:
            sent = self.sends[fields["run"], done] = self.sends.get((fields["run"], done), 0) + 1
        if done or sent > int(fields["cuts"]):
            return super().send_response(endpoint, fields, done, pieces)
        at = int(fields["cut"])
        if at >= 0:
            super().send_response(endpoint, fields, done, [b"".join(pieces)[:at]])
        if fields["how"] == "reset":
            # With linger time 0, close() sends a reset instead of a regular end of the connection.
            endpoint.wfile.flush()
            endpoint.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            endpoint.connection.close()


def recording(run):
    """The length of the response, and the offset at which its finish reason is complete."""
    fields = {"run": run, "effect": "read", "shape": "mixed", "rounds": 1, "work": 0}
    payloads = stream(fields, 0)
    finish = next(at for at, payload in enumerate(payloads) if b'"finish_reason": "tool_calls"' in payload)
    pieces = [b"data: " + payload + b"\n\n" for payload in payloads]
    return sum(map(len, pieces)), sum(map(len, pieces[:finish + 1])) - len(b"\n\n")


def cut(options, tool, Experiment):
    model = CutModel()
    experiment = Experiment("cut", model, tool)
    total, finish_at = recording("cut-1000")
    wanted = [(at, cuts, how) for at in range(-1, total + 1) for cuts, how in plans(at, options.full)]
    if not options.full:
        wanted = [entry for entry in wanted if entry[0] % 11 == 0 or entry[0] in (-1, finish_at - 1, finish_at, finish_at + 1, finish_at + 2, total)]
    runs = []
    for at, cuts, how in wanted:
        client = experiment.client(f"cut {cuts} times after byte {at}, {how}", None, effect="read", shape="mixed", cut=at, cuts=cuts, how=how)
        if cuts == 3 and at < recording(client.run)[1] + len("\n\n"):
            experiment.may_fail[client.run] = GIVEN_UP
        runs.append((client, at, cuts))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(pool.map(lambda run: finish(run[0]), runs))
    requests = group(list(tool.requests), "run")
    for (client, at, cuts), failure in zip(runs, failures):
        experiment.failures += [f"cut after {at}: {failure}"] if failure else judge(client, at, cuts, model, sorted(r["n"] for r in requests[client.run]))
    experiment.faults = sum(min(cuts, model.sends.get((client.run, 0), 0)) for client, _, cuts in runs)
    return [experiment]


def plans(at, full):
    """How often the stream is cut, and how the connection ends. The short form tests one of the three per byte."""
    every = [(1, "end"), (3, "end"), (2, "reset")]
    return every if full else [every[at % 3]]


def finish(client):
    try:
        client.finish(60)
    except Exception as error:
        return repr(error)


def judge(client, at, cuts, model, requests):
    """Compares the outcome of a run with the expected one."""
    wrong = []
    sends, (_, finish_at) = model.sends[client.run, 0], recording(client.run)
    if at < finish_at:
        expected = (3, "given up", []) if cuts == 3 else (cuts + 1, "answered", [0, 1])
    else:
        # Only the end of the line or of the stream is missing: the response is used as a whole or requested again, never in part.
        expected = (sends, "answered" if client.text else "given up", [0, 1] if client.text else [])
    found = (sends, "answered" if client.text else "given up" if client.error in GIVEN_UP else client.error, requests)
    if found != expected:
        wrong.append(f"cut {cuts} times after byte {at} of the answer (done at {finish_at}): (sends, end, calls) are {found}, not {expected}")
    return wrong
