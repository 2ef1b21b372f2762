"""A stub of Meta's Graph API for WhatsApp, and what Meta sends to a webhook: signed messages and delivery reports."""
import hashlib
import hmac
import itertools
import json
import re
import threading
import time
import urllib.error
import urllib.request

from fakes import FakeEndpoint, FakeServer

NUMBER, TOKEN, SECRET, VERIFY = "55501", "graph-token-0123456789", "graph-app-secret-0123456789", "graph-verify-token-0123"
PHONES = {1: "+34 600 000 001", 2: "+49 170 0000002", 3: "+49 170 0000003", 4: "+1 212 555 0004", 5: "+1 212 555 0005", 6: "+1 212 555 0006"}
serial = itertools.count(1)


def digits(user):
    return re.sub(r"\D", "", PHONES[user])


class Graph(FakeServer):
    """Accepts messages and gives each an id. An entry of `script` decides about the next message instead:
    ("error", status, code[, details]), ("drop",) accepts and closes the connection without an answer, ("html", status)."""

    def __init__(self):
        self.script, self.messages, self.marks, self.gate = [], [], [], threading.Event()
        self.gate.set()

        class Endpoint(FakeEndpoint):
            def do_GET(self):
                if self.headers.get("authorization") != "Bearer " + TOKEN:
                    return self.refuse(401, 190, "Error validating access token: Session has expired")
                proof = re.search(r"appsecret_proof=([0-9a-f]*)", self.path)
                if proof and proof[1] != hmac.new(SECRET.encode(), TOKEN.encode(), hashlib.sha256).hexdigest():
                    return self.refuse(400, 100, "Invalid appsecret_proof provided in the API argument")
                if re.fullmatch(r"/v26\.0/\d+", self.path.split("?")[0]):
                    return self.answer(200, {"display_phone_number": "+49 30 123", "verified_name": "Demo", "quality_rating": "GREEN", "id": self.path.split("?")[0].split("/")[2]})
                self.refuse(404, 100, "Unsupported get request.")

            def refuse(self, status, code, details):
                self.answer(status, {"error": {"message": f"(#{code}) {details}", "type": "OAuthException", "code": code,
                                               "error_data": {"messaging_product": "whatsapp", "details": details}, "fbtrace_id": "A"}})

            def do_POST(self):
                body, owner = json.loads(self.body()), self.owner
                if self.headers.get("authorization") != "Bearer " + TOKEN:
                    return self.refuse(401, 190, "Error validating access token: Session has expired")
                if not re.fullmatch(r"/v26\.0/\d+/messages", self.path) or body.get("messaging_product") != "whatsapp":
                    return self.refuse(400, 100, "Unsupported post request.")
                if body.get("status") == "read":
                    owner.marks.append(body)
                    return self.answer(200, {"success": True})
                owner.gate.wait(30)
                with owner.lock:
                    entry = owner.script.pop(0) if owner.script else None
                if entry and entry[0] == "error":
                    owner.note((entry[2], body))
                    return self.refuse(entry[1], entry[2], entry[3] if len(entry) > 3 else "scripted")
                if entry and entry[0] == "html":
                    owner.note((entry[1], body))
                    return self.answer(entry[1], b"<html>", kind="text/html")
                fault = invalid(body)
                if fault:
                    owner.note((100, body))
                    return self.refuse(400, 100, fault)
                wamid = f"wamid.out{next(serial)}"
                with owner.lock:
                    owner.messages.append({**body, "wamid": wamid, "number": self.path.split("/")[2]})
                if entry and entry[0] == "drop":
                    self.close_connection = True
                    return self.connection.close()
                address = body.get("to") or body["recipient"]
                self.answer(200, {"messaging_product": "whatsapp", "contacts": [{"input": address, "wa_id": address}], "messages": [{"id": wamid}]})

        super().__init__(Endpoint)

    def env(self, phone_number_id=NUMBER, tenant="demo", branch=1, **more):
        """The variables of a server that uses the stub."""
        return {"WHATSAPP_PHONE_NUMBER_ID": phone_number_id, "WHATSAPP_ACCESS_TOKEN": TOKEN, "WHATSAPP_APP_SECRET": SECRET, "WHATSAPP_VERIFY_TOKEN": VERIFY,
                "WHATSAPP_TENANT": tenant, "WHATSAPP_BRANCH_ID": str(branch), "WHATSAPP_RECONCILE_S": "1", "WHATSAPP_BASE_URL": self.url, **more}

    def texts(self, address):
        """What an address got, in order: the texts of messages, of buttons and of templates."""
        with self.lock:
            return [said(message) for message in self.messages if address in (message.get("to"), message.get("recipient"))]


