"""The rights of every kind of person over every channel: direct calls, chat, both OpenAI APIs, WhatsApp and keywords. The expected answers come
from rules that are written here and share nothing with the server."""
import json

from fakes import Model, calls, text
from server import ADMIN, Server, until
from whatsapp_fakes import Graph, WhatsApp

TENANT = "matrix"
PEOPLE = range(1, 10)
NUMBER = "555000111"
# What each person may read of tables, and of articles.
RIGHTS = {1: ("all", "all"), 2: ("branch", "branch"), 3: ("own", "own"), 4: ("own", "own"), 5: (None, "own"), 6: ("own", "own"), 7: ("branch", "branch"),
          8: (None, None), 9: ("own", "own")}
BRANCH = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 1, 9: 1}
ROLES = {1: [1], 2: [2], 3: [3], 4: [3], 5: [4], 6: [4, 3], 7: [2], 8: [], 9: [3]}
DAY = "2026-03-10"
DENIED = "permission_denied"


def phone(person):
    return f"4915100000{person:02}"


def permissions(scope, entities=("table_requests", "table_tasks", "page_worktracker", "cerebro", "table_users")):
    kind = {"page_worktracker": "page", "cerebro": "cerebro"}
    return [{"entity": name, "entity_type": kind.get(name, "table"), "access": "read", "scope": scope} for name in entities]


def dataset():
    """Rows whose branch is not always the branch of their person."""
    requests, tasks, worktimes = [], [], []
    for at in range(36):
        person = at % 9 + 1
        branch = at % 2 + 1 if at % 3 == 0 else BRANCH[person]
        common = {"id": at + 1, "branch_id": branch, "status": "open", "created_at": f"2026-03-01T{at % 24:02}:{at:02}:00Z"}
        responsible = (at * 5) % 9 + 1 if at % 4 else None
        requests.append({**common, "title": f"request {at + 1}", "requester_id": person, **({"responsible_id": responsible} if responsible else {})})
        tasks.append({**common, "title": f"task {at + 1}", "user_id": person})
        worktimes.append({"id": at + 1, "user_id": person, "branch_id": branch, "started_at": f"{DAY}T07:{at:02}:00Z", "ended_at": f"{DAY}T09:00:00Z"})
    users = [{"id": n, "first_name": f"First{n}", "last_name": f"Last{n}", "email": f"u{n}@x.example", "locale": ("de-DE", "en-US", "es-ES")[n % 3],
              "time_zone": "Europe/Berlin", "branch_id": BRANCH[n], "role_ids": ROLES[n], "phone": "+" + phone(n)} for n in PEOPLE]
    articles = [{"id": n, "title": f"article {n}", "content": "text", "tags": [], **({"branch_id": n % 3} if n % 3 else {})} for n in range(1, 7)]
    return {"tenant": TENANT, "branches": [{"id": n, "name": f"Branch {n}", "time_zone": "Europe/Berlin"} for n in (1, 2)],
            "roles": [{"id": 1, "name": "admin", "permissions": permissions("all")}, {"id": 2, "name": "lead", "permissions": permissions("branch")},
                      {"id": 3, "name": "employee", "permissions": permissions("own")}, {"id": 4, "name": "guest", "permissions": permissions("own", ("cerebro",))}],
            "users": users, "requests": requests, "tasks": tasks, "worktimes": worktimes, "cerebro_articles": articles}


DATA = dataset()
TABLES = {"get_requests": "requests", "get_todos": "tasks", "get_worktime": "worktimes"}


def targets():
    return [{}] + [{"userId": n} for n in [*PEOPLE, 999, -1]] + [{"branchId": n} for n in (1, 2, 77)] + [{"userId": 3, "branchId": 1}]


def cells():
    """Every tool with every way to name a person or a branch."""
    for tool in TABLES:
        day = {"date": DAY} if tool == "get_worktime" else {}
        yield from ((tool, {**target, **day}) for target in targets())
    yield from (("get_user_info", target) for target in targets() if "branchId" not in target)
    yield ("get_cerebro_articles", {"limit": 20})


def owned(row, person):
    return person in (row.get("requester_id"), row.get("responsible_id"), row.get("user_id"))


def expected(caller, tool, args):
    """A code of refusal, or what the answer shows."""
    right, articles = RIGHTS[caller]
    person, branch = args.get("userId"), args.get("branchId")
    if tool == "get_cerebro_articles":
        rows = [row for row in DATA["cerebro_articles"] if articles == "all" or row.get("branch_id") in (None, BRANCH[caller])]
        return {row["id"] for row in rows} if articles else DENIED
    if tool == "get_user_info":
        person = caller if person is None else person
        allowed = person == caller or right == "all" or (right == "branch" and BRANCH.get(person) == BRANCH[caller])
        return DENIED if not allowed else f"u{person}@x.example" if person in PEOPLE else "unknown_user"
    if right is None:
        return DENIED
    if branch is None and person in (None, caller):
        rows = [row for row in DATA[TABLES[tool]] if owned(row, caller)]
    elif right == "own":
        return DENIED
    elif person is not None and branch is not None:
        return "invalid_arguments"
    elif right == "branch" and (BRANCH.get(person) if branch is None else branch) != BRANCH[caller]:
        return DENIED
    elif branch is not None:
        rows = [row for row in DATA[TABLES[tool]] if row["branch_id"] == branch]
    else:
        rows = [row for row in DATA[TABLES[tool]] if owned(row, person) and (right == "all" or row["branch_id"] == BRANCH[caller])]
    if tool == "get_worktime":
        return sorted(120 - int(row["started_at"][14:16]) for row in rows)
    newest = sorted(rows, key=lambda row: (row["created_at"], row["id"]), reverse=True)[:20]
    return {row["id"] for row in newest}


