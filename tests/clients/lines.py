"""The frame of a Python program: it reads the names of scenarios from its input, one per line, and prints what each received as JSON.

One process runs all scenarios of a client, because importing its packages takes longer than a scenario.
"""
import asyncio
import base64
import gc
import inspect
import json
import os
import sys
import traceback
import zlib

BASE_URL, API_KEY, API = os.environ["BASE_URL"], os.environ["API_KEY"], os.environ.get("API", "")


def png():
    """One white pixel."""
    def part(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    head = (1).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(b"\0\xff\xff\xff")) + part(b"IEND", b"")


PNG = png()
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def refusal(error, code=None):
    """What a program learns from an error: its class, the HTTP status and the code."""
    body = getattr(error, "body", None)
    code = code or getattr(error, "code", None) or (body.get("code") or (body.get("error") or {}).get("code") if isinstance(body, dict) else None)
    return {"class": type(error).__name__, "status": getattr(error, "status_code", None), "code": code, "message": str(error)}


def refused(work, *kinds):
    """Runs work that must fail with an error of one of these classes; a client that repeats the request shows in the model's log."""
    try:
        work()
    except kinds as error:
        return refusal(error)
    raise AssertionError("the request was not refused")


async def refused_async(work, *kinds):
    try:
        await work
    except kinds as error:
        return refusal(error)
    raise AssertionError("the request was not refused")


def run(scenarios):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    print("@@ " + json.dumps(sorted(scenarios)), flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            received = scenarios[name](*arguments)
            answer = {"received": loop.run_until_complete(received) if inspect.isawaitable(received) else received}
        except BaseException:
            answer = {"failure": traceback.format_exc()[-3000:]}
        # Some libraries close a connection only when their objects are collected.
        received = None
        gc.collect()
        print("@@ " + json.dumps(answer), flush=True)
