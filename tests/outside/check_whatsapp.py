"""WhatsApp over a stub of Meta's Graph API: the scenarios of a colleague who asks the bot, and what the webhook refuses."""
import concurrent.futures
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request

from fakes import Model, calls, text
from server import BINARY, ROOT, Replica, Server, until
from whatsapp_fakes import NUMBER, VERIFY, Graph, WhatsApp, digits, give_phones, said, sign

FIXTURES = ROOT.parent / "shared/fixtures/apis"


class Office:
    """A server with the sample data, phone numbers, a scripted model and the stub."""

    def __init__(self, config="", **env):
        self.model, self.graph = Model(), Graph()
        self.server = Server(self.model, config, self.graph.env(**env))
        give_phones(self.server)

    def __enter__(self):
        return self.server, WhatsApp(self.server), self.graph, self.model

    def __exit__(self, *_):
        self.server.close()
        self.graph.close()
        self.model.close()


def to(stub, user):
    return stub.texts(digits(user))


def answers(stub, user, count):
    return until(lambda: len(to(stub, user)) >= count and to(stub, user), what=f"{count} message(s) to user {user}")


def calls_of(server, user):
    return server.rows("SELECT c.tool_name, c.status, c.error_code FROM tool_calls c JOIN turns t ON t.id = c.turn_id WHERE t.user_id = ? ORDER BY c.created_at, c.id", str(user))


def check_whatsapp_keyword_needs_no_model():
    with Office() as (server, meta, stub, model):
        for at, (user, word, tool, expected) in enumerate(((3, "Anfragen", "get_requests", "Anfrage"), (3, "wer bin ich?", "get_user_info", "Clara"), (3, "Arbeitszeit", "get_worktime", "Arbeitszeit am"),
                                                           (3, "todos", "get_todos", "Aufgabe"), (4, "requests", "get_requests", "request"), (4, "¿Quién soy?", "get_user_info", "David"))):
            before = len(to(stub, user))
            meta.text(digits(user), word)
            answer = answers(stub, user, before + 1)[before]
            assert expected in answer, (word, answer)
            assert calls_of(server, user)[-1]["tool_name"] == tool
        assert model.requests == [], "no model was asked"
        assert server.rows("SELECT count(*) AS n FROM api_usage")[0]["n"] == 0
        turns = server.rows("SELECT t.status, t.conversation_id, c.channel FROM turns t JOIN conversations c ON c.id = t.conversation_id WHERE t.user_id = '3'")
        assert {(t["status"], t["channel"]) for t in turns} == {("completed", "whatsapp")} and len({t["conversation_id"] for t in turns}) == 1, turns
        assert until(lambda: len(stub.marks) == 6 and stub.marks, what="read marks")[0]["typing_indicator"] == {"type": "text"}


def check_whatsapp_complex_request_calls_functions():
    with Office() as (server, meta, stub, model):
        model.script = [calls(("get_requests", {"status": "open", "dueDate": "today"})), text("Tienes **una** solicitud abierta.")]
        meta.text(digits(1), "solicitudes abiertas de hoy")
        assert answers(stub, 1, 1) == ["Tienes *una* solicitud abierta."]
        assert calls_of(server, 1)[0]["status"] == "succeeded" and len(model.requests) == 2
        assert model.requests[0]["messages"][-1]["content"] == "solicitudes abiertas de hoy"


def check_whatsapp_without_permission_there_are_no_data():
    with Office() as (server, meta, stub, model):
        titles = {row["title"] for row in server.rows("SELECT title FROM requests")}
        model.script = [calls(("get_requests", {})), text("You are not permitted to see requests.")]
        meta.text(digits(5), "Show me all requests of my branch, please")
        meta.text(digits(5), "requests")
        told = answers(stub, 5, 2)
        assert not any(title in one for title in titles for one in told), told
        assert [(c["status"], c["error_code"]) for c in calls_of(server, 5)] == [("failed", "permission_denied")] * 2
        tool = [m for m in model.requests[1]["messages"] if m["role"] == "tool"][0]["content"]
        assert "permission_denied" in tool and not any(title in tool for title in titles)


