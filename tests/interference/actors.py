"""Who acts: one low actor whose answers are compared, and high actors whose rows the low actor may not see."""

HIGH = "m-high"
LOW = 7  # the id of the low actor in the own tenant
ROLES = ("admin", "employee", "guest")
SCOPES = {"admin": ["admin", "chat", "tools", "read", "approve"], "employee": ["chat", "tools", "read", "approve"], "guest": ["chat", "tools", "read"]}
WORDS = ("apple", "river", "stone", "cloud", "lemon", "north", "paper", "quiet", "salt", "tiger", "urgent", "velvet", "winter", "yellow")


def rights(scope):
    return [{"entity": entity, "entity_type": "table", "access": "both", "scope": scope} for entity in ("table_requests", "table_tasks", "table_worktimes", "table_users")]


def people(tenant, more=()):
    user = lambda number, role: {"id": number, "first_name": f"User{number}", "last_name": tenant, "email": f"u{number}@{tenant}.example", "locale": "en-US", "branch_id": 1,
                                 "role_ids": [ROLES.index(role) + 1]}
    return {"tenant": tenant, "branches": [{"id": 1, "name": "One", "time_zone": "Europe/Berlin"}],
            "roles": [{"id": 1, "name": "admin", "permissions": rights("all")}, {"id": 2, "name": "employee", "permissions": rights("own")}, {"id": 3, "name": "guest", "permissions": []},
                      {"id": 4, "name": "lead", "permissions": rights("branch")}],
            "users": [user(number, role) for number, role in ((1, "admin"), (2, "employee"), (3, "guest"), *more)]}


def make_key(side, tenant, user, role):
    scopes = SCOPES[role]
    return side.operator("POST", "/api/keys", {"tenant": tenant, "user_id": str(user), "scopes": scopes}, tenant)["key"]


class Block:
    """A tenant with one low actor, and the high actors: those of the other tenant, and the others in the own one unless the low actor is its
    administrator, who may see them."""

    def __init__(self, sides, number):
        self.number, self.role = number, ROLES[number % 3]
        # The order of slugs and of ids must not matter either.
        self.tenant = f"{'a' if number // 3 % 2 else 'z'}-low-{number}"
        self.low, self.high = {}, {}
        for side in sides:
            side.begin_block()
            if not side.high:
                side.operator("POST", "/api/workspace/import", people(HIGH))
                side.high = {"ids": {}, "keys": {role: make_key(side, HIGH, ROLES.index(role) + 1, role) for role in ROLES}}
            side.operator("POST", "/api/workspace/import", people(self.tenant, [(LOW, self.role)]))
            side.operator("PUT", "/api/knowledge/collections/hidden/rights", {"read": ["lead"], "write": []}, self.tenant)
            side.operator("POST", "/api/knowledge/documents", {"documents": [
                {"id": f"d{n}", "title": f"Note {word}", "text": f"The {word} note speaks about {word} and the {WORDS[n + 1]}."} for n, word in enumerate(WORDS[:8])]}, self.tenant)
            self.low[side.name] = make_key(side, self.tenant, LOW, self.role)
            neighbours = () if self.role == "admin" else (("employee", 2), ("guest", 3))
            self.high[side.name] = [(HIGH, role, key) for role, key in side.high["keys"].items()]
            self.high[side.name] += [(self.tenant, role, make_key(side, self.tenant, user, role)) for role, user in neighbours]