def shown(tool, error_code, data):
    """What an answer shows, in the form of `expected`."""
    if error_code:
        return error_code
    if tool == "get_worktime":
        return sorted(item["minutes"] for item in data["items"])
    return data["email"] if tool == "get_user_info" else {item["id"] for item in data["items"]}


def recorded(server, turn_id):
    rows = server.rows("SELECT output_index, tool_name, error_code, response FROM tool_calls WHERE turn_id = ? ORDER BY output_index", turn_id)
    loaded = lambda value: json.loads(value) if isinstance(value, str) else value
    return [(tool, code, loaded(response)) for _, tool, code, response in map(dict.values, rows)]


def compare(wrong, channel, caller, wanted, answers):
    for (tool, args), answer in zip(wanted, answers, strict=True):
        assert answer[0] == tool, (channel, caller, tool, answer)
        if shown(*answer) != expected(caller, tool, args):
            wrong.append((channel, caller, tool, args, shown(*answer), expected(caller, tool, args)))
    return len(wanted)


def newest_turn(server, person):
    found = server.rows("SELECT id FROM turns WHERE user_id = ? ORDER BY id DESC LIMIT 1", str(person))
    return found[0]["id"] if found else None


def check_rights_hold_over_every_channel():
    model, graph = Model(), Graph()
    server = Server(model, env={**graph.env(NUMBER, TENANT, branch=1), "WERKRUF_TEST_TOOLS": "0", "WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER": "0"})
    phone_line = WhatsApp(server, NUMBER)
    wrong, count = [], 0
    try:
        assert server.call("POST", "/api/workspace/import", DATA, headers={"x-tenant-id": TENANT}, user=None)[0] == 200
        wanted = list(cells())

        def script():
            model.script = [calls(*wanted), text("Ok.")]

        for person in PEOPLE:
            head = {"x-tenant-id": TENANT}
            answers = []
            for tool, args in wanted:
                status, output, _ = server.call("POST", f"/api/tools/{tool}/invoke", {"input": args}, user=person, headers=head)
                assert status == 200, output
                answers.append((tool, (output.get("error") or {}).get("code"), output.get("data")))
            count += compare(wrong, "invoke", person, wanted, answers)

            script()
            status, answer, _ = server.chat("All of it", user=person, headers=head)
            assert status == 200, answer
            count += compare(wrong, "chat", person, wanted, recorded(server, answer["turn_id"]))

            for path, body in (("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "All of it"}]}),
                               ("/v1/responses", {"model": "default", "input": "All of it"})):
                script()
                status, answer, _ = server.call("POST", path, body, user=person, headers=head)
                assert status == 200, answer
                count += compare(wrong, path, person, wanted, recorded(server, newest_turn(server, person)))

            script()
            before, sent = newest_turn(server, person), len(graph.texts(phone(person)))
            phone_line.text(phone(person), "All of it, please, for me")
            until(lambda: len(graph.texts(phone(person))) > sent, what="an answer on WhatsApp")
            turn = newest_turn(server, person)
            assert turn != before
            count += compare(wrong, "whatsapp", person, wanted, recorded(server, turn))
        count += keywords(server, graph, phone_line, wrong)
        assert count >= 1500, count
        assert not wrong, f"{len(wrong)} of {count} cells: {wrong[:5]}"
        print(f"       {count} cells")
    finally:
        server.close()
        model.close()
        graph.close()


KEYWORDS = {"get_requests": ("requests", "Anfragen", "¡Solicitudes!"), "get_todos": ("todos", "aufgaben", "TASKS", "tareas."),
            "get_user_info": ("wer bin ich?", "Who am I", "¿Quién soy?"), "get_worktime": ("arbeitszeit", "worktime", "horas")}


def keywords(server, graph, line, wrong):
    """A keyword is the person's own question: never a row of somebody else, and no model."""
    count = 0
    for person in PEOPLE:
        for tool, words in KEYWORDS.items():
            for word in words:
                sent = len(graph.texts(phone(person)))
                line.text(phone(person), word)
                until(lambda: len(graph.texts(phone(person))) > sent, what=f"an answer to {word}")
                turn = newest_turn(server, person)
                ((name, code, data),) = recorded(server, turn)
                models = server.rows("SELECT count(*) AS n FROM api_usage WHERE turn_id = ?", turn)[0]["n"]
                if tool == "get_worktime":
                    # The keyword asks about today, and the rows are older.
                    right = code == DENIED if RIGHTS[person][0] is None else code is None and data["total_minutes"] == 0
                else:
                    right = shown(tool, code, data) == expected(person, tool, {})
                if (name, models, right) != (tool, 0, True):
                    wrong.append(("keyword", person, word, name, models, code, data))
                count += 1
    return count