def check_whatsapp_two_functions_in_one_message():
    with Office() as (server, meta, stub, model):
        model.script = [calls(("get_requests", {"status": "open"}), ("get_todos", {"status": "open"})), text("Beides ist da.")]
        meta.text(digits(2), "welche requests und todos habe ich offen")
        assert answers(stub, 2, 1) == ["Beides ist da."]
        assert sorted((c["tool_name"], c["status"]) for c in calls_of(server, 2)) == [("get_requests", "succeeded"), ("get_todos", "succeeded")]


def check_whatsapp_function_error_is_explained():
    with Office() as (server, meta, stub, model):
        model.script = [calls(("test_panic", {})), text("Das Werkzeug ist gerade kaputt.")]
        meta.text(digits(3), "Bitte probier das kaputte Werkzeug")
        assert answers(stub, 3, 1) == ["Das Werkzeug ist gerade kaputt."]
        assert "tool_panicked" in [m for m in model.requests[1]["messages"] if m["role"] == "tool"][0]["content"]
        model.script = [("status", 400)]
        meta.text(digits(3), "Und noch eine Frage, die das Modell ablehnt")
        assert len(answers(stub, 3, 2)) == 2, "a failed turn is explained, too"


def check_whatsapp_types_without_a_turn():
    with Office() as (server, meta, stub, model):
        silent = [{"type": "reaction", "reaction": {"message_id": "w", "emoji": "x"}}, {"type": "edit", "edit": {}}, {"type": "revoke", "revoke": {}},
                  {"type": "system", "system": {"body": "changed", "wa_id": "1", "type": "user_changed_number"}}]
        told = [{"type": "image", "image": {"id": "1"}}, {"type": "audio", "audio": {"id": "2", "voice": True}}, {"type": "sticker", "sticker": {"id": "3"}}, {"type": "location", "location": {}},
                {"type": "contacts", "contacts": []}, {"type": "order", "order": {}}, {"type": "unsupported", "errors": [{"code": 131051}]}]
        for content in silent + told:
            one = meta.message(digits(3), content)
            assert meta.deliver(one) == meta.deliver(one) == 200
        assert len(answers(stub, 3, len(told))) == len(told) and len(set(to(stub, 3))) == 1, to(stub, 3)
        assert server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 0 and not model.requests
        assert server.rows("SELECT count(*) AS n FROM inbox WHERE channel = 'whatsapp' AND turn_id IS NULL")[0]["n"] == len(silent + told)
        meta.deliver(meta.message(digits(3), {"type": "image", "image": {"id": "4", "caption": "Was ist das?"}}))
        assert answers(stub, 3, len(told) + 1)[-1] == "Done." and model.last()["messages"][-1]["content"] == "Was ist das?"


def check_whatsapp_unknown_senders_and_numbers():
    with Office() as (server, meta, stub, model):
        for words in ("Hola, ¿qué solicitudes hay para mí?", "Hola otra vez, ¿hay alguien?"):
            meta.text("34999", words)
        meta.text("49888", "Hallo, welche Anfragen habe ich?")
        until(lambda: len(stub.messages) == 2, what="two texts")
        first = {m["to"]: said(m) for m in stub.messages}
        assert "registrado" in first["34999"] and "nicht bekannt" in first["49888"], first
        WhatsApp(server, "99999").text(digits(3), "hi")
        until(lambda: "does not name" in server.logged(), what="a line in the log")
        raw = meta.payload({"errors": [{"code": 130429, "title": "Rate limit hit"}]})
        assert meta.send(raw) == meta.send(raw) == 200
        assert server.rows("SELECT count(*) AS n FROM inbox WHERE external_id LIKE 'error:130429:%'")[0]["n"] == 1
        old = meta.message(digits(3), "Das ist lange her", timestamp=str(int(time.time()) - 25 * 3600))
        assert meta.deliver(old) == meta.deliver(old) == 200
        rows = until(lambda: server.call("GET", "/api/outbox?status=dead")[1]["outbox"], what="a dead letter")
        assert [(row["error_code"], row["recipient"]) for row in rows] == [("stale_inbound", rows[0]["recipient"])] and not model.requests
        assert len(stub.messages) == 2 and server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 0


