#!/usr/bin/env python3
"""Memory per subscriber: idle event streams, and clients that stop reading.

`make test` runs it with small numbers. The published numbers come from a release build:

    cargo build --release -p werkruf && WERKRUF_BIN=target/release/werkruf tests/outside/check_memory.py --full
"""
import os
import resource
import socket
import sys
import time

from check_turns import Scenario
from fakes import calls, text
from server import ADMIN, until

FULL = "--full" in sys.argv
# All connections come from one loopback address, as from a proxy on the same machine.
IDLE = 5000 if FULL else 500
STALLED = 200 if FULL else 50
PER_STREAM_KIB = 64
STALLED_MIB = 64


def resident(server):
    """KiB of the server's memory."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4


def files(count):
    """Raises the limit of open files for so many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def open_stream(server, conversation, after, window=None):
    """A raw stream: nothing is read from the socket except by the caller."""
    host, port = server.url.removeprefix("http://").split(":")
    client = socket.socket()
    if window:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    client.connect((host, int(port)))
    client.sendall(f"GET /api/conversations/{conversation}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nX-User-Id: 1\r\n"
                   f"Accept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n".encode())
    return client


def read_until(client, expected):
    received = b""
    while expected not in received:
        piece = client.recv(65536)
        assert piece, received[-300:]
        received = received[-len(expected):] + piece


def check_idle_streams_are_cheap():
    files(IDLE + 200)
    with Scenario() as (_, _, server):
        conversations = [server.chat("Hi")[1]["conversation_id"] for _ in range(20)]

        def subscribe(number):
            client = open_stream(server, conversations[number % len(conversations)], 0)
            read_until(client, b"event: final")
            return client

        warm = [subscribe(number) for number in range(40)]
        before, started = resident(server), time.monotonic()
        idle = [subscribe(number) for number in range(IDLE)]
        took = time.monotonic() - started
        server.call("GET", "/readyz", key=None)
        each = (resident(server) - before) / IDLE
        print(f"       {IDLE} idle streams: {each:.1f} KiB each, opened in {took:.1f} s", flush=True)
        assert each < PER_STREAM_KIB, each
        # The streams work: each receives a new event.
        server.chat("Still there?", conversations[0])
        for client in idle[::len(conversations)][:50]:
            read_until(client, b"event: final")
        for client in warm + idle:
            client.close()


def peak_with(readers):
    """The highest KiB while turns with large events run and this many clients stop reading. Half of them have caught up before;
    the others start at the beginning of a log that is larger than their window."""
    with Scenario() as (model, _, server):
        conversations = [server.chat("Hi")[1]["conversation_id"] for _ in range(10)]

        def run_turn():
            for conversation in conversations:
                model.script = [calls(("test_bytes", {"n": 60000})), text("Large.")]
                assert server.chat("More", conversation)[0] == 200
            return resident(server)

        for _ in range(3):
            run_turn()
        last = {row["id"]: row["seq"] for row in server.rows("SELECT conversation_id AS id, max(seq) AS seq FROM events GROUP BY 1")}
        names = [conversations[n % 10] for n in range(readers)]
        stalled = [open_stream(server, name, 0 if n // 10 % 2 else last[name], 4096) for n, name in enumerate(names)]
        started = time.monotonic()
        peak = max(run_turn() for _ in range(8 if FULL else 4))
        if FULL and readers:
            until(lambda: sockets(server) < 30, 60, "the end of the stalled connections")
            print(f"       {readers} stalled readers: all dropped {time.monotonic() - started:.1f} s after they connected", flush=True)
        for client in stalled:
            client.close()
        return peak


def check_stalled_readers_are_cheap_and_dropped():
    cost = (peak_with(STALLED) - peak_with(0)) / 1024
    print(f"       {STALLED} stalled readers: {cost:.1f} MiB in all", flush=True)
    assert cost < STALLED_MIB, cost


def sockets(server):
    def is_socket(name):
        try:
            return os.readlink(f"/proc/{server.process.pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            return False
    return sum(map(is_socket, os.listdir(f"/proc/{server.process.pid}/fd")))


if __name__ == "__main__":
    check_idle_streams_are_cheap()
    check_stalled_readers_are_cheap_and_dropped()
