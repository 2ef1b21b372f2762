#!/usr/bin/env python3
"""What readers cost: idle event streams, and readers that stop reading.

`make test` runs it with small numbers. The published ones, on a release build:

    cargo build --release -p werkruf && WERKRUF_BIN=target/release/werkruf tests/outside/check_memory.py --full
"""
import os
import resource
import socket
import sys
import time

from check_spine import Scene
from fakes import calls, text
from house import ADMIN, until

FULL = "--full" in sys.argv
# From one loopback address, as a proxy on the same machine would come.
IDLE = 5000 if FULL else 500
STALLED = 200 if FULL else 50
PER_STREAM_KIB = 64
STALLED_MIB = 64


def resident(house):
    """KiB of the server's memory."""
    with open(f"/proc/{house.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4


def files(count):
    """Room for so many sockets in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def open_stream(house, conversation, after, window=None):
    """A raw stream: nothing is read that the caller does not read."""
    host, port = house.url.removeprefix("http://").split(":")
    client = socket.socket()
    if window:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    client.connect((host, int(port)))
    client.sendall(f"GET /api/conversations/{conversation}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nX-User-Id: 1\r\n"
                   f"Accept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n".encode())
    return client


def read_until(client, words):
    seen = b""
    while words not in seen:
        piece = client.recv(65536)
        assert piece, seen[-300:]
        seen = seen[-len(words):] + piece


def check_idle_streams_are_cheap():
    files(IDLE + 200)
    with Scene() as (_, _, house):
        conversations = [house.chat("Hi")[1]["conversation_id"] for _ in range(20)]

        def listening(number):
            client = open_stream(house, conversations[number % len(conversations)], 0)
            read_until(client, b"event: final")
            return client

        warm = [listening(number) for number in range(40)]
        before, started = resident(house), time.monotonic()
        idle = [listening(number) for number in range(IDLE)]
        took = time.monotonic() - started
        house.call("GET", "/readyz", key=None)
        each = (resident(house) - before) / IDLE
        print(f"       {IDLE} idle streams: {each:.1f} KiB each, opened in {took:.1f} s", flush=True)
        assert each < PER_STREAM_KIB, each
        # They are alive: what happens now is heard.
        house.chat("Still there?", conversations[0])
        for client in idle[::len(conversations)][:50]:
            read_until(client, b"event: final")
        for client in warm + idle:
            client.close()


def peak_with(readers):
    """The most KiB while turns with large events go on and this many readers take none of it. Half of them have caught up before,
    the others stand at the beginning of a log larger than their window."""
    with Scene() as (model, _, house):
        conversations = [house.chat("Hi")[1]["conversation_id"] for _ in range(10)]

        def speak():
            for conversation in conversations:
                model.script = [calls(("test_bytes", {"n": 60000})), text("Large.")]
                assert house.chat("More", conversation)[0] == 200
            return resident(house)

        for _ in range(3):
            speak()
        last = {row["id"]: row["seq"] for row in house.rows("SELECT conversation_id AS id, max(seq) AS seq FROM events GROUP BY 1")}
        names = [conversations[n % 10] for n in range(readers)]
        stalled = [open_stream(house, name, 0 if n // 10 % 2 else last[name], 4096) for n, name in enumerate(names)]
        started = time.monotonic()
        peak = max(speak() for _ in range(8 if FULL else 4))
        if FULL and readers:
            until(lambda: sockets(house) < 30, 60, "the end of the stalled connections")
            print(f"       {readers} stalled readers: all dropped {time.monotonic() - started:.1f} s after they connected", flush=True)
        for client in stalled:
            client.close()
        return peak


def check_stalled_readers_are_cheap_and_dropped():
    cost = (peak_with(STALLED) - peak_with(0)) / 1024
    print(f"       {STALLED} stalled readers: {cost:.1f} MiB in all", flush=True)
    assert cost < STALLED_MIB, cost


def sockets(house):
    def is_socket(name):
        try:
            return os.readlink(f"/proc/{house.process.pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            return False
    return sum(map(is_socket, os.listdir(f"/proc/{house.process.pid}/fd")))


if __name__ == "__main__":
    check_idle_streams_are_cheap()
    check_stalled_readers_are_cheap_and_dropped()
