"""The pictures of the documentation: one per view, taken from a server with the sample office and a scripted model."""
from console import Console, calls, expect, test_id, text

MODEL = "sample-model"
WIDTH, HEIGHT = 1440, 900
ANSWER = """You have **seven** open requests. Two of them are due today:

| Request | Due | Responsible |
|---|---|---|
| Approve the budget of the Hannover fair | today | Bernd Krüger |
| Replace the broken badge reader | Sunday | David Miller |

Your timer is running since this morning. The rules are in [the handbook](https://intranet.example/handbook/requests)."""
DOCUMENTS = [
    {"id": "coffee", "title": "Coffee machine", "text": "Descale the espresso machine every Wednesday with citric acid. The cleaner is in the lower drawer."},
    {"id": "travel", "title": "Travel expenses", "text": "Send receipts within two weeks. The train comes before the plane below six hours."},
    {"id": "leave", "title": "Vacation", "text": "Ask your lead two weeks before a vacation. Three days in a row need a substitute."},
]


def answered(*entries):
    """The same answers, from a model with the name that the pictures show."""
    return [[{**chunk, "model": MODEL} for chunk in entry] for entry in entries]


def fill(console):
    """What the pictures show. Returns the addresses of the views."""
    console.model.usage = (2140, 310)
    console.ask("How long did I work today?", *answered(calls(("get_worktime", {})), text("Since 08:00, with a break at noon.")))
    console.ask("Break something", *answered(calls(("test_panic", {})), text("The tool failed; nothing was changed.")))
    console.ask("Who may read my requests?", *answered(calls(("get_user_info", {})), text("You, your lead and the administrators.")), user=2)
    console.ask("Order a desk lamp for the front desk", *answered(calls(("create_request", {"title": "Desk lamp for the front desk", "description": "The old one flickers."}))), user=2)
    shown = console.ask("What is on my desk today?", *answered(calls(("get_requests", {}), ("get_todos", {}), ("get_worktime", {})), text(ANSWER, pieces=8)))
    status, _, _ = console.server.call("POST", "/api/knowledge/documents", {"documents": DOCUMENTS})
    assert status == 200, status
    console.server.call("POST", "/api/budgets", {"scope": "tenant", "period": "day", "unit": "tokens", "limit": 200_000})
    console.server.call("POST", "/api/budgets", {"scope": "user", "period": "month", "unit": "model_calls", "limit": 500})
    job = next(result["job_id"] for result in shown["tool_results"] if result["tool"] == "get_requests")
    return {
        "chat": f"chat/{shown['conversation_id']}",
        "calls": "calls",
        "call": f"calls/{job}",
        "turn": f"turns/{shown['turn_id']}",
        "approvals": "approvals",
        "tools": "tools/get_requests",
        "knowledge": "knowledge",
        "usage": "usage",
        "people": "people?user=3",
        "outbox": "outbox",
        "audit": "audit",
    }


def prepare(page, name):
    """Brings a view into the state that its picture shows."""
    if name == "knowledge":
        test_id(page, "knowledge-query").fill("clean the espresso machine")
        test_id(page, "knowledge-query").press("Enter")
        expect(test_id(page, "knowledge-hit").first).to_be_visible()
    if name == "chat":
        expect(page.locator(".inspector .waterfall")).to_be_visible()
    if name == "people":
        expect(test_id(page, "may-table")).to_be_visible()
    page.evaluate("() => (document.activeElement?.blur(), document.fonts.ready.then(() => undefined))")


def take(folder, views=None):
    """Writes `console.png`, the picture of the README, and `console/NAME.png` for each view."""
    (folder / "console").mkdir(parents=True, exist_ok=True)
    with Console(model=MODEL) as console:
        paths = fill(console)
        page = console.page("chat", viewport={"width": WIDTH, "height": HEIGHT})
        for name, path in paths.items():
            if views and name not in views:
                continue
            console.open(page, path)
            prepare(page, name)
            page.screenshot(path=folder / f"console/{name}.png")
            if name == "chat":
                page.screenshot(path=folder / "console.png")
            print(f"docs/console/{name}.png", flush=True)
        dark = console.page(paths["chat"], color_scheme="dark", viewport={"width": WIDTH, "height": HEIGHT})
        prepare(dark, "chat")
        dark.screenshot(path=folder / "console/dark.png")
        console.clean(page)
