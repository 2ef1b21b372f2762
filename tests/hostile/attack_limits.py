"""Attacks on limits, keys and tokens."""
import time

from world import OTHER, Limited, Model, together

ALL = ("chat", "tools", "read")


def burst(guest, method, path, body=None, count=300, per_minute=600):
    """Sends requests at once. At most a burst (a tenth of a minute's), what the rate allows, and one block of tokens per server may pass."""
    started = time.monotonic()
    answers = together([lambda: guest.send(method, path, body)] * count)
    passed = sum(answer.status != 429 for answer in answers)
    assert passed <= per_minute / 10 + per_minute / 60 * (time.monotonic() - started) + per_minute / 20, f"{passed} of {count} requests passed"
    for answer in answers:
        assert answer.status != 429 or (answer.code == "rate_limited" and int(answer.headers["retry-after"]) >= 1), answer
    return answers


def attack_a_burst_of_searches(world):
    answers = burst(world.guest(), "POST", "/api/knowledge/search", {"query": "office"})
    assert {answer.status for answer in answers} == {200, 429}


def attack_a_burst_on_any_route(world):
    for method, path in (("GET", "/api/conversations"), ("GET", "/api/turns/x"), ("GET", "/api/none-such"), ("POST", "/api/keys")):
        burst(world.guest(ALL), method, path, {} if method == "POST" else None, 200)
    # Under `/v1` the key counts.
    burst(world.guest(ALL), "GET", "/v1/models", None, 2000, 6000)


def attack_many_keys_of_one_person(world):
    """A person counts over all keys."""
    guest = world.guest()
    keys = [world.operator("POST", "/api/keys", {"tenant": "demo", "user_id": str(guest.user), "scopes": ["read"]})["key"] for _ in range(4)]
    started = time.monotonic()
    answers = together([lambda key=key: guest.send("GET", "/api/tools", key=key) for key in keys * 50])
    assert sum(answer.status == 200 for answer in answers) <= 60 + 10 * (time.monotonic() - started) + 30


def attack_the_flight_quota(world):
    """The functions of the flight search are calls like others: with rows, scopes and limits."""
    assert world.guest(("chat", "read")).send("POST", "/functions/v1/seatsaero-flight-search", {}).status == 403
    guest = world.guest(ALL)
    count = lambda: world.server.rows("SELECT count(*) AS n FROM tool_calls WHERE tool_name LIKE '%flight%'")[0]["n"]
    before = count()
    body = {"origin": "FRA", "destination": "JFK", "date": time.strftime("%Y-%m-%d", time.gmtime(time.time() + 40 * 86400)), "departureDate": "2027-01-01", "cabin": "business"}
    for path in ("/functions/v1/seatsaero-flight-search", "/functions/v1/amadeus-flight-search"):
        last = guest.send("POST", path, body)
    assert count() == before + 2, last


def attack_the_stream_of_a_revoked_key(world):
    guest = world.guest()
    conversation = guest.chat("hi").json["conversation_id"]
    client = guest.open(f"GET /api/conversations/{conversation}/events HTTP/1.1\nHost: x\nAuthorization: Bearer {{key}}\nAccept: text/event-stream\n\n")
    client.settimeout(10)
    received = client.recv(65536)
    assert b" 200 " in received
    world.operator("DELETE", f"/api/keys/{guest.key_id}")
    revoked = time.monotonic()
    while piece := client.recv(65536):
        received += piece
        if b"\r\n0\r\n\r\n" in received[-16:] or received.endswith(b"0\r\n\r\n"):
            break
    took = time.monotonic() - revoked
    client.close()
    assert took <= 5, f"the stream of a revoked key lived {took:.1f} s"
    assert guest.send("GET", "/api/conversations").status == 401


def attack_the_stream_of_an_expiring_key(world):
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
    guest = world.guest(expires_at=expires)
    conversation = guest.chat("hi").json["conversation_id"]
    client = guest.open(f"GET /api/conversations/{conversation}/events HTTP/1.1\nHost: x\nAuthorization: Bearer {{key}}\nAccept: text/event-stream\n\n")
    client.settimeout(10)
    started, received = time.monotonic(), b""
    while piece := client.recv(65536):
        received += piece
        if received.endswith(b"0\r\n\r\n"):
            break
    client.close()
    assert time.monotonic() - started <= 3 + 5