def act_high(side, block, random):
    """One act of a high actor: whatever it is, the low actor may not notice."""
    tenant, role, key = random.choice(block.high[side.name])
    ids = side.high["ids"]
    text = " ".join(random.choice(WORDS) for _ in range(random.randint(1, 12)))
    conversation = random.choice(ids.get("conversation") or [""])
    json_chat = lambda body, headers=None: ("POST", "/api/chat", body, headers)
    acts = [
        lambda: json_chat({"message": text}),
        lambda: json_chat({"message": random.choice(("my requests", "my todos", "who am I", "create a request: " + text))}),
        lambda: json_chat({"message": text, "conversation_id": conversation}),
        lambda: json_chat({"message": text}, {"idempotency-key": f"key-{random.randint(0, 4)}"}),
        lambda: ("POST", "/api/tools/test_echo/invoke", {"input": {"value": text}}, {"x-safety-mode": random.choice(("careful", "strict"))}),
        lambda: ("POST", "/api/tools/create_request/invoke", {"input": {"title": text}}, {"idempotency-key": f"key-{random.randint(0, 4)}"}),
        lambda: ("POST", "/api/tools/remember/invoke", {"input": {"content": text}, "conversation_id": conversation}, None),
        lambda: ("PATCH", f"/api/conversations/{conversation}/state", {random.choice(WORDS): text}, None),
        lambda: ("DELETE", f"/api/conversations/{conversation}", None, None),
        lambda: ("POST", "/v1/responses", {"model": "default", "input": text}, None),
        lambda: ("POST", "/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": text}]}, None),
        lambda: ("POST", f"/api/approvals/{random.choice(ids.get('approval') or [''])}", {"decision": "deny"}, None),
        lambda: ("POST", "/api/knowledge/search", {"query": text}, None),
        lambda: ("POST", "/api/conversations", {"format": "openai", "title": text, "messages": [{"role": "user", "content": text}]}, None),
    ]
    if role == "admin":
        # Only the other tenant has a high administrator, so everything in it may change.
        number = random.randint(20, 60)
        row = {"title": text, "status": "open", "branch_id": 1}
        acts += [
            lambda: ("POST", "/api/workspace/import", {**people(tenant), "users": people(tenant, [(number, "employee")])["users"], "requests": [{"id": number, "requester_id": number, **row}],
                                                       "tasks": [{"id": number, "user_id": number, **row}]}, None),
            lambda: ("POST", "/api/knowledge/documents", {"collection": random.choice(("default", "hidden", "notes")), "documents": [
                {"id": f"d{random.randint(0, 20)}", "title": text, "text": f"{text} {text}"}]}, None),
            lambda: ("DELETE", f"/api/knowledge/documents/d{random.randint(0, 20)}", None, None),
            lambda: ("PUT", f"/api/knowledge/collections/{random.choice(('default', 'notes'))}/rights", {"read": [random.choice(("*", "lead"))], "write": []}, None),
            lambda: ("POST", "/api/keys", {"user_id": str(random.randint(1, 3)), "scopes": ["read"], "name": text}, None),
            lambda: ("POST", f"/api/people/users/{number}/erase", {"cancel": True}, None),
        ]
    elif tenant == block.tenant:
        # Rows of other people in the own tenant, written by the operator: work of others, other people, hidden documents.
        number = random.randint(20, 60)
        row = {"title": text, "status": "open", "branch_id": 1}
        user = {**people(tenant)["users"][1], "id": number, "first_name": text, "email": f"{number}@{tenant}.example"}
        hidden = lambda: side.operator("POST", "/api/knowledge/documents", {"collection": "hidden", "documents": [{"id": f"d{number}", "title": text, "text": text}]}, tenant)
        work = lambda: side.operator("POST", "/api/workspace/import", {"tenant": tenant, "users": [user], "requests": [{"id": number, "requester_id": number, **row}],
                                                                     "tasks": [{"id": number, "user_id": number, **row}],
                                                                     "worktimes": [{"id": number, "user_id": number, "branch_id": 1, "started_at": "2026-11-16T08:00:00Z"}]})
        acts += [hidden, work]
    wanted = random.choice(acts)()
    if isinstance(wanted, tuple):
        method, path, body, headers = wanted
        status, _, value = side.send(key, method, path, body, headers)
        assert status < 500 or path.startswith("/v1") or status == 502, (method, path, body, status, value)
        side.remember(ids, None, value)
        if status == 202:
            side.settle(tenant, value)
