"""First use: no key, no model, three languages, six users with different rights."""
import json

from fakes import Model, calls, text
from server import Server, until


def offline():
    return Server(env={"WERKRUF_TEST_TOOLS": "0"})


def ask(server, message, user):
    status, answer, _ = server.chat(message, user=user)
    assert status == 200, answer
    return answer


def check_first_minute_offline_in_three_languages():
    server = offline()
    try:
        for message, user, tools, expected in (
                ("solicitudes abiertas de hoy", 1, ["get_requests"], "solicitud"), ("welche requests und todos habe ich offen", 2, ["get_requests", "get_todos"], "offen"),
                ("wie lange habe ich heute gearbeitet", 3, ["get_worktime"], "Arbeitszeit am"), ("wer bin ich", 3, ["get_user_info"], "Clara"),
                ("what articles are there about emergencies", 5, ["get_cerebro_articles"], "Emergency"), ("who am i", 6, ["get_user_info"], "Farid")):
            answer = ask(server, message, user)
            assert sorted(r["tool"] for r in answer["tool_results"]) == tools and expected in answer["message"]["content"], answer
            assert all(r["status"] == "succeeded" for r in answer["tool_results"]), answer
        answer = ask(server, "xyzzy plugh", 4)
        assert answer["tool_results"] == [] and "not a language model" in answer["message"]["content"], answer
    finally:
        server.close()


def check_permissions_hold_for_any_model_output():
    """The model is the attacker: it names colleagues, branches and unknown users."""
    model = Model()
    server = Server(model, env={"WERKRUF_TEST_TOOLS": "0"})
    try:
        titles = {}
        for user in (1, 2, 3, 4, 6):
            model.script = [calls(("get_requests", {})), text("Ok.")]
            result = ask(server, "Mine", user)["tool_results"][0]
            assert result["status"] == "succeeded" and result["data"]["items"], result
            titles[user] = {item["title"] for item in result["data"]["items"]}

        def attempt(user, tool, arguments):
            model.script = [calls((tool, arguments)), text("Ok.")]
            return ask(server, "Try", user)["tool_results"][0]

        denied = [(5, "get_requests", {}), (5, "get_todos", {}), (5, "get_worktime", {}), (3, "get_requests", {"userId": 2}), (3, "get_requests", {"userId": 999}),
                  (3, "get_requests", {"branchId": 1}), (2, "get_requests", {"userId": 4}), (2, "get_requests", {"branchId": 2}), (3, "get_user_info", {"userId": 1}), (3, "get_worktime", {"userId": 2})]
        for user, tool, arguments in denied:
            result = attempt(user, tool, arguments)
            assert (result["status"], result["error"]["type"], result["error"]["code"]) == ("failed", "FATAL", "permission_denied"), (user, tool, arguments, result)
        stored = json.dumps(server.rows("SELECT m.content FROM messages m JOIN turns t ON t.id = m.turn_id WHERE t.user_id = '5'")
                            + server.rows("SELECT e.data FROM events e JOIN turns t ON t.id = e.turn_id WHERE t.user_id = '5'"), ensure_ascii=False)
        assert not any(title in stored for known in titles.values() for title in known)
        assert not any(title in server.logged() for known in titles.values() for title in known)
        assert attempt(1, "get_requests", {"userId": 4})["status"] == "succeeded" and attempt(2, "get_requests", {"userId": 3})["status"] == "succeeded"
        assert attempt(6, "get_requests", {})["status"] == attempt(6, "get_cerebro_articles", {})["status"] == "succeeded", "two roles, the rights of both"
        assert attempt(1, "get_requests", {"status": "open", "tenant_id": "other"})["error"]["code"] == "invalid_arguments"
    finally:
        server.close()
        model.close()


def check_import_is_all_or_nothing():
    server = offline()
    try:
        workspace = {"tenant": "acme", "branches": [{"id": 1, "name": "HQ", "time_zone": "Europe/Berlin"}],
                  "roles": [{"id": 1, "name": "boss", "permissions": [{"entity": "table_requests", "entity_type": "table", "access": "both", "scope": "all"}]}],
                  "users": [{"id": 7, "first_name": "Zoe", "last_name": "Z", "email": "z@acme.test", "locale": "de-DE", "branch_id": 1, "role_ids": [1]}],
                  "requests": [{"id": 1, "title": "Acme only", "status": "open", "requester_id": 7, "branch_id": 1}]}
        bad = {**workspace, "requests": workspace["requests"] + [{"id": 2, "title": "x", "status": "sleeping", "requester_id": 7, "branch_id": 1}]}
        status, answer, _ = server.call("POST", "/api/workspace/import", bad)
        assert status == 422 and answer["error"]["details"][0]["path"] == "/requests/1/status", answer
        assert server.rows("SELECT count(*) AS n FROM requests WHERE title = 'Acme only'")[0]["n"] == 0
        status, answer, _ = server.call("POST", "/api/workspace/import", workspace)
        assert status == 200 and answer["written"]["requests"] == 1, answer
        assert server.call("POST", "/api/workspace/import", workspace)[1]["written"] == answer["written"], "the same id replaces"
        answer = server.chat("meine offenen anfragen", user=7, headers={"x-tenant-id": "acme"})[1]
        assert "Acme only" in answer["message"]["content"], answer
        assert server.call("GET", f"/api/conversations/{answer['conversation_id']}")[0] == 404, "another tenant's ids do not exist"
        done = server.cli("workspace", "import", "-", stdin='{"tenant": "acme",\n "users": [{"id": "x"}]}')
        assert done.returncode == 1 and "/users/0/id" in done.stdout + done.stderr, done
    finally:
        server.close()


def check_the_printed_curl_works_and_chat_finds_the_server():
    server = Server(env={"WERKRUF_ADMIN_KEY": "", "WERKRUF_TEST_TOOLS": "0"})
    try:
        printed = until(lambda: (server.printed.append(server.process.stdout.readline()) or "curl" in server.printed[-1]) and server.printed[-1])
        key = printed.split("Bearer ")[1].split("'")[0]
        status, answer, _ = server.chat("Which requests are open for me today?", key=key)
        assert status == 200 and answer["tool_results"][0]["tool"] == "get_requests", answer
        done = server.cli("chat", "wer bin ich", "--user", "2")
        assert done.returncode == 0 and "Bernd" in done.stdout, done
        done = server.cli("calls", "list", "--json")
        assert {c["tool_name"] for c in json.loads(done.stdout)["tool_calls"]} == {"get_requests", "get_user_info"}
        job = json.loads(done.stdout)["tool_calls"][0]["id"]
        story = json.loads(server.cli("explain", job[:20], "--json").stdout)
        assert set(story) >= {"message", "model_answer", "raw_arguments", "repairs", "arguments", "permission", "attempts", "outcome", "events"}, story
    finally:
        server.close()