def said(message):
    kind = message["type"]
    return message["text"]["body"] if kind == "text" else message["interactive"]["body"]["text"] if kind == "interactive" else message["template"]["components"][0]["parameters"][0]["text"]


def invalid(body):
    """What Meta refuses."""
    if bool(body.get("to")) == bool(body.get("recipient")):
        return "The parameter to or recipient is required."
    if body["type"] == "text" and not 0 < len(body["text"]["body"].encode("utf-16-le")) // 2 <= 4096:
        return "Param text['body'] must be at most 4096 characters long."
    if body["type"] == "interactive":
        buttons = body["interactive"]["action"]["buttons"]
        if not 0 < len(buttons) <= 3 or any(len(b["reply"]["title"]) > 20 or len(b["reply"]["id"]) > 256 for b in buttons) or len(body["interactive"]["body"]["text"]) > 1024:
            return "Param interactive is invalid."
    if body["type"] == "template" and re.search(r"[\n\t]|    ", said(body)):
        return "Param text cannot have new-line/tab characters or more than 4 consecutive spaces"
    return None


def sign(raw, secret=SECRET):
    return "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()


class WhatsApp:
    """What Meta sends to the webhook of a server about one number."""

    def __init__(self, server, phone_number_id=NUMBER, secret=SECRET):
        self.server, self.number, self.secret = server, phone_number_id, secret

    def payload(self, value):
        """Like Meta, with escapes for everything that is not ASCII, and for slashes."""
        body = {"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [{"field": "messages", "value": {
            "messaging_product": "whatsapp", "metadata": {"display_phone_number": "4930123", "phone_number_id": self.number}, **value}}]}]}
        return json.dumps(body).replace("/", "\\/").encode()

    def send(self, raw, signature=None, server=None):
        """The status of a delivery."""
        request = urllib.request.Request((server or self.server).url + "/webhooks/whatsapp", data=raw, method="POST",
                                         headers={"content-type": "application/json", "x-hub-signature-256": signature or sign(raw, self.secret)})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def post(self, payload, expect=200):
        """Delivers a payload, or the value of one, signed."""
        raw = payload if isinstance(payload, bytes) else self.payload(payload)
        status = self.send(raw)
        assert status == expect, (status, raw[:300])
        return status

    def message(self, sender, content, **more):
        """A message of now. Text, or the fields of another type."""
        content = {"type": "text", "text": {"body": content}} if isinstance(content, str) else content
        return {"from": sender, "id": f"wamid.in{next(serial)}.{time.monotonic_ns()}", "timestamp": str(int(time.time())), **content, **more}

    def deliver(self, *messages):
        contacts = [{"profile": {"name": "Somebody"}, "wa_id": one["from"]} for one in messages if one["type"] != "system"]
        return self.post({"contacts": contacts, "messages": list(messages)})

    def text(self, sender, body, **more):
        """Delivers a text; returns the message."""
        message = self.message(sender, body, **more)
        self.deliver(message)
        return message

    def press(self, sender, reply_id, answered):
        """Presses a button of a message that the server sent."""
        reply = {"type": "button_reply", "button_reply": {"id": reply_id, "title": "x"}}
        return self.deliver(self.message(sender, {"type": "interactive", "interactive": reply, "context": {"id": answered, "from": self.number}}))

    def report(self, sent, status, code=None):
        """A delivery report about a message that the stub accepted."""
        item = {"id": sent["wamid"], "status": status, "timestamp": str(int(time.time())), "recipient_id": sent.get("to"),
                "biz_opaque_callback_data": sent["biz_opaque_callback_data"]}
        if code:
            item["errors"] = [{"code": code, "title": "scripted", "message": "scripted", "error_data": {"details": "scripted"}}]
        return self.post({"statuses": [item]})


def give_phones(server, more_roles=None):
    """Gives the people of the sample data their phone numbers, and some of them more roles."""
    users = [{"id": user["id"], "first_name": user["first_name"], "last_name": user["last_name"], "email": user["email"], "phone": PHONES[user["id"]],
              "locale": user["locale"], "time_zone": user["time_zone"], "branch_id": user["branch_id"], "role_ids": sorted(roles | (more_roles or {}).get(user["id"], set()))}
             for user, roles in ((u, {r["role_id"] for r in server.rows(f"SELECT role_id FROM user_roles WHERE user_id = {u['id']}")})
                                 for u in server.rows("SELECT * FROM users ORDER BY id"))]
    status, answer, _ = server.call("POST", "/api/workspace/import", {"tenant": "demo", "users": users})
    assert status == 200, answer
