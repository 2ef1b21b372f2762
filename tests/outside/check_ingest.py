"""Documents come in whatever dies meanwhile: each is there once, and nobody pays twice for its vectors."""
import collections
import hashlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import urllib.parse

from check_knowledge import Brain, search
from databases import SCRIPTS, postgres_only
from fakes import Quiet, Server, calls, text
from house import ADMIN, BINARY, House, until

WORDS = "Anker Birke Cello Distel Eule Falke Ginster Hafen Igel Jolle Kranich Lotse Mole Nebel Otter Planke".split()


def document(number):
    """Texts that are all different, each of one chunk."""
    a, b, c = (WORDS[number // step % len(WORDS)] for step in (1, 16, 256))
    return f"# Blatt {number}\n\nAuf Blatt {number} stehen {a}, {b} und {c} in dieser Reihenfolge."


class Gate(Server):
    """Stands before a server. `pass_on(number)` says what becomes of the nth batch: "answer", "mute" (it is taken in, and nobody hears of
    it) or "deliver" (it is sent, and `delivered` is called before anything can be answered)."""

    def __init__(self, house, pass_on, delivered=lambda: None):
        self.house, self.pass_on, self.delivered, self.muted = house, pass_on, delivered, threading.Event()

        class Handler(Quiet):
            def do_POST(self):
                body = self.body()
                self.owner.note(json.loads(body))
                fate = self.owner.pass_on(len(self.owner.requests))
                place = urllib.parse.urlsplit(self.owner.house.url)
                link = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
                link.request("POST", self.path, body, {name: value for name, value in self.headers.items() if name.lower() != "host"})
                if fate == "deliver":
                    self.owner.delivered()
                try:
                    answer = link.getresponse()
                    status, said = answer.status, answer.read()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                    return
                if fate == "mute":
                    self.owner.muted.set()
                    self.rfile.read(1)  # until the other side is gone
                    self.close_connection = True
                    return
                self.answer(status, said)

        super().__init__(Handler)


def folder_of(house, count):
    folder = pathlib.Path(house.folder.name, "docs")
    folder.mkdir()
    for number in range(count):
        folder.joinpath(f"{number:04}.md").write_text(document(number))


def adding(house, server, *words):
    env = {**house.env, "WERKRUF_SERVER": server, "WERKRUF_KEY": ADMIN}
    return subprocess.Popen([BINARY, "knowledge", "add", *(words or ["docs"]), "--json"], env=env, cwd=house.folder.name,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def added(house, *words):
    done = adding(house, house.url, *words)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    return json.loads(out)


def each_once(house, count):
    """Every document is there, once, and was written once; its one chunk too."""
    [row] = house.rows("SELECT count(*) AS n, count(DISTINCT document_id) AS ids, max(version) AS version, "
                       "(SELECT count(*) FROM chunks) AS chunks FROM documents")
    assert row == {"n": count, "ids": count, "version": 1, "chunks": count}, row


def check_a_killed_add_goes_on():
    house = House()
    gate = None
    try:
        folder_of(house, 1000)
        # The third batch is taken in, and whoever sent it dies before it hears so.
        gate = Gate(house, lambda number: "mute" if number == 3 else "answer")
        first = adding(house, gate.url)
        until(gate.muted.is_set, 60, "the third batch")
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        first.communicate()
        written = len(house.rows("SELECT 1 AS n FROM documents"))
        assert written == sum(len(batch["documents"]) for batch in gate.requests) and 0 < written < 1000, written
        again = added(house)
        assert (again["accepted"], again["replaced"], again["unchanged"], again["skipped"]) == (1000 - written, 0, written, []), again
        each_once(house, 1000)
        third = added(house)
        assert (third["accepted"], third["unchanged"], third["chunks"]) == (0, 1000, 0), third
    finally:
        house.close()
        if gate:
            gate.close()


def check_a_server_killed_while_it_takes_documents_in():
    house = House()
    gate = None
    try:
        folder_of(house, 1000)

        def kill():
            house.process.send_signal(signal.SIGKILL)
            house.process.wait()

        # It has the whole third batch, and dies with it.
        gate = Gate(house, lambda number: "deliver" if number == 3 else "answer", kill)
        first = adding(house, gate.url)
        _, err = first.communicate(timeout=120)
        assert first.returncode == 1, (first.returncode, err)
        house.process.stdout.close()
        house.log.close()
        house.start()
        written = len(house.rows("SELECT 1 AS n FROM documents"))
        heard = sum(len(batch["documents"]) for batch in gate.requests[:2])
        assert written in (heard, heard + len(gate.requests[2]["documents"])), "a batch is taken in as a whole or not at all"
        again = added(house)
        assert (again["accepted"], again["unchanged"]) == (1000 - written, written), again
        each_once(house, 1000)
        assert search(house, "Blatt 999", mode="lexical")["results"][0]["document_id"] == "docs/0999.md"
    finally:
        house.close()
        if gate:
            gate.close()


class Counting(Brain):
    """The model for vectors, with a count of every text and a hold on some requests."""

    def __init__(self):
        super().__init__()
        self.asked, self.batches, self.hold = collections.Counter(), [], lambda number: None
        handler, brain = self.http.RequestHandlerClass, self
        before = handler.do_POST

        def do_POST(request):
            if not request.path.endswith("/embeddings"):
                return before(request)
            raw = request.body()
            texts = json.loads(raw)["input"]
            with brain.lock:
                # Questions stand alone; they are asked for every time.
                chunks = [one for one in texts if "stehen" in one]
                brain.asked.update(chunks)
                brain.batches += [chunks] if chunks else []
                number = len(brain.batches) if chunks else 0
            brain.hold(number)
            # The connection, and this with it, serves the next request too.
            request.body = lambda: raw
            try:
                before(request)
            finally:
                del request.body

        handler.do_POST = do_POST


def settled(house, count):
    def look():
        _, row, _ = house.call("GET", "/api/knowledge/collections/default")
        return row and (row["embedded"], row["pending"], row["failed"]) == (count, 0, 0)
    until(look, 120, "all vectors")
    [row] = house.rows("SELECT count(*) AS n, count(DISTINCT chunk) AS chunks, count(vector) AS whole, "
                       "(SELECT count(*) FROM chunks) AS all_chunks FROM chunk_vectors")
    assert row == {"n": count, "chunks": count, "whole": count, "all_chunks": count}, row


def bring(house, count):
    documents = [{"id": f"d{number}", "title": f"Blatt {number}", "text": document(number)} for number in range(count)]
    status, taken, _ = house.call("POST", "/api/knowledge/documents", {"documents": documents})
    assert (status, taken["accepted"]) == (200, count), taken


def check_a_killed_server_has_nothing_embedded_twice():
    brain = Counting()
    house = House(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})
    try:
        held, go = threading.Event(), threading.Event()

        def hold(number):
            if number == 3:
                held.set()
                go.wait(60)

        brain.hold = hold
        bring(house, 400)
        until(held.is_set, 60, "the third batch")
        stored = {row["chunk"] for row in house.rows("SELECT chunk FROM chunk_vectors")}
        house.process.send_signal(signal.SIGKILL)
        house.process.wait()
        house.process.stdout.close()
        house.log.close()
        go.set()
        in_flight = set(brain.batches[2])
        assert len(stored) == sum(len(batch) for batch in brain.batches[:2]) and 0 < len(in_flight) < 400, (len(stored), len(in_flight))
        house.start()
        settled(house, 400)
        assert len(brain.asked) == 400, len(brain.asked)
        twice = {one for one, times in brain.asked.items() if times > 1}
        assert twice <= in_flight and max(brain.asked.values()) <= 2, "only what was under way is paid for again"
        found = search(house, "Auf welchem Blatt stehen die Dinge von Blatt 399?")
        assert found["routing"]["mode"] == "hybrid" and found["results"][0]["similarity"] is not None, found["routing"]
        assert search(house, "Blatt 399", mode="lexical")["results"][0]["document_id"] == "d399"
        # Started once more there is nothing left to do.
        asked = sum(brain.asked.values())
        assert house.stop() == 0
        house.start()
        settled(house, 400)
        assert sum(brain.asked.values()) == asked
    finally:
        house.close()
        brain.close()


class Beside(House):
    """Another server on the same database."""

    def __init__(self, first):
        self.folder = tempfile.TemporaryDirectory(prefix="werkruf-outside-")
        self.database, self.env, self.arguments = first.database, first.env, first.arguments
        self.start()


@postgres_only
def check_three_servers_pay_for_a_vector_once():
    brain = Counting()
    together = threading.Barrier(3)

    def hold(number):
        # The first batches of all three are under way at once.
        if 0 < number <= 3:
            together.wait(60)

    brain.hold = hold
    houses = [House(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})]
    try:
        houses += [Beside(houses[0]), Beside(houses[0])]
        bring(houses[0], 500)
        settled(houses[0], 500)
        assert len(brain.asked) == 500 and set(brain.asked.values()) == {1}, collections.Counter(brain.asked.values())
        assert not together.broken
        assert houses[0].rows("SELECT count(*) AS n FROM embedding_claims WHERE until > now()") == [{"n": 0}]
    finally:
        for house in houses:
            house.close()
        brain.close()


@postgres_only
def check_a_deleted_text_is_gone_from_the_files_after_the_documented_vacuum():
    brain = Brain()
    house = House(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})
    try:
        secret = "xylophonquartett"
        # Long enough for a table of its own beside the table, too.
        noise = " ".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(60))
        documents = [{"id": "short", "title": f"{secret} eins", "text": f"Das Losungswort lautet {secret}."},
                     {"id": "long", "title": "Lang", "text": f"```\n{secret} {noise}\n```"}, {"id": "stays", "title": "T", "text": "Das hier bleibt unverkennbar."}]
        assert house.call("POST", "/api/knowledge/documents", {"documents": documents})[1]["accepted"] == 3
        until(lambda: house.call("GET", "/api/knowledge/collections/default")[1]["embedded"] == 3, what="vectors")
        programs = next(SCRIPTS.parents[1].glob("target/postgres/python/*/pginstall18/bin"))
        sql = lambda *words: subprocess.run([programs / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", house.database.url, *[part for word in words for part in ("-c", word)]],
                                            check=True, capture_output=True, text=True)
        sql("ANALYZE werkruf.documents, werkruf.chunks")
        assert secret not in sql("SELECT * FROM pg_stats WHERE schemaname = 'werkruf'").stdout, "samples are taken of texts"
        for name in ("short", "long"):
            assert house.call("DELETE", f"/api/knowledge/documents/{name}")[0] == 204
        documented = re.search(r"psql DATABASE -c '([^']+)'", pathlib.Path(SCRIPTS.parents[1], "docs/knowledge.md").read_text())[1]
        # A server's transaction may be open from before; then it says so, and is done again.
        left = lambda: [int(number) for number in re.findall(r"(\d+) dead row versions cannot be removed yet", sql(documented).stderr)]
        until(lambda: (found := left()) and not any(found), what="a vacuum that nobody disturbs")
        sql("CHECKPOINT")
        home = sql("SHOW data_directory").stdout.strip()
        paths = sql("SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 't', 'i') AND pg_relation_filepath(oid) IS NOT NULL").stdout.split()
        files = [path for name in paths for path in pathlib.Path(home).glob(name + "*")]
        held = b"".join(path.read_bytes() for path in files)
        assert b"unverkennbar" in held, "these are the files"
        assert secret.encode() not in held, [path for path in files if secret.encode() in path.read_bytes()]
    finally:
        house.close()
        brain.close()


def check_ask_gpt_bills_what_failed_as_the_turn_does():
    brain = Brain()
    house = House(brain)
    bills = lambda: house.rows("SELECT tokens_prompt, tokens_completion, estimated FROM api_usage WHERE operation = 'ask_gpt' ORDER BY id")
    try:
        invoke = lambda: house.call("POST", "/api/tools/ask_gpt/invoke", {"input": {"query": "Wie hoch ist der Turm?"}}, user=3)[1]
        brain.script = [("status", 503)] * 3
        assert invoke()["error"]["code"] == "model_unavailable"
        assert bills() == [{"tokens_prompt": 0, "tokens_completion": 0, "estimated": 0}] * 3, bills()
        brain.script = [("cut", text("Er ist etwa dreihundert Meter hoch."))] * 3
        assert invoke()["error"]["code"] == "model_unavailable"
        cut = bills()[3:]
        assert len(cut) == 3 and all(row["estimated"] == 1 and row["tokens_prompt"] > 0 and row["tokens_completion"] > 0 for row in cut), cut
        # It is booked before it leaves, so that a stop button does not make it free; and it is no part of what the turn's own model used.
        asked, go = threading.Event(), threading.Event()
        brain.script = [calls(("ask_gpt", {"query": "Und der Fluss?"})), lambda _: (asked.set(), go.wait(60), text("Zu spät."))[2]]
        _, accepted, _ = house.call("POST", "/api/chat", {"message": "Wie tief ist der Fluss?", "background": True}, user=3)
        until(asked.is_set, what="the question")
        assert len(bills()) == 7 and bills()[6]["estimated"] == 1, bills()
        assert house.call("POST", f"/api/turns/{accepted['turn_id']}/cancel", {}, user=3)[0] == 202
        until(lambda: house.rows("SELECT 1 AS n FROM turns WHERE id = ? AND finished_at IS NOT NULL", accepted["turn_id"]), what="the end")
        go.set()
        assert len(bills()) == 7 and bills()[6]["tokens_prompt"] > 0, bills()
        brain.script = [calls(("ask_gpt", {"query": "Und der Berg?"})), text("Acht Kilometer."), text("Acht Kilometer hoch.")]
        _, answer, _ = house.chat("Wie hoch ist der Berg?", user=3)
        assert len(bills()) == 8 and bills()[7] == {"tokens_prompt": 10, "tokens_completion": 5, "estimated": 0}, bills()
        own = house.rows("SELECT sum(tokens_total) AS tokens, count(*) AS n FROM api_usage WHERE turn_id = ? AND operation = 'chat'", answer["turn_id"])[0]
        assert (answer["usage"]["total_tokens"], answer["usage"]["model_calls"]) == (own["tokens"], own["n"]), (answer["usage"], own)
    finally:
        house.close()
        brain.close()
