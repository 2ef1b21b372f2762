"""Two servers whose databases differ only in rows that one actor may not see, and the comparison of what this actor is told."""
import http.client
import json
import pathlib
import re
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))

from server import ADMIN, Server  # noqa: E402

CONFIG = """
[approvals]
four_eyes = true

[safety.careful]
approval_required_for = ["test_echo"]

[safety.strict]
tools_denied = ["test_echo"]

[[tools]]
name = "crm"
description = "Looks up a customer of the other company."
kind = "http"
url = "http://127.0.0.1:9/crm"
effect = "read"
attempts = 1
permission = "none"
tenants = ["m-high"]
parameters = '''{"type": "object"}'''

[[assistants]]
name = "of-the-others"
tenant = "m-high"
prompt = "Be brief."
"""
LIMITS = {f"WERKRUF_LIMIT_{name}": "0" for name in ("REQUESTS_PER_MINUTE_USER", "REQUESTS_PER_MINUTE_KEY", "TURNS_PER_MINUTE_USER", "TURNS_PER_MINUTE_KEY")}

# Ids are replaced by the number of their first appearance, times and durations by a word. Everything else must be equal.
IDS = re.compile(r"wk_[A-Za-z0-9_-]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{20,64}(?![0-9a-f])")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
DURATIONS = re.compile(r'("(?:took_ms|created|created_at|completed_at|last_progress_ms)": ?)\d+(\.\d+)?')
# Whether the text of a step comes in tokens or as one snapshot is a matter of time; `final` has the whole text.
LIVE_TEXT = re.compile(r"event: assistant_(?:token|snapshot)\ndata: [^\n]*\n\n")
# The id that the actor sent itself; the two servers are asked for different rows of others.
ASKED = re.compile(r"with id '[^']*' not found")
# A link into the console has the server's address and a random token.
LINK = re.compile(r"http://[^/]*/console/signin\?token=[\w-]+")
VARYING = {"took_ms", "last_used_at", "last_progress_ms", "retry_after_ms"}
EPOCHS = {"created", "created_at", "completed_at", "expires_at"}
IGNORED_HEADERS = {"date", "retry-after", "content-length", "connection", "keep-alive", "transfer-encoding", "x-werkruf-took-ms",
                   "openai-processing-ms", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"}


# Statuses of calls and turns that no longer change.
ENDED = ("succeeded", "failed", "timeout", "canceled", "completed")


class Side:
    """One server, and what the low actor has been told by it. `defect` may change an answer, to prove that the comparison finds it."""

    def __init__(self, name, defect=None):
        self.name, self.defect = name, defect
        self.server = Server(config=CONFIG, env=LIMITS)
        self.host, self.port = self.server.url.removeprefix("http://").split(":")
        self.client = None
        self.high = {}
        self.begin_block()

    def begin_block(self):
        """A new low actor, who has seen nothing."""
        self.numbers, self.own = {}, {}

    def raw(self, method, path, body=None, headers=None):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"accept": "application/json", **({"content-type": "application/json"} if data is not None else {}), **headers}
        for attempt in (1, 2):
            if self.client is None:
                self.client = http.client.HTTPConnection(self.host, int(self.port), timeout=60)
            try:
                self.client.request(method, path, data, sent)
                answer = self.client.getresponse()
                return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server closed an idle connection. A request that it has not read is sent again.
                self.client = None
                if attempt == 2:
                    raise
        return None

    def operator(self, method, path, body=None, tenant="demo"):
        status, _, raw = self.raw(method, path, body, {"authorization": "Bearer " + ADMIN, "x-tenant-id": tenant})
        assert 200 <= status < 300, (method, path, status, raw)
        return json.loads(raw) if raw else None

    def send(self, key, method, path, body=None, headers=None):
        """(status, headers, body as JSON or text)"""
        status, received, raw = self.raw(method, path, body, {"authorization": "Bearer " + key, **(headers or {})})
        try:
            value = json.loads(raw) if raw else None
        except ValueError:
            value = raw.decode(errors="replace")
        if self.defect:
            status, received, value = self.defect(self, key, method, path, status, received, value)
        return status, received, value

    def remember(self, ids, kind, value):
        """Keeps the ids of an answer by kind, in order, for later requests."""
        def keep(name, found):
            known = ids.setdefault(name, [])
            if found not in known:
                known.append(found)

        def walk(node, owner):
            if isinstance(node, list):
                for item in node:
                    walk(item, owner)
            elif isinstance(node, dict):
                for name, inner in node.items():
                    if isinstance(inner, str) and name in ("conversation_id", "turn_id", "job_id", "approval_id"):
                        keep({"job_id": "call"}.get(name, name.removesuffix("_id")), inner)
                    elif isinstance(inner, str) and name == "id" and owner:
                        keep(owner, inner)
                    elif isinstance(inner, (dict, list)):
                        walk(inner, {"conversations": "conversation", "tool_calls": "call", "approvals": "approval", "keys": "key"}.get(name))

        walk(value, kind)

    def normal(self, value, name=None):
        if isinstance(value, dict):
            # Whether an index is built already is a matter of time; the results are compared nevertheless.
            return {key: self.normal(inner, key) for key, inner in value.items() if (key, inner) != ("degraded", "index_building")}
        if isinstance(value, list):
            return [self.normal(inner) for inner in value]
        if name in VARYING or (name in EPOCHS and isinstance(value, (int, float))):
            return "…"
        if isinstance(value, str):
            numbered = lambda found: f"<{self.numbers.setdefault(found[0], len(self.numbers))}>"
            value = LINK.sub("<link>", ASKED.sub("with this id not found", value))
            return DURATIONS.sub(r"\1…", TIMES.sub("<time>", IDS.sub(numbered, unnumbered(value))))
        return value

    def told(self, status, headers, value):
        """What the low actor learns from an answer."""
        kept = {name: self.normal(text) for name, text in sorted(headers.items()) if name not in IGNORED_HEADERS}
        return {"status": status, "headers": kept, "body": self.normal(value)}

    def settle(self, tenant, answer, ends=()):
        """Waits for what a request has started in the background: the comparison is about rows, not about time. What waits for an approval
        is waited for only if the request `ends` it: a call, a turn."""
        if not isinstance(answer, dict):
            return
        for path, name in (("tool-calls", "job_id"), ("turns", "turn_id")):
            end = time.monotonic() + 60
            while isinstance(answer.get(name), str):
                row = self.stored(tenant, path, answer[name])
                if not row or row["status"] in ENDED or (path not in ends and self.waits(tenant, row)):
                    break
                assert time.monotonic() < end, f"{path}/{answer[name]} does not end: {row['status']}"
                time.sleep(0.01)

    def stored(self, tenant, path, found):
        status, _, raw = self.raw("GET", f"/api/{path}/{found}", None, {"authorization": "Bearer " + ADMIN, "x-tenant-id": tenant})
        return json.loads(raw) if status == 200 else {}

    def waits(self, tenant, row):
        """Whether a turn or a call waits for an approval."""
        turn = self.stored(tenant, "turns", row["turn_id"]) if "turn_id" in row else row
        return turn.get("status") == "awaiting_approval"

    def close(self):
        self.server.close()


def unnumbered(text):
    """A stream without its live text, which has no number."""
    return "\n\n".join(block for block in text.split("\n\n") if not LIVE_TEXT.fullmatch(block + "\n\n"))


def differences(left, right, path=""):
    """The places at which two answers differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        names = list(left) + [name for name in right if name not in left]
        return [found for name in names for found in differences(left.get(name, "(nothing)"), right.get(name, "(nothing)"), f"{path}/{name}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [found for at, pair in enumerate(zip(left, right)) for found in differences(*pair, f"{path}/{at}")]
    return [] if left == right else [f"{path}: {json.dumps(left, ensure_ascii=False)[:700]} or {json.dumps(right, ensure_ascii=False)[:700]}"]


def made_up(number):
    """An id that no row has."""
    return str(uuid.UUID(int=(0x01A0_0000_0000_7000_8000 << 48) + number))