def attack_a_forwarded_address(world):
    guest = world.guest(allow_ips=["10.1.2.3"])
    for headers in ({}, {"x-forwarded-for": "10.1.2.3"}, {"x-forwarded-for": "10.1.2.3, 127.0.0.1"}, {"forwarded": "for=10.1.2.3"}, {"x-real-ip": "10.1.2.3"}, {"cf-connecting-ip": "10.1.2.3"}):
        answer = guest.send("GET", "/api/conversations", headers=headers)
        assert answer.status == 401, answer


def attack_tokens(world):
    guest = world.guest()
    subject = f"00000000-0000-4000-8000-{guest.user:012}"
    claims = {"sub": subject, "app_metadata": {"tenant_id": "demo", "roles": ["guest"]}}
    good = guest.send("GET", "/api/conversations", key=world.token(**claims))
    assert good.status == 200, good
    unknown = guest.send("GET", "/api/conversations", key=world.token(**{**claims, "app_metadata": {"tenant_id": "demo", "roles": ["superuser"]}}))
    assert (unknown.status, unknown.code) == (403, "unknown_role"), unknown
    for bad in (world.token(**claims, alg="none"), world.token(**claims)[:-4] + "AAAA", world.token(**{**claims, "exp": 1}), world.token(**{**claims, "role": "service_role"}),
                world.token(**{**claims, "role": "anon"}), world.token(**{**claims, "aud": "other"}), world.token(**{**claims, "sub": "1"}), "a.b.c", "e30.e30.", "wk_", "x" * 5000):
        answer = guest.send("GET", "/api/conversations", key=bad)
        assert answer.status in (401, 429), answer
    foreign = guest.send("GET", "/api/conversations", key=world.token(**{**claims, "app_metadata": {"tenant_id": OTHER, "roles": ["guest"]}}))
    assert foreign.status == 403, foreign
    for claim in ({"roles": ["admin"]}, {"user_metadata": {"roles": ["admin"], "tenant_id": OTHER}}):
        answer = guest.send("POST", "/api/keys", {"scopes": ["admin"]}, key=world.token(**{**claims, **claim}))
        assert answer.status == 403, answer


def attack_guessed_keys(world):
    """Guesses wait, and they lock out nobody with a right key. A server of its own, because its address would wait in later attacks."""
    model = Model()
    server = Limited(model)
    try:
        good = server.call("POST", "/api/keys", {"user_id": 5, "scopes": ["read"]})[1]["key"]
        ask = lambda key: server.call("GET", "/api/conversations", key=key)[0]
        assert ask(good) == 200
        statuses = together([lambda n=n: ask(f"wk_{n:032x}") for n in range(100)]) + [ask(f"wk_{n:032x}") for n in range(100, 120)]
        assert set(statuses) == {401, 429} and set(statuses[-20:]) == {429}, statuses
        assert ask(good) == 200 and server.chat("Are you there?")[0] == 200
    finally:
        server.close()
        model.close()


def attack_scopes(world):
    """A key with one scope gets nothing of the others."""
    reader, writer = world.guest(("read",)), world.guest(("chat",))
    assert reader.chat("hi").status == 403 and reader.invoke("test_echo", {"value": 1}).status == 403
    assert reader.send("POST", "/v1/responses", {"model": "fake", "input": "hi"}).status == 403
    assert writer.invoke("test_echo", {"value": 1}).status == 403 and writer.send("GET", "/api/tools").status == 403
    nobody = world.guest()
    nobody.key = world.operator("POST", "/api/keys", {"tenant": "demo", "scopes": ["chat", "tools", "read"]})["key"]
    for answer in (nobody.chat("hi"), nobody.invoke("test_echo", {"value": 1}), nobody.chat("hi", headers={"x-user-id": "3"})):
        assert answer.status == 403, answer


def attack_without_a_credential(world):
    guest = world.guest()
    for path in ("/api/tools", "/api/conversations", "/v1/models", "/metrics", "/api/keys", "/api/stream", "/mcp", "/api/audit"):
        answer = guest.send("GET", path, headers={"authorization": None})
        assert answer.status in (401, 404), answer


def attack_turns_without_end(world):
    """More turns than a person may start are refused, and none waits for ever."""
    guest = world.guest()
    answers = together([lambda: guest.send("POST", "/api/chat", {"message": "hi", "background": True})] * 100)
    assert {answer.status for answer in answers} <= {202, 429, 503}, {answer.status for answer in answers}
