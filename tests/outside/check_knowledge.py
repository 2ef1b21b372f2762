"""Documents are stored and passages found; when nothing is found, the server offers another tool."""
import contextlib
import json
import pathlib
import subprocess
import time

from fakes import Model, calls, text
from server import ADMIN, BINARY, Server, until

HANDBOOK = [
    {"id": "expiry", "title": "Verfall", "text": "Nicht genutzte Bonuspunkte verfallen achtzehn Monate nach dem Erwerb."},
    {"id": "gate", "title": "Abendflug", "text": "Der Flug ZQ 7731 nach Nürnberg startet immer an Flugsteig 14."},
    {"id": "secret", "title": "Tresor", "text": "Das Losungswort des Tresors lautet xylophonquartett."},
    {"id": "refund", "title": "Refunds", "text": "A cancelled ticket is refunded to the card that paid for it within ten days."},
]


class Brain(Model):
    """The scripted model, which also searches the web and computes embeddings."""

    def __init__(self):
        super().__init__()
        self.searched, self.embedded, self.down, self.size, self.web = [], [], False, 26, web_search_response
        # Whether every second vector of a request is shorter.
        self.mixed = False
        handler, brain = self.http.RequestHandlerClass, self
        chat = handler.do_POST

        def do_POST(request):
            if request.path.endswith("/chat/completions"):
                return chat(request)
            body = json.loads(request.body())
            if request.path.endswith("/responses"):
                brain.searched.append(body)
                return request.answer(200, brain.web(body))
            if brain.down:
                return request.answer(503, {"error": {"message": "down"}})
            brain.embedded.extend(body["input"])
            size = lambda at: brain.size // 2 if brain.mixed and at % 2 else brain.size
            data = [{"index": at, "embedding": vector(one)[:size(at)]} for at, one in enumerate(body["input"])]
            return request.answer(200, {"data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}})

        handler.do_POST = do_POST


def vector(content):
    """Counts letters: similar texts have similar vectors, and equal texts have equal ones."""
    return [1.0 + content.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


def web_search_response(_):
    annotation = {"type": "url_citation", "url": "https://w.example/a", "title": "W", "start_index": 0, "end_index": 400}
    return {"id": "resp_1", "status": "completed", "model": "fake", "usage": {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}, "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Laut W: 42.", "annotations": [annotation]}]}]}