def check_whatsapp_webhook_refuses_strangers():
    with Office() as (server, meta, stub, _):
        raw = meta.payload({"messages": [meta.message(digits(3), "Grüße / hallo")]})
        assert meta.send(raw, "sha256=" + "0" * 64) == 401 and meta.send(raw, sign(raw)[7:]) == 401 and meta.send(raw + b" ", sign(raw)) == 401
        assert meta.send(raw, sign(raw, "another secret")) == 401 and meta.send(json.dumps(json.loads(raw)).encode(), sign(raw)) == 401
        assert meta.send(b"x" * (3 * 1024 * 1024 + 1)) == 413 and meta.send(b"{") == 400
        assert server.rows("SELECT count(*) AS n FROM inbox")[0]["n"] == 0
        for query, status in ((f"hub.mode=subscribe&hub.challenge=1158&hub.verify_token={VERIFY}", 200), ("hub.mode=subscribe&hub.challenge=1&hub.verify_token=wrong", 403), ("hub.challenge=1", 403)):
            try:
                with urllib.request.urlopen(server.url + "/webhooks/whatsapp?" + query) as answer:
                    assert (answer.status, answer.read(), answer.headers["content-type"].split(";")[0]) == (status, b"1158", "text/plain")
            except urllib.error.HTTPError as error:
                assert error.code == status, query
        assert meta.send(raw) == 200 and answers(stub, 3, 1)


def check_whatsapp_errors_of_meta():
    with Office() as (server, meta, stub, model):
        def rows():
            return server.call("GET", "/api/outbox")[1]["outbox"]

        stub.script = [("error", 400, 131056, "pair rate")]
        meta.text(digits(3), "wer bin ich")
        answers(stub, 3, 1)
        row = until(lambda: [row for row in rows() if row["status"] == "sent"], what="sent")[0]
        assert row["attempts"] == 2 and len(stub.requests) == 1, row
        for code in (131026, 190, 100):
            stub.script = [("error", 400, code)]
            meta.text(digits(3), "wer bin ich")
            until(lambda: [row for row in rows() if row["error_code"] == str(code) and row["status"] == "dead"], what=f"dead by {code}")
        stub.script = [("html", 503), ("error", 429, 130429)]
        meta.text(digits(3), "wer bin ich")
        answers(stub, 3, 2)
        sent = until(lambda: [m for m in stub.messages if m["wamid"] == stub.messages[-1]["wamid"]], what="the last")[0]
        assert meta.report(sent, "read") == meta.report(sent, "delivered") == meta.report(sent, "read") == 200
        row = until(lambda: [row for row in rows() if row["external_id"] == sent["wamid"] and row["status"] == "read"], what="read")[0]
        assert row["attempts"] == 3, row


def check_whatsapp_doubtful_message_is_reconciled_or_sent_once_more():
    with Office(WHATSAPP_RECONCILE_S="2") as (server, meta, stub, _):
        def row(status):
            return until(lambda: [row for row in server.call("GET", "/api/outbox")[1]["outbox"] if row["status"] == status], what=status)[0]

        stub.script = [("drop",)]
        meta.text(digits(3), "wer bin ich")
        answers(stub, 3, 1)
        assert meta.report(stub.messages[0], "sent") == 200
        found = row("sent")
        assert (found["external_id"], found["ambiguous"]) == (stub.messages[0]["wamid"], False) and len(stub.messages) == 1, found
        stub.script = [("drop",)]
        meta.text(digits(4), "who am i")
        answers(stub, 4, 2)
        twice = until(lambda: [row for row in server.call("GET", "/api/outbox")[1]["outbox"] if row["ambiguous"] and row["status"] == "sent"], what="ambiguous")
        assert len(twice) == 1 and len(to(stub, 4)) == 2


