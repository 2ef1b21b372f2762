"""Documents in, passages out, and an honest way on when nothing is found."""
import contextlib
import json
import pathlib
import subprocess
import time

from fakes import Model, calls, text
from house import ADMIN, BINARY, House, until

HANDBOOK = [
    {"id": "expiry", "title": "Verfall", "text": "Nicht genutzte Bonuspunkte verfallen achtzehn Monate nach dem Erwerb."},
    {"id": "gate", "title": "Abendflug", "text": "Der Flug ZQ 7731 nach Nürnberg startet immer an Flugsteig 14."},
    {"id": "secret", "title": "Tresor", "text": "Das Losungswort des Tresors lautet xylophonquartett."},
    {"id": "refund", "title": "Refunds", "text": "A cancelled ticket is refunded to the card that paid for it within ten days."},
]


class Brain(Model):
    """The scripted model, which also searches the web and makes vectors."""

    def __init__(self):
        super().__init__()
        self.searched, self.embedded, self.down, self.web = [], [], False, answer_of_the_web
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
            data = [{"index": at, "embedding": vector(one)} for at, one in enumerate(body["input"])]
            return request.answer(200, {"data": data, "usage": {"prompt_tokens": 3, "total_tokens": 3}})

        handler.do_POST = do_POST


def vector(words):
    """Letters counted: close texts are close, and the same text is the same."""
    return [1.0 + words.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


def answer_of_the_web(_):
    annotation = {"type": "url_citation", "url": "https://w.example/a", "title": "W", "start_index": 0, "end_index": 400}
    return {"id": "resp_1", "status": "completed", "model": "fake", "usage": {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}, "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Laut W: 42.", "annotations": [annotation]}]}]}


@contextlib.contextmanager
def scene(embedding=False, documents=HANDBOOK):
    brain = Brain()
    house = House(brain, env={"OPENAI_EMBEDDING_MODEL": "letters"} if embedding else None)
    try:
        status, taken, _ = house.call("POST", "/api/knowledge/documents", {"documents": documents})
        assert (status, taken["accepted"]) == (200, len(documents)), taken
        yield brain, house
    finally:
        house.close()
        brain.close()


def search(house, query, **more):
    status, answer, _ = house.call("POST", "/api/knowledge/search", {"query": query, **more})
    assert status == 200, answer
    return answer


def first(house, query, **more):
    results = search(house, query, **more)["results"]
    return results[0]["document_id"] if results else None


def check_documents_are_found_by_words_at_once():
    with scene() as (_, house):
        for query, expected in [("Wann verfällt ein Bonuspunkt?", "expiry"), ("ZQ7731", "gate"), ("zq-7731", "gate"), ("Nuernberg", "gate"),
                                ("refunding tickets", "refund"), ("Punkte", "expiry")]:
            assert first(house, query) == expected, (query, search(house, query))
        answer = search(house, "Bonuspunkte", top_k=1)
        assert len(answer["results"]) == 1 and answer["routing"] == {"mode": "lexical", "embedding_model": None}, answer
        assert search(house, "Wie koche ich Spaghetti?")["nothing_found"] is True
        assert search(house, "x", collection="none")["results"] == []


def check_documents_are_replaced_listed_and_kept_apart():
    with scene() as (_, house):
        changed = [{**HANDBOOK[0], "text": "Bonuspunkte verfallen nie."}] + HANDBOOK[1:]
        _, taken, _ = house.call("POST", "/api/knowledge/documents", {"documents": changed})
        assert (taken["accepted"], taken["replaced"], taken["unchanged"]) == (0, 1, 3) and taken["ingestion_run_id"].startswith("ingest_"), taken
        status, one, _ = house.call("GET", "/api/knowledge/documents/expiry")
        assert (status, one["version"], one["chunks"], one["content"][0]["content"]) == (200, 2, 1, "Bonuspunkte verfallen nie."), one
        house.call("POST", "/api/knowledge/documents", {"collection": "other", "documents": [HANDBOOK[3]]})
        assert first(house, "Bonuspunkte", collection="other") is None
        _, row, _ = house.call("GET", "/api/knowledge/collections/default")
        assert (row["documents"], row["chunks"], row["pending"], row["alpha"]) == (4, 4, 0, 0.0), row
        assert house.call("GET", "/api/knowledge/collections/none")[0] == 404
        assert house.call("POST", "/api/knowledge/documents", {"documents": [{"title": "no text"}]})[0] == 400


