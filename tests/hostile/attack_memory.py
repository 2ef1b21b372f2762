"""Attacks on the memory, the connections and the time of the server."""
import json
import select
import time

from world import Limited, Model, together, until

MIB = 1 << 20


def zeros(count):
    return b"[" + b"0," * (count - 1) + b"0]"


def attack_large_bodies_with_an_unknown_field(world):
    guest = world.guest()
    for path, body in (("/v1/chat/completions", b'"model": "fake", "messages": [{"role": "user", "content": "hi"}]'), ("/v1/responses", b'"model": "fake", "input": "hi"'),
                       ("/api/chat", b'"message": "hi"')):
        whole = b"{" + body + b', "unknown": ' + zeros(15 * MIB // 2) + b"}"
        for answer in together([lambda: guest.send("POST", path, whole)] * 4):
            assert answer.status in (200, 400, 413, 429, 503), answer


def attack_deep_nesting(world):
    guest = world.guest(("chat", "tools", "read"))
    for depth in (200, 100_000, 900_000 // 2):
        for left, right in ((b"[", b"]"), (b'{"a":', b"}")):
            deep = left * depth + (b"1" if left != b"[" else b"") + right * depth
            for path, body in (("/v1/chat/completions", b'{"model": "fake", "messages": [{"role": "user", "content": "hi", "x": %s}]}'),
                               ("/v1/responses", b'{"model": "fake", "input": [{"type": "message", "role": "user", "content": %s}]}'),
                               ("/api/chat", b'{"message": "hi", "x": %s}'), ("/api/tools/test_echo/invoke", b'{"input": {"value": %s}}')):
                answer = guest.send("POST", path, body % deep)
                assert answer.status in (200, 400, 413, 429), answer


def attack_very_many_messages(world):
    guest = world.guest()
    one = {"role": "user", "content": "x"}
    many = json.dumps({"model": "fake", "messages": [one] * 300_000}).encode()
    items = json.dumps({"model": "fake", "input": [one] * 300_000}).encode()
    history = json.dumps({"format": "openai", "messages": [one] * 300_000}).encode()
    jobs = [lambda: guest.send("POST", "/v1/chat/completions", many, timeout=120), lambda: guest.send("POST", "/v1/responses", items, timeout=120),
            lambda: guest.send("POST", "/api/conversations", history, timeout=120)]
    for answer in together(jobs):
        assert answer.status in (200, 201, 400, 413, 422, 429, 502, 503), answer


def attack_very_many_tools_and_parts(world):
    guest = world.guest()
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(100)}}}}
    bodies = [{"model": "fake", "messages": [{"role": "user", "content": "x"}], "tools": [tool] * 3000},
              {"model": "fake", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 300_000}]},
              {"model": "fake", "messages": [{"role": "user", "content": "x"}], "metadata": {f"k{n}": "v" for n in range(300_000)}},
              {"model": "m" * 5_000_000, "messages": [{"role": "user", "content": "x"}]}]
    for answer in together([lambda body=body: guest.send("POST", "/v1/chat/completions", body, timeout=120) for body in bodies]):
        assert answer.status < 500 or answer.status in (502, 503), answer


def attack_large_states_and_lists_that_nobody_reads(world):
    guest = world.guest()
    conversations = [guest.chat("hi") for _ in range(15)]
    assert all(answer.status == 200 for answer in conversations), conversations[-1]
    for answer in conversations:
        path = f"/api/conversations/{answer.json['conversation_id']}/state"
        too_large = guest.send("PATCH", path, {"note": "x" * (MIB - 100)})
        assert (too_large.status, too_large.code) == (409, "state_too_large"), too_large
        assert guest.send("PATCH", path, {"note": "x" * 250_000}).status == 200
    listed = guest.send("GET", "/api/conversations?limit=1000000")
    assert len(listed.raw) < MIB, len(listed.raw)
    unread = [guest.open("GET /api/conversations?limit=1000 HTTP/1.1\nHost: x\nAuthorization: Bearer {key}\n\n", window=4096) for _ in range(20)]
    unread += [guest.open(f"GET {'/api/conversations/' + conversations[0].json['conversation_id'] + '/state'} HTTP/1.1\nHost: x\nAuthorization: Bearer {{key}}\n\n", window=4096)
               for _ in range(20)]
    world.alive()
    for client in unread:
        client.close()