def check_whatsapp_long_answers_leave_in_order():
    with Office() as (server, meta, stub, model):
        long = "\n\n".join(f"Absatz {n}: " + "Wort " * 300 for n in range(8))
        model.script = [text(long)]
        stub.script = [("error", 429, 130429)]
        meta.text(digits(3), "Erzähl mir bitte eine lange Geschichte")
        parts = answers(stub, 3, 4)
        assert "".join("".join(parts).split()) == "".join(long.split()) and all(len(part) <= 4096 for part in parts)


def check_whatsapp_template_outside_of_the_window():
    config = f"""[[whatsapp.numbers]]\nphone_number_id = "{NUMBER}"\ntenant = "demo"\nbranch_id = 1\ntemplate = "notice"\ntemplate_language = "de"\n"""
    with Office(config, WHATSAPP_PHONE_NUMBER_ID="") as (server, meta, stub, _):
        stub.script = [("error", 400, 131047)]
        meta.text(digits(3), "wer bin ich")
        answers(stub, 3, 1)
        assert stub.messages[0]["template"]["name"] == "notice" and stub.messages[0]["template"]["language"] == {"code": "de"}
        meta.text(digits(3), "wer bin ich")
        answers(stub, 3, 2)
        late = stub.messages[1]
        assert late["type"] == "text" and meta.report(late, "failed", 131047) == 200
        assert len(answers(stub, 3, 3)) == 3 and stub.messages[2]["type"] == "template"
        assert meta.report(stub.messages[2], "failed", 131026) == 200
        until(lambda: [row for row in server.call("GET", "/api/outbox?status=dead")[1]["outbox"] if row["error_code"] == "131026"], what="a dead letter")


def check_whatsapp_approvals_by_buttons():
    with Office("[approvals]\nfour_eyes = true\n") as (server, meta, stub, model):
        meta.text(digits(2), "wer bin ich")
        answers(stub, 2, 1)
        model.script = [calls(("create_request", {"title": "Neuer Drucker"})), text("Die Anfrage ist angelegt.")]
        meta.text(digits(3), "Bitte leg eine Anfrage an: neuer Drucker")
        asked = until(lambda: [m for m in stub.messages if m["type"] == "interactive" and m["to"] == digits(2)], what="buttons")[0]
        until(lambda: server.rows("SELECT status FROM outbox WHERE external_id = ?", asked["wamid"]), what="the id of the message with the buttons")
        approve, deny = (button["reply"]["id"] for button in asked["interactive"]["action"]["buttons"])

        meta.press(digits(4), approve, asked["wamid"])  # not an approver
        assert "no approval" in answers(stub, 4, 1)[0]
        meta.press(digits(2), approve, "wamid.other")  # not the message with the buttons
        assert "keiner Genehmigung" in answers(stub, 2, 3)[-1]
        assert server.rows("SELECT status FROM approvals")[0]["status"] == "pending"
        meta.press(digits(2), approve, asked["wamid"])
        assert "Genehmigt" in answers(stub, 2, 4)[-1]
        assert "Die Anfrage ist angelegt." in until(lambda: [t for t in to(stub, 3) if "angelegt" in t], what="the end of the turn")
        assert server.rows("SELECT title FROM requests WHERE title = 'Neuer Drucker'")
        meta.press(digits(2), deny, asked["wamid"])
        assert "schon entschieden" in answers(stub, 2, 5)[-1]


def check_whatsapp_check_says_the_next_step():
    with Office() as (server, meta, stub, _):
        env = {**stub.env(), "WERKRUF_PUBLIC_URL": server.url}
        done = server.cli("whatsapp", "check", "--json", env=env)
        assert done.returncode == 0, done
        good = server.cli("whatsapp", "check", env={**env, "WHATSAPP_ACCESS_TOKEN": "expired-token-0123"})
        assert good.returncode == 1 and "expired-token" not in good.stdout + good.stderr and "token" in good.stdout.lower(), good
        assert server.cli("whatsapp", "check", env={**env, "WERKRUF_PUBLIC_URL": ""}).returncode == 1
        other = server.cli("whatsapp", "check", env={**env, "WHATSAPP_APP_SECRET": "secret-of-another-app"})
        assert other.returncode == 1 and "missing app secret" in other.stdout, other
        assert server.cli("whatsapp", "check", env={name: "" for name in env}).returncode == 1