def check_a_deleted_document_leaves_no_trace():
    with scene(embedding=True) as (_, house):
        until(lambda: house.call("GET", "/api/knowledge/collections/default")[1]["pending"] == 0, what="vectors")
        assert first(house, "xylophonquartett", mode="lexical") == "secret"
        assert house.call("DELETE", "/api/knowledge/documents/secret")[0] == 204
        assert house.call("DELETE", "/api/knowledge/documents/secret")[0] == 404
        assert all(hit["document_id"] != "secret" for hit in search(house, "xylophonquartett Tresor")["results"])
        left = house.rows("SELECT (SELECT count(*) FROM chunks WHERE lower(content) LIKE '%xylophonquartett%') AS chunks, "
                          "(SELECT count(*) FROM chunks) - (SELECT count(*) FROM chunk_vectors) AS vectors")[0]
        assert left == {"chunks": 0, "vectors": 0}, left
        for path in pathlib.Path(house.folder.name).glob("w.db*"):
            assert b"xylophonquartett" not in path.read_bytes(), path


def ask_for_nothing(brain, house):
    brain.script = [calls(("search_knowledge_base", {"query": "Wie hoch ist der Eiffelturm?"})), text("Dazu habe ich nichts. Soll ich im Web suchen?")]
    status, answer, _ = house.chat("Wie hoch ist der Eiffelturm?", user=3)
    assert status == 200, answer
    data = answer["tool_result"]
    assert (data["kind"], data["mode"], data["sources"], data["suggested_tool"]) == ("nothing", "rag_no_results", [], "ask_gpt"), data
    assert "Web durchsuchen" in data["message"], data
    assert answer["session_state"]["pending_gpt_query"]["query"] == "Wie hoch ist der Eiffelturm?", answer["session_state"]
    return answer["conversation_id"]


def check_a_yes_takes_the_offer_without_the_planning_model():
    with scene() as (brain, house):
        conversation = ask_for_nothing(brain, house)
        asked = len(brain.requests)
        status, answer, _ = house.chat("Ja, gerne!", conversation, user=3)
        assert (status, answer["message"]["content"], answer["usage"]["model_calls"]) == (200, "Laut W: 42.", 0), answer
        assert len(brain.requests) == asked, "the planning model was asked"
        sent = brain.searched[0]
        assert sent["tools"][0]["type"] == "web_search" and sent["input"][-1]["content"] == "Wie hoch ist der Eiffelturm?", sent
        data = answer["tool_result"]
        assert (data["web_search"], data["searches"]) == (True, 1), data
        assert data["citations"] == [{"url": "https://w.example/a", "title": "W", "start_index": 0, "end_index": 11, "cited_text": "Laut W: 42."}], data
        assert "pending_gpt_query" not in answer["session_state"], answer["session_state"]
        rows = house.rows("SELECT operation, tokens_total FROM api_usage WHERE operation = 'ask_gpt'")
        assert rows == [{"operation": "ask_gpt", "tokens_total": 29}], rows


def check_anything_else_lets_the_offer_lapse():
    with scene() as (brain, house):
        for said in ["Nein danke", "Welche Anfragen habe ich?"]:
            conversation = ask_for_nothing(brain, house)
            brain.script = [text("Gut.")]
            status, answer, _ = house.chat(said, conversation, user=3)
            assert (status, answer["message"]["content"]) == (200, "Gut."), answer
            assert "pending_gpt_query" not in answer["session_state"], answer["session_state"]
            brain.script = [text("Wozu?")]
            _, answer, _ = house.chat("ja", conversation, user=3)
            assert answer["message"]["content"] == "Wozu?" and not brain.searched, answer


def check_sources_reach_the_model():
    with scene() as (brain, house):
        brain.script = [calls(("search_knowledge_base", {"query": "Verfall der Bonuspunkte", "top_k": 99})), text("Nach achtzehn Monaten.")]
        _, answer, _ = house.chat("Wann verfallen Bonuspunkte?", user=3)
        data = answer["tool_result"]
        assert (data["kind"], data["top_k"], data["sources"][0]["document_id"]) == ("docs", 20, "expiry"), data
        assert "achtzehn Monate" in json.dumps(brain.last()["messages"][-1], ensure_ascii=False)


