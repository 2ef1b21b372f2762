"""Documents are stored exactly once, and no vector is paid for twice, no matter which process dies during the import."""
import collections
import hashlib
import http.client
import json
import pathlib
import re
import signal
import subprocess
import threading
import urllib.parse

from check_knowledge import Brain, search
from databases import SCRIPTS, postgres_only
from fakes import FakeEndpoint, FakeServer, calls, text
from server import ADMIN, BINARY, Replica, Server, until

WORDS = "Anker Birke Cello Distel Eule Falke Ginster Hafen Igel Jolle Kranich Lotse Mole Nebel Otter Planke".split()


def document(number):
    """Text that differs for every number, short enough for one chunk."""
    a, b, c = (WORDS[number // step % len(WORDS)] for step in (1, 16, 256))
    return f"# Blatt {number}\n\nAuf Blatt {number} stehen {a}, {b} und {c} in dieser Reihenfolge."


class Gate(FakeServer):
    """A proxy before a server. `pass_on(number)` decides about the nth batch: "answer" forwards it, "mute" forwards it and withholds the
    response, "deliver" forwards it and calls `delivered` before a response can arrive."""

    def __init__(self, server, pass_on, delivered=lambda: None):
        self.server, self.pass_on, self.delivered, self.muted = server, pass_on, delivered, threading.Event()

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                body = self.body()
                self.owner.note(json.loads(body))
                action = self.owner.pass_on(len(self.owner.requests))
                address = urllib.parse.urlsplit(self.owner.server.url)
                connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
                connection.request("POST", self.path, body, {name: value for name, value in self.headers.items() if name.lower() != "host"})
                if action == "deliver":
                    self.owner.delivered()
                try:
                    answer = connection.getresponse()
                    status, payload = answer.status, answer.read()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                    return
                if action == "mute":
                    self.owner.muted.set()
                    self.rfile.read(1)  # until the client disconnects
                    self.close_connection = True
                    return
                self.answer(status, payload)

        super().__init__(Endpoint)


def folder_of(server, count):
    folder = pathlib.Path(server.folder.name, "docs")
    folder.mkdir()
    for number in range(count):
        folder.joinpath(f"{number:04}.md").write_text(document(number))


def adding(server, url, *arguments):
    env = {**server.env, "WERKRUF_SERVER": url, "WERKRUF_KEY": ADMIN}
    return subprocess.Popen([BINARY, "knowledge", "add", *(arguments or ["docs"]), "--json"], env=env, cwd=server.folder.name,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def added(server, *arguments):
    done = adding(server, server.url, *arguments)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    return json.loads(out)


def each_once(server, count):
    """Every document and its one chunk is stored once and was written once."""
    [row] = server.rows("SELECT count(*) AS n, count(DISTINCT document_id) AS ids, max(version) AS version, "
                       "(SELECT count(*) FROM chunks) AS chunks FROM documents")
    assert row == {"n": count, "ids": count, "version": 1, "chunks": count}, row


def check_a_killed_add_can_be_repeated():
    server = Server()
    gate = None
    try:
        folder_of(server, 1000)
        # The server stores the third batch, and the client dies before it receives the response.
        gate = Gate(server, lambda number: "mute" if number == 3 else "answer")
        first = adding(server, gate.url)
        until(gate.muted.is_set, 60, "the third batch")
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        first.communicate()
        written = len(server.rows("SELECT 1 AS n FROM documents"))
        assert written == sum(len(batch["documents"]) for batch in gate.requests) and 0 < written < 1000, written
        again = added(server)
        assert (again["accepted"], again["replaced"], again["unchanged"], again["skipped"]) == (1000 - written, 0, written, []), again
        each_once(server, 1000)
        third = added(server)
        assert (third["accepted"], third["unchanged"], third["chunks"]) == (0, 1000, 0), third
    finally:
        server.close()
        if gate:
            gate.close()


def check_a_server_killed_while_it_stores_documents():
    server = Server()
    gate = None
    try:
        folder_of(server, 1000)

        def kill():
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()

        # The server has received the whole third batch and dies while it stores it.
        gate = Gate(server, lambda number: "deliver" if number == 3 else "answer", kill)
        first = adding(server, gate.url)
        _, err = first.communicate(timeout=120)
        assert first.returncode == 1, (first.returncode, err)
        server.process.stdout.close()
        server.log.close()
        server.start()
        written = len(server.rows("SELECT 1 AS n FROM documents"))
        acknowledged = sum(len(batch["documents"]) for batch in gate.requests[:2])
        assert written in (acknowledged, acknowledged + len(gate.requests[2]["documents"])), "a batch is stored as a whole or not at all"
        again = added(server)
        assert (again["accepted"], again["unchanged"]) == (1000 - written, written), again
        each_once(server, 1000)
        assert search(server, "Blatt 999", mode="lexical")["results"][0]["document_id"] == "docs/0999.md"
    finally:
        server.close()
        if gate:
            gate.close()


class Counting(Brain):
    """The embedding model, with a count of every text and a delay of some requests."""

    def __init__(self):
        super().__init__()
        self.counts, self.batches, self.hold = collections.Counter(), [], lambda number: None
        handler, brain = self.http.RequestHandlerClass, self
        before = handler.do_POST

        def do_POST(request):
            if not request.path.endswith("/embeddings"):
                return before(request)
            raw = request.body()
            texts = json.loads(raw)["input"]
            with brain.lock:
                # A search query is embedded alone and every time.
                chunks = [one for one in texts if "stehen" in one]
                brain.counts.update(chunks)
                brain.batches += [chunks] if chunks else []
                number = len(brain.batches) if chunks else 0
            brain.hold(number)
            # The connection, and this object with it, serves the next request too.
            request.body = lambda: raw
            try:
                before(request)
            finally:
                del request.body

        handler.do_POST = do_POST


def settled(server, count):
    def embedded():
        _, row, _ = server.call("GET", "/api/knowledge/collections/default")
        return row and (row["embedded"], row["pending"], row["failed"]) == (count, 0, 0)
    until(embedded, 120, "all vectors")
    [row] = server.rows("SELECT count(*) AS n, count(DISTINCT chunk) AS chunks, count(vector) AS whole, "
                       "(SELECT count(*) FROM chunks) AS all_chunks FROM chunk_vectors")
    assert row == {"n": count, "chunks": count, "whole": count, "all_chunks": count}, row


def add_documents(server, count):
    documents = [{"id": f"d{number}", "title": f"Blatt {number}", "text": document(number)} for number in range(count)]
    status, taken, _ = server.call("POST", "/api/knowledge/documents", {"documents": documents})
    assert (status, taken["accepted"]) == (200, count), taken


def check_a_killed_server_has_nothing_embedded_twice():
    brain = Counting()
    server = Server(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})
    try:
        held, go = threading.Event(), threading.Event()

        def hold(number):
            if number == 3:
                held.set()
                go.wait(60)

        brain.hold = hold
        add_documents(server, 400)
        until(held.is_set, 60, "the third batch")
        stored = {row["chunk"] for row in server.rows("SELECT chunk FROM chunk_vectors")}
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.process.stdout.close()
        server.log.close()
        go.set()
        in_flight = set(brain.batches[2])
        assert len(stored) == sum(len(batch) for batch in brain.batches[:2]) and 0 < len(in_flight) < 400, (len(stored), len(in_flight))
        server.start()
        settled(server, 400)
        assert len(brain.counts) == 400, len(brain.counts)
        twice = {one for one, times in brain.counts.items() if times > 1}
        assert twice <= in_flight and max(brain.counts.values()) <= 2, "only texts in flight are embedded again"
        found = search(server, "Auf welchem Blatt stehen die Dinge von Blatt 399?")
        assert found["routing"]["mode"] == "hybrid" and found["results"][0]["similarity"] is not None, found["routing"]
        assert search(server, "Blatt 399", mode="lexical")["results"][0]["document_id"] == "d399"
        # After another restart nothing is left to do.
        total = sum(brain.counts.values())
        assert server.stop() == 0
        server.start()
        settled(server, 400)
        assert sum(brain.counts.values()) == total
    finally:
        server.close()
        brain.close()


@postgres_only
def check_three_servers_pay_for_a_vector_once():
    brain = Counting()
    together = threading.Barrier(3)

    def hold(number):
        # The first batches of all three servers are in flight at once.
        if 0 < number <= 3:
            together.wait(60)

    brain.hold = hold
    servers = [Server(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})]
    try:
        servers += [Replica(servers[0]), Replica(servers[0])]
        add_documents(servers[0], 500)
        settled(servers[0], 500)
        assert len(brain.counts) == 500 and set(brain.counts.values()) == {1}, collections.Counter(brain.counts.values())
        assert not together.broken
        assert servers[0].rows("SELECT count(*) AS n FROM embedding_claims WHERE until > now()") == [{"n": 0}]
    finally:
        for server in servers:
            server.close()
        brain.close()


@postgres_only
def check_a_deleted_text_is_gone_from_the_files_after_the_documented_vacuum():
    brain = Brain()
    server = Server(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"})
    try:
        secret = "xylophonquartett"
        # Long enough for TOAST storage outside the table.
        noise = " ".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(60))
        documents = [{"id": "short", "title": f"{secret} eins", "text": f"Das Losungswort lautet {secret}."},
                     {"id": "long", "title": "Lang", "text": f"```\n{secret} {noise}\n```"}, {"id": "stays", "title": "T", "text": "Das hier bleibt unverkennbar."}]
        assert server.call("POST", "/api/knowledge/documents", {"documents": documents})[1]["accepted"] == 3
        until(lambda: server.call("GET", "/api/knowledge/collections/default")[1]["embedded"] == 3, what="vectors")
        programs = next(SCRIPTS.parents[1].glob("target/postgres/python/*/pginstall18/bin"))
        sql = lambda *statements: subprocess.run([programs / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", server.database.url, *[part for statement in statements for part in ("-c", statement)]],
                                            check=True, capture_output=True, text=True)
        sql("ANALYZE werkruf.documents, werkruf.chunks")
        assert secret not in sql("SELECT * FROM pg_stats WHERE schemaname = 'werkruf'").stdout, "samples are taken of texts"
        for name in ("short", "long"):
            assert server.call("DELETE", f"/api/knowledge/documents/{name}")[0] == 204
        documented = re.search(r"psql DATABASE -c '([^']+)'", pathlib.Path(SCRIPTS.parents[1], "docs/knowledge.md").read_text())[1]
        # An older transaction of a server may still be open. VACUUM then reports it, and is repeated.
        left = lambda: [int(number) for number in re.findall(r"(\d+) dead row versions cannot be removed yet", sql(documented).stderr)]
        until(lambda: (found := left()) and not any(found), what="an undisturbed vacuum")
        sql("CHECKPOINT")
        data_directory = sql("SHOW data_directory").stdout.strip()
        paths = sql("SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 't', 'i') AND pg_relation_filepath(oid) IS NOT NULL").stdout.split()
        files = [path for name in paths for path in pathlib.Path(data_directory).glob(name + "*")]
        held = b"".join(path.read_bytes() for path in files)
        assert b"unverkennbar" in held, "these are the files"
        assert secret.encode() not in held, [path for path in files if secret.encode() in path.read_bytes()]
    finally:
        server.close()
        brain.close()


def check_ask_gpt_writes_usage_rows_for_failed_requests():
    brain = Brain()
    server = Server(brain)
    usage_rows = lambda: server.rows("SELECT tokens_prompt, tokens_completion, estimated FROM api_usage WHERE operation = 'ask_gpt' ORDER BY id")
    try:
        invoke = lambda: server.call("POST", "/api/tools/ask_gpt/invoke", {"input": {"query": "Wie hoch ist der Turm?"}}, user=3)[1]
        # A question may cost money, so it is sent once.
        brain.script = [("status", 503)]
        assert invoke()["error"]["code"] == "model_unavailable"
        assert usage_rows() == [{"tokens_prompt": 0, "tokens_completion": 0, "estimated": 0}], usage_rows()
        brain.script = [("cut", text("Er ist etwa dreihundert Meter hoch."))]
        assert invoke()["error"]["code"] == "model_unavailable"
        cut = usage_rows()[1:]
        assert len(cut) == 1 and all(row["estimated"] == 1 and row["tokens_prompt"] > 0 and row["tokens_completion"] > 0 for row in cut), cut
        # The usage row is written before the request is sent, so that a canceled call is counted. It is not part of the usage of the turn's own model.
        requested, go = threading.Event(), threading.Event()
        brain.script = [calls(("ask_gpt", {"query": "Und der Fluss?"})), lambda _: (requested.set(), go.wait(60), text("Zu spät."))[2]]
        _, accepted, _ = server.call("POST", "/api/chat", {"message": "Wie tief ist der Fluss?", "background": True}, user=3)
        until(requested.is_set, what="the request")
        assert len(usage_rows()) == 3 and usage_rows()[2]["estimated"] == 1, usage_rows()
        assert server.call("POST", f"/api/turns/{accepted['turn_id']}/cancel", {}, user=3)[0] == 202
        until(lambda: server.rows("SELECT 1 AS n FROM turns WHERE id = ? AND finished_at IS NOT NULL", accepted["turn_id"]), what="the end")
        go.set()
        assert len(usage_rows()) == 3 and usage_rows()[2]["tokens_prompt"] > 0, usage_rows()
        brain.script = [calls(("ask_gpt", {"query": "Und der Berg?"})), text("Acht Kilometer."), text("Acht Kilometer hoch.")]
        _, answer, _ = server.chat("Wie hoch ist der Berg?", user=3)
        assert len(usage_rows()) == 4 and usage_rows()[3] == {"tokens_prompt": 10, "tokens_completion": 5, "estimated": 0}, usage_rows()
        own = server.rows("SELECT sum(tokens_total) AS tokens, count(*) AS n FROM api_usage WHERE turn_id = ? AND operation = 'chat'", answer["turn_id"])[0]
        assert (answer["usage"]["total_tokens"], answer["usage"]["model_calls"]) == (own["tokens"], own["n"]), (answer["usage"], own)
    finally:
        server.close()
        brain.close()