def check_whatsapp_same_payload_a_hundred_times_to_three_processes():
    with Office() as (server, meta, stub, model):
        others = [Replica(server), Replica(server)]
        try:
            raw = meta.payload({"contacts": [{"wa_id": digits(3), "profile": {"name": "C"}}], "messages": [meta.message(digits(3), "Eine Frage in hundert Kopien")]})
            with concurrent.futures.ThreadPoolExecutor(30) as pool:
                found = list(pool.map(lambda n: meta.send(raw, server=([server] + others)[n % 3]), range(100)))
            assert set(found) == {200}, found
            answers(stub, 3, 1)
            until(lambda: server.rows("SELECT count(*) AS n FROM outbox WHERE status = 'sent'")[0]["n"] == 1, what="one row is sent")
            assert server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 1 and len(model.requests) == 1 and len(stub.messages) == 1
            assert server.rows("SELECT count(*) AS n FROM conversations")[0]["n"] == 1
        finally:
            for other in others:
                other.close()


check_whatsapp_same_payload_a_hundred_times_to_three_processes.only = "postgres"


def check_whatsapp_recorded_payloads():
    """The payloads beside the checkout, where they exist."""
    if not FIXTURES.exists():
        return
    for entry in json.loads((FIXTURES / "index.json").read_text())["files"]:
        if not entry["file"].startswith("wa_"):
            continue
        recorded = json.loads((FIXTURES / entry["file"]).read_text())
        done = subprocess.run([BINARY, "whatsapp", "inspect", str(FIXTURES / entry["file"])], capture_output=True, text=True)
        found = json.loads(done.stdout)
        if "events" in entry["expected"]:
            assert found == entry["expected"], (entry["file"], found)
            continue
        for wanted, verdict in zip(recorded, found["entries"], strict=True):
            expected = {"valid": wanted.get("valid"), "status": wanted.get("expect_status", wanted.get("status")), "retryable": wanted.get("retryable")}
            assert all(verdict[name] == expected[name] for name in verdict if name in expected), (entry["file"], wanted, verdict)
            assert "expect_body" not in wanted or wanted["expect_body"] == verdict["body"]


def check_whatsapp_strange_texts_are_stored():
    with Office() as (server, meta, stub, model):
        for words in ("a\u0000b ist eine Frage", "👨‍👩‍👧 😀 Frage", "x" * 60_000):
            before = len(to(stub, 3))
            meta.text(digits(3), words)
            assert answers(stub, 3, before + 1)[before] == "Done." and model.last()["messages"][-1]["content"] == words.replace("\u0000", ""), words[:40]
        meta.text(digits(3), "alt \u0000 und spät", timestamp=str(int(time.time()) - 25 * 3600))
        until(lambda: server.call("GET", "/api/outbox?status=dead")[1]["outbox"], what="a dead letter")
        meta.text(digits(3), "\u0000")
        assert server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 3


def check_whatsapp_killed_server_answers_after_its_restart():
    with Office() as (server, meta, stub, model):
        stub.gate.clear()
        meta.text(digits(3), "wer bin ich")
        until(lambda: server.rows("SELECT status FROM outbox WHERE status IN ('pending', 'sending')"), what="a row of the outbox")
        server.stop(signal.SIGKILL)
        stub.gate.set()
        server.start()
        texts = answers(stub, 3, 1)
        assert "Clara" in texts[0]
        row = until(lambda: [row for row in server.call("GET", "/api/outbox")[1]["outbox"] if row["status"] == "sent"], what="sent")[0]
        # A row that was claimed and never left is sent once and marked all the same: nobody can know.
        assert len(to(stub, 3)) in ((1, 2) if row["ambiguous"] else (1,)), (row, to(stub, 3))
        assert server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 1