def check_ask_gpt_says_what_it_cannot_do():
    with scene() as (brain, house):
        invoke = lambda **args: house.call("POST", "/api/tools/ask_gpt/invoke", {"input": args}, user=3)[1]
        assert invoke(query="  ")["error"]["code"] == "empty_query"
        brain.script = [text("")] * 3  # it is tried three times
        assert invoke(query="Hm?")["error"]["code"] == "empty_answer"
        brain.script = [text("Bern.")]
        told = invoke(query="Hauptstadt der Schweiz?", context="Es geht um Geografie.", temperature=9)
        assert (told["data"]["message"], told["data"]["web_search"], told["data"]["searches"]) == ("Bern.", False, 0), told
        assert told["meta"]["token_usage"] == {"prompt": 10, "completion": 5}, told["meta"]
        sent = brain.last()
        assert "tools" not in sent and sent["temperature"] == 1.0 and "Geografie" in sent["messages"][-2]["content"], sent
        brain.web = lambda _: {**answer_of_the_web(_), "output": answer_of_the_web(_)["output"][1:]}
        told = invoke(query="Wetter?", web_search=True)
        assert (told["data"]["web_search"], told["data"]["searches"]) == (False, 0), "a search is claimed only if one happened"
    house = House(env={"WERKRUF_MODEL": "offline"})
    try:
        error = house.call("POST", "/api/tools/ask_gpt/invoke", {"input": {"query": "Hm?"}}, user=3)[1]["error"]
        assert (error["type"], error["code"]) == ("FATAL", "not_configured"), error
    finally:
        house.close()


def check_vectors_follow_and_outlive_a_failing_embedder():
    with scene(embedding=True, documents=[]) as (brain, house):
        brain.down = True
        house.call("POST", "/api/knowledge/documents", {"documents": HANDBOOK})
        began = time.monotonic()
        answer = search(house, "Bonuspunkte")
        assert time.monotonic() - began < 2 and answer["results"][0]["document_id"] == "expiry", answer
        assert answer["routing"] == {"mode": "lexical", "embedding_model": "letters", "degraded": "embedder_unavailable"}, answer
        assert house.stop() == 0
        brain.down = False
        house.start()
        until(lambda: house.call("GET", "/api/knowledge/collections/default")[1]["embedded"] == 4, what="vectors after the restart")
        chunks = [one for one in brain.embedded if one.startswith(("Verfall", "Abendflug", "Tresor", "Refunds"))]
        assert len(chunks) == 4, "nothing is embedded twice"
        answer = search(house, "Bonuspunkte")
        assert answer["routing"] == {"mode": "hybrid", "embedding_model": "letters"}, answer
        assert answer["results"][0]["similarity"] is not None and answer["results"][0]["rank_bm25"] == 1, answer
        spent = house.rows("SELECT count(*) AS n, count(CASE WHEN tokens_total > 0 THEN 1 END) AS paid FROM api_usage WHERE operation = 'embedding'")[0]
        assert spent["n"] >= 2 and spent["n"] == spent["paid"], spent


def check_the_command_line_adds_continues_and_measures():
    with scene(documents=[]) as (_, house):
        folder = pathlib.Path(house.folder.name, "docs")
        folder.mkdir()
        folder.joinpath("a.md").write_text("# Regeln\n\nEin Hund darf mit an Bord.\n\n## Katzen\n\nEine Katze reist im Korb.")
        folder.joinpath("b.html").write_text("<title>Sitze</title><p>Am Notausgang sitzt kein Kind.</p>")
        env = {**house.env, "WERKRUF_SERVER": house.url, "WERKRUF_KEY": ADMIN}
        run = lambda *words: json.loads(subprocess.run([BINARY, "knowledge", *words, "--json"], env=env, cwd=house.folder.name, check=True, capture_output=True).stdout)
        added = run("add", "docs")
        assert (added["accepted"], added["chunks"]) == (2, 3), added
        folder.joinpath("c.txt").write_text("Getränke sind frei.")
        again = run("add", "docs")
        assert (again["accepted"], again["unchanged"], again["chunks"]) == (1, 2, 1), again
        assert run("search", "Katzen")["results"][0]["heading"] == "Regeln > Katzen"
        judged = pathlib.Path(house.folder.name, "judged")
        judged.mkdir()
        judged.joinpath("corpus.jsonl").write_text("\n".join(json.dumps(one) for one in HANDBOOK))
        judged.joinpath("queries.jsonl").write_text('{"id": "q1", "text": "ZQ7731"}\n{"id": "q2", "text": "refund"}')
        judged.joinpath("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tgate\t1\nq2\trefund\t1\n")
        measured = run("eval", "judged")
        assert (measured["ndcg10"], measured["recall20"], measured["mrr10"], measured["queries"]) == (1.0, 1.0, 1.0, 2), measured
        held = house.rows("SELECT collection, count(*) AS n FROM documents GROUP BY collection ORDER BY collection")
        assert held[0] == {"collection": "default", "n": 3} and held[1]["collection"] == "eval-judged", held