@contextlib.contextmanager
def scenario(embedding=False, documents=HANDBOOK):
    brain = Brain()
    server = Server(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"} if embedding else None)
    try:
        status, taken, _ = server.call("POST", "/api/knowledge/documents", {"documents": documents})
        assert (status, taken["accepted"]) == (200, len(documents)), taken
        yield brain, server
    finally:
        server.close()
        brain.close()


def search(server, query, **more):
    status, answer, _ = server.call("POST", "/api/knowledge/search", {"query": query, **more})
    assert status == 200, answer
    return answer


def first(server, query, **more):
    results = search(server, query, **more)["results"]
    return results[0]["document_id"] if results else None


def check_documents_are_found_lexically_at_once():
    with scenario() as (_, server):
        for query, expected in [("Wann verfällt ein Bonuspunkt?", "expiry"), ("ZQ7731", "gate"), ("zq-7731", "gate"), ("Nuernberg", "gate"),
                                ("refunding tickets", "refund"), ("Punkte", "expiry")]:
            assert first(server, query) == expected, (query, search(server, query))
        answer = search(server, "Bonuspunkte", top_k=1)
        assert len(answer["results"]) == 1 and answer["routing"] == {"mode": "lexical", "embedding_model": None}, answer
        assert search(server, "Wie koche ich Spaghetti?")["nothing_found"] is True
        assert search(server, "x", collection="none")["results"] == []


def check_documents_are_replaced_listed_and_separated():
    with scenario() as (_, server):
        changed = [{**HANDBOOK[0], "text": "Bonuspunkte verfallen nie."}] + HANDBOOK[1:]
        _, taken, _ = server.call("POST", "/api/knowledge/documents", {"documents": changed})
        assert (taken["accepted"], taken["replaced"], taken["unchanged"]) == (0, 1, 3) and taken["ingestion_run_id"].startswith("ingest_"), taken
        status, one, _ = server.call("GET", "/api/knowledge/documents/expiry")
        assert (status, one["version"], one["chunks"], one["content"][0]["content"]) == (200, 2, 1, "Bonuspunkte verfallen nie."), one
        server.call("POST", "/api/knowledge/documents", {"collection": "other", "documents": [HANDBOOK[3]]})
        assert first(server, "Bonuspunkte", collection="other") is None
        _, row, _ = server.call("GET", "/api/knowledge/collections/default")
        assert (row["documents"], row["chunks"], row["pending"], row["alpha"]) == (4, 4, 0, 0.0), row
        assert server.call("GET", "/api/knowledge/collections/none")[0] == 404
        assert server.call("POST", "/api/knowledge/documents", {"documents": [{"title": "no text"}]})[0] == 400


def check_a_deleted_document_leaves_no_trace():
    with scenario(embedding=True) as (_, server):
        until(lambda: server.call("GET", "/api/knowledge/collections/default")[1]["pending"] == 0, what="vectors")
        assert first(server, "xylophonquartett", mode="lexical") == "secret"
        assert server.call("DELETE", "/api/knowledge/documents/secret")[0] == 204
        assert server.call("DELETE", "/api/knowledge/documents/secret")[0] == 404
        assert all(hit["document_id"] != "secret" for hit in search(server, "xylophonquartett Tresor")["results"])
        left = server.rows("SELECT (SELECT count(*) FROM chunks WHERE lower(content) LIKE '%xylophonquartett%') AS chunks, "
                          "(SELECT count(*) FROM chunks) - (SELECT count(*) FROM chunk_vectors) AS vectors")[0]
        assert left == {"chunks": 0, "vectors": 0}, left
        for path in pathlib.Path(server.folder.name).glob("w.db*"):
            assert b"xylophonquartett" not in path.read_bytes(), path


def ask_unanswerable(brain, server):
    brain.script = [calls(("search_knowledge_base", {"query": "Wie hoch ist der Eiffelturm?"})), text("Dazu habe ich nichts. Soll ich im Web suchen?")]
    status, answer, _ = server.chat("Wie hoch ist der Eiffelturm?", user=3)
    assert status == 200, answer
    data = answer["tool_result"]
    assert (data["kind"], data["mode"], data["sources"], data["suggested_tool"]) == ("nothing", "rag_no_results", [], "ask_gpt"), data
    assert "Web durchsuchen" in data["message"], data
    assert answer["session_state"]["pending_gpt_query"]["query"] == "Wie hoch ist der Eiffelturm?", answer["session_state"]
    return answer["conversation_id"]


def check_a_yes_accepts_the_offer_without_a_model_request():
    with scenario() as (brain, server):
        conversation = ask_unanswerable(brain, server)
        requests_before = len(brain.requests)
        status, answer, _ = server.chat("Ja, gerne!", conversation, user=3)
        assert (status, answer["message"]["content"], answer["usage"]["model_calls"]) == (200, "Laut W: 42.", 0), answer
        assert len(brain.requests) == requests_before, "a model request was sent"
        sent = brain.searched[0]
        assert sent["tools"][0]["type"] == "web_search" and sent["input"][-1]["content"] == "Wie hoch ist der Eiffelturm?", sent
        data = answer["tool_result"]
        assert (data["web_search"], data["searches"]) == (True, 1), data
        assert data["citations"] == [{"url": "https://w.example/a", "title": "W", "start_index": 0, "end_index": 11, "cited_text": "Laut W: 42."}], data
        assert "pending_gpt_query" not in answer["session_state"], answer["session_state"]
        rows = server.rows("SELECT operation, tokens_total FROM api_usage WHERE operation = 'ask_gpt'")
        assert rows == [{"operation": "ask_gpt", "tokens_total": 29}], rows


def check_any_other_message_cancels_the_offer():
    with scenario() as (brain, server):
        for message in ["Nein danke", "Welche Anfragen habe ich?"]:
            conversation = ask_unanswerable(brain, server)
            brain.script = [text("Gut.")]
            status, answer, _ = server.chat(message, conversation, user=3)
            assert (status, answer["message"]["content"]) == (200, "Gut."), answer
            assert "pending_gpt_query" not in answer["session_state"], answer["session_state"]
            brain.script = [text("Wozu?")]
            _, answer, _ = server.chat("ja", conversation, user=3)
            assert answer["message"]["content"] == "Wozu?" and not brain.searched, answer


def check_sources_reach_the_model():
    with scenario() as (brain, server):
        brain.script = [calls(("search_knowledge_base", {"query": "Verfall der Bonuspunkte", "top_k": 99})), text("Nach achtzehn Monaten.")]
        _, answer, _ = server.chat("Wann verfallen Bonuspunkte?", user=3)
        data = answer["tool_result"]
        assert (data["kind"], data["top_k"], data["sources"][0]["document_id"]) == ("docs", 20, "expiry"), data
        assert "achtzehn Monate" in json.dumps(brain.last()["messages"][-1], ensure_ascii=False)


def check_ask_gpt_reports_what_it_cannot_do():
    with scenario() as (brain, server):
        invoke = lambda **args: server.call("POST", "/api/tools/ask_gpt/invoke", {"input": args}, user=3)[1]
        assert invoke(query="  ")["error"]["code"] == "empty_query"
        brain.script = [text("")] * 3  # the request is tried three times
        assert invoke(query="Hm?")["error"]["code"] == "empty_answer"
        brain.script = [text("Bern.")]
        answer = invoke(query="Hauptstadt der Schweiz?", context="Es geht um Geografie.", temperature=9)
        assert (answer["data"]["message"], answer["data"]["web_search"], answer["data"]["searches"]) == ("Bern.", False, 0), answer
        assert answer["meta"]["token_usage"] == {"prompt": 10, "completion": 5}, answer["meta"]
        sent = brain.last()
        assert "tools" not in sent and sent["temperature"] == 1.0 and "Geografie" in sent["messages"][-2]["content"], sent
        brain.web = lambda _: {**web_search_response(_), "output": web_search_response(_)["output"][1:]}
        answer = invoke(query="Wetter?", web_search=True)
        assert (answer["data"]["web_search"], answer["data"]["searches"]) == (False, 0), "a search is claimed only if one happened"
    server = Server(env={"WERKRUF_MODEL": "offline"})
    try:
        error = server.call("POST", "/api/tools/ask_gpt/invoke", {"input": {"query": "Hm?"}}, user=3)[1]["error"]
        assert (error["type"], error["code"]) == ("FATAL", "not_configured"), error
    finally:
        server.close()


def check_search_works_while_embeddings_fail_and_vectors_follow():
    with scenario(embedding=True, documents=[]) as (brain, server):
        brain.down = True
        server.call("POST", "/api/knowledge/documents", {"documents": HANDBOOK})
        began = time.monotonic()
        answer = search(server, "Bonuspunkte")
        assert time.monotonic() - began < 2 and answer["results"][0]["document_id"] == "expiry", answer
        assert answer["routing"] == {"mode": "lexical", "embedding_model": "letters", "degraded": "embedder_unavailable"}, answer
        assert server.stop() == 0
        brain.down = False
        server.start()
        until(lambda: server.call("GET", "/api/knowledge/collections/default")[1]["embedded"] == 4, what="vectors after the restart")
        chunks = [one for one in brain.embedded if one.startswith(("Verfall", "Abendflug", "Tresor", "Refunds"))]
        assert len(chunks) == 4, "nothing is embedded twice"
        answer = search(server, "Bonuspunkte")
        assert answer["routing"] == {"mode": "hybrid", "embedding_model": "letters"}, answer
        assert answer["results"][0]["similarity"] is not None and answer["results"][0]["rank_bm25"] == 1, answer
        spent = server.rows("SELECT count(*) AS n, count(CASE WHEN tokens_total > 0 THEN 1 END) AS paid FROM api_usage WHERE operation = 'embedding'")[0]
        assert spent["paid"] >= 2 and spent["n"] > spent["paid"], "every request has a usage row, also one that the embedder refused: " + str(spent)


def check_an_embedder_with_vectors_of_another_size_fails():
    with scenario(embedding=True) as (brain, server):
        row = lambda: server.call("GET", "/api/knowledge/collections/default")[1]
        until(lambda: row()["pending"] == 0, what="vectors")
        brain.size = 13
        server.call("POST", "/api/knowledge/documents", {"documents": [{"id": "late", "title": "Late", "text": "A heron fishes."}]})
        before = len(brain.embedded)
        until(lambda: any("heron" in one for one in brain.embedded[before - 1:]), what="a request for the vector")
        answer = search(server, "heron")
        assert answer["routing"] == {"mode": "lexical", "embedding_model": "letters", "degraded": "embedder_unavailable"}, answer
        assert answer["results"][0]["document_id"] == "late", answer
        assert (row()["embedded"], row()["pending"], row()["failed"]) == (4, 1, 0), row()
        brain.size = 26
        until(lambda: row()["pending"] == 0, what="the vector after the embedder was repaired")
        assert search(server, "heron")["routing"] == {"mode": "hybrid", "embedding_model": "letters"}


def check_an_embedder_with_vectors_of_several_sizes_in_one_answer_fails():
    with scenario(embedding=True, documents=[]) as (brain, server):
        row = lambda: server.call("GET", "/api/knowledge/collections/default")[1]
        warned = lambda: any(one.startswith("embedder_unavailable") for one in server.call("GET", "/readyz", key=None)[1]["warnings"])
        assert not warned()
        brain.mixed = True
        server.call("POST", "/api/knowledge/documents", {"documents": HANDBOOK})
        until(warned, what="a warning about the embedder")
        answer = search(server, "Bonuspunkte")
        assert answer["routing"] == {"mode": "lexical", "embedding_model": "letters", "degraded": "embedder_unavailable"}, answer
        assert answer["results"][0]["document_id"] == "expiry", answer
        assert (row()["embedded"], row()["pending"], row()["failed"]) == (0, 4, 0), row()
        brain.mixed = False
        until(lambda: row()["pending"] == 0, what="the vectors after the embedder was repaired")
        until(lambda: not warned(), what="the end of the warning")
        assert search(server, "Bonuspunkte")["routing"] == {"mode": "hybrid", "embedding_model": "letters"}


def check_the_command_line_adds_continues_and_measures():
    with scenario(documents=[]) as (_, server):
        folder = pathlib.Path(server.folder.name, "docs")
        folder.mkdir()
        folder.joinpath("a.md").write_text("# Regeln\n\nEin Hund darf mit an Bord.\n\n## Katzen\n\nEine Katze reist im Korb.")
        folder.joinpath("b.html").write_text("<title>Sitze</title><p>Am Notausgang sitzt kein Kind.</p>")
        env = {**server.env, "WERKRUF_SERVER": server.url, "WERKRUF_KEY": ADMIN}
        run = lambda *arguments: json.loads(subprocess.run([BINARY, "knowledge", *arguments, "--json"], env=env, cwd=server.folder.name, check=True, capture_output=True).stdout)
        added = run("add", "docs")
        assert (added["accepted"], added["chunks"]) == (2, 3), added
        folder.joinpath("c.txt").write_text("Getränke sind frei.")
        again = run("add", "docs")
        assert (again["accepted"], again["unchanged"], again["chunks"]) == (1, 2, 1), again
        assert run("search", "Katzen")["results"][0]["heading"] == "Regeln > Katzen"
        judged = pathlib.Path(server.folder.name, "judged")
        judged.mkdir()
        judged.joinpath("corpus.jsonl").write_text("\n".join(json.dumps(one) for one in HANDBOOK))
        judged.joinpath("queries.jsonl").write_text('{"id": "q1", "text": "ZQ7731"}\n{"id": "q2", "text": "refund"}')
        judged.joinpath("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tgate\t1\nq2\trefund\t1\n")
        measured = run("eval", "judged")
        assert (measured["ndcg10"], measured["recall20"], measured["mrr10"], measured["queries"]) == (1.0, 1.0, 1.0, 2), measured
        held = server.rows("SELECT collection, count(*) AS n FROM documents GROUP BY collection ORDER BY collection")
        assert held[0] == {"collection": "default", "n": 3} and held[1]["collection"] == "eval-judged", held