def attack_many_states_of_nearly_the_limit_by_patches_in_parallel(world):
    guest = world.guest()
    conversation = guest.chat("hi").json["conversation_id"]
    patches = [lambda n=n: guest.send("PATCH", f"/api/conversations/{conversation}/state", {f"k{n}": "x" * 200_000}) for n in range(8)]
    statuses = sorted(answer.status for answer in together(patches))
    assert statuses == [200] + [409] * 7, statuses


def attack_trickled_bodies(world):
    """Bodies that never end get a typed end, however slowly they come."""
    guest = world.guest()
    head = "POST /v1/chat/completions HTTP/1.1\nHost: x\nAuthorization: Bearer {key}\nContent-Type: application/json\nContent-Length: 16000000\n\n"
    clients = [guest.open(head, b'{"x": "') for _ in range(20)]
    end, open_ones, typed = time.monotonic() + 150, set(clients), 0
    while open_ones:
        assert time.monotonic() < end, f"{len(open_ones)} of {len(clients)} trickled bodies are still read after 150 s"
        readable, _, _ = select.select(list(open_ones), [], [], 0.5)
        for client in readable:
            try:
                received = client.recv(65536)
            except ConnectionResetError:
                received = b""
            # The answer may be lost with the connection, because bytes of the body are still on their way.
            typed += b" 408 " in received.split(b"\r\n")[0] and b'"code"' in received
            open_ones.discard(client)
            client.close()
        for client in open_ones:
            try:
                client.send(b"x")
            except OSError:
                pass
    assert typed, "no trickled body got 408"


attack_trickled_bodies.slow = True


def attack_chunked_body_without_end(world):
    guest = world.guest()
    client = guest.open("POST /v1/chat/completions HTTP/1.1\nHost: x\nAuthorization: Bearer {key}\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n")
    piece = b"100000\r\n" + b" " * MIB + b"\r\n"
    try:
        for _ in range(200):
            client.sendall(piece)
        raise AssertionError("200 MiB of one body were taken")
    except OSError:
        pass
    finally:
        client.close()


def attack_compressed_body(world):
    import gzip
    guest = world.guest()
    bomb = gzip.compress(b'{"message": "' + b"x" * (200 * MIB) + b'"}', 9)
    answer = guest.send("POST", "/api/chat", bomb, {"content-encoding": "gzip"})
    assert answer.status in (400, 413, 415), answer


def attack_kept_alive_connections_fill_the_table(world):
    """A full table of connections locks nobody out: idle ones make room, and the operator has spare places."""
    model = Model()
    server = Limited(model, env={"WERKRUF_LIMIT_CONNECTIONS": "50"})
    try:
        import http.client
        host, port = server.url.removeprefix("http://").split(":")
        idle = []
        for _ in range(70):
            client = http.client.HTTPConnection(host, int(port), timeout=10)
            try:
                client.request("GET", "/healthz")
                client.getresponse().read()
            except OSError:
                pass
            idle.append(client)
        assert server.chat("Are you there?")[0] == 200
        key = server.call("POST", "/api/keys", {"user_id": 5, "scopes": ["chat"]})[1]["key"]
        until(lambda: server.chat("And for me?", key=key)[0] == 200, 15, "an answer for another client")
        for client in idle:
            client.close()
    finally:
        server.close()
        model.close()


def attack_streams_that_nobody_reads(world):
    guest = world.guest(("chat", "tools", "read"))
    conversation = guest.chat('!call test_bytes {"n": 60000}\n!call test_bytes {"n": 60001}').json["conversation_id"]
    head = f"GET /api/conversations/{conversation}/events HTTP/1.1\nHost: x\nAuthorization: Bearer {{key}}\nAccept: text/event-stream\nLast-Event-ID: 0\n\n"
    unread = [guest.open(head, window=4096) for _ in range(50)]
    for number in range(6):
        guest.chat('!call test_bytes {"n": %d}' % (60010 + number), conversation)
    world.alive()
    for client in unread:
        client.close()


def attack_a_thousand_long_polls(world):
    guest = world.guest()
    conversation = guest.chat("hi").json["conversation_id"]
    before = world.memory("VmRSS")
    head = f"GET /api/conversations/{conversation}/events?after=1000000 HTTP/1.1\nHost: x\nAuthorization: Bearer {{key}}\nAccept: text/event-stream\n\n"
    polls = [guest.open(head) for _ in range(1000)]
    world.alive()
    grown = world.memory("VmRSS") - before
    for client in polls:
        client.close()
    assert grown < 128, f"1000 long polls took {grown:.0f} MiB"


def attack_large_heads(world):
    guest = world.guest()
    for head in ("GET /api/tools?" + "x" * 2_000_000 + " HTTP/1.1\nHost: x\n\n", "GET /healthz HTTP/1.1\nHost: x\n" + "".join(f"x{n}: y\n" for n in range(5000)) + "\n",
                 "GET /healthz HTTP/1.1\nHost: x\nx: " + "y" * 2_000_000 + "\n\n"):
        client = None
        try:
            client = guest.open(head.replace("{", "").replace("}", ""))
            received = client.recv(65536)
            status = received.split(b" ")[1:2]
            assert not received or status in ([b"400"], [b"414"], [b"431"]), received[:300]
        except OSError:
            pass  # the server closed the connection while the head was sent
        finally:
            if client:
                client.close()


def attack_huge_results(world):
    guest = world.guest(("chat", "tools", "read"))
    for answer in together([lambda: guest.invoke("huge")] * 4):
        assert answer.status == 200 and answer.json["error"]["code"] == "response_too_large", answer
    answer = guest.invoke("test_bytes", {"n": 10**15})
    assert answer.status == 200 and answer.json["status"] == "error", answer
    answer = guest.chat("\n".join('!call test_bytes {"n": %d}' % (200_000 + n) for n in range(40)))
    assert answer.status < 500, answer


def attack_panics_and_sleeps(world):
    guest = world.guest(("chat", "tools", "read"))
    assert guest.invoke("test_panic").json["error"]["code"] == "tool_panicked"
    assert guest.chat("!call test_panic {}").status == 200
    together([lambda: guest.invoke("test_sleep", {"ms": 10**12}, {"x-timeout-ms": "200"})] * 20)


def attack_odd_limits_and_cursors(world):
    guest = world.guest(("chat", "tools", "read"))
    conversation = guest.chat("hi").json["conversation_id"]
    for path in ("/api/conversations", "/api/tool-calls", "/api/approvals", f"/api/conversations/{conversation}/messages", "/api/knowledge/documents",
                 f"/api/conversations/{conversation}/events"):
        other = world.guest(("chat", "tools", "read"))
        for query in ("limit=1000000000", "limit=-1", "limit=0", "limit=abc", "limit=99999999999999999999", "after=%00", "after=abc", "after=-1", "order=x", "after=%27", "after=" + "9" * 5000):
            answer = (guest if conversation in path else other).send("GET", f"{path}?{query}", timeout=5)
            assert answer.status in (200, 400, 404, 410), answer


def attack_large_searches(world):
    guest = world.guest()
    for query in ("x" * 900_000, "a " * 400_000, '"' * 100_000, "NEAR(" * 50_000, "* OR *", "(" * 10_000, "\u0000", "office AND NOT", "title:office", "kan*"):
        answer = guest.send("POST", "/api/knowledge/search", {"query": query, "top_k": 100}, timeout=30)
        assert answer.status in (200, 400, 413), answer
    for top in (0, -1, 101, 10**18, 10**30, "x", 1.5):
        answer = guest.send("POST", "/api/knowledge/search", {"query": "office", "top_k": top})
        assert answer.status == 400 or len(answer.json["results"]) <= 100, (top, answer)


def attack_again_and_again(world):
    """Repeating the large attacks needs no more memory than before."""
    peaks = []
    for _ in range(3):
        for attack in (attack_large_bodies_with_an_unknown_field, attack_very_many_messages, attack_very_many_tools_and_parts, attack_huge_results):
            attack(world)
        peaks.append(world.memory("VmRSS"))
    assert peaks[-1] < max(peaks[:2]) + 64, f"MiB after each round: {peaks}"
