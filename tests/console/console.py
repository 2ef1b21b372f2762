"""The browser, the server that it opens, and what every check needs of both."""
import contextlib
import json
import pathlib
import threading

from fakes import Model, calls, text
from playwright.sync_api import expect, sync_playwright
from server import ADMIN, ROOT, Server

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
FAILURES = ROOT / "target/console/failures"
ECHO_TOOL = "test_echo"
TIMEOUT_MS = 15_000
VIEWS = ["chat", "calls", "approvals", "tools", "knowledge", "usage", "people", "outbox", "audit"]

# Runs before the page's own scripts: notes what the policy refuses and how long the main thread is blocked.
OBSERVER = """
window.__violations = [];
document.addEventListener('securitypolicyviolation', (event) => window.__violations.push(event.violatedDirective + ' ' + event.blockedURI));
window.__tasks = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.__tasks.push(entry.duration))).observe({ type: 'longtask' });
"""


class Held(list):
    """Chunks of a model's answer. The ones from `at` on are sent when `gate` is opened."""

    def __init__(self, chunks, at, gate):
        super().__init__(chunks)
        self.at, self.gate = at, gate

    def __add__(self, more):
        return Held([*list.__iter__(self), *more], self.at, self.gate)

    def __iter__(self):
        for index, item in enumerate(list.__iter__(self)):
            if index == self.at:
                assert self.gate.wait(60), "nobody opened the gate"
            yield item


def held(content, pieces, at):
    """An answer of which the first `at` pieces are sent at once; returns it and the gate before the rest."""
    gate = threading.Event()
    return Held(text(content, pieces=pieces), at + 1, gate), gate


class Console:
    """One server and one browser for all checks. Each check has pages of its own."""

    def __init__(self, model="fake"):
        self.model_name = model

    def __enter__(self):
        expect.set_options(timeout=TIMEOUT_MS)
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        self.model = Model()
        self.server = Server(self.model, env={"OPENAI_MODEL": self.model_name, "WERKRUF_LIMIT_REQUESTS_PER_MINUTE_USER": "0", "WERKRUF_LIMIT_REQUESTS_PER_MINUTE_KEY": "0"})
        self.contexts = []
        return self

    def __exit__(self, *_):
        self.browser.close()
        self.playwright.stop()
        self.server.close()
        self.model.close()

    @contextlib.contextmanager
    def case(self, name):
        """Closes what a check opened, and keeps a picture of a failed one."""
        try:
            yield
        except Exception:
            FAILURES.mkdir(parents=True, exist_ok=True)
            for number, page in enumerate(page for context in self.contexts for page in context.pages):
                with contextlib.suppress(Exception):
                    page.screenshot(path=FAILURES / f"{name}-{number}.png")
            raise
        finally:
            self.model.script, self.model.default = [], None
            for context in self.contexts:
                context.close()
            self.contexts.clear()

    @property
    def url(self):
        return self.server.url

    def context(self, signed_in=True, key=ADMIN, **options):
        """A browser profile of its own. Its pages may write no error to the console, and everything that they request is noted."""
        context = self.browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "locale": "en-GB", "timezone_id": "Europe/Madrid", **options})
        self.contexts.append(context)
        context.add_init_script(OBSERVER)
        context.requested = []
        context.on("request", lambda request: context.requested.append(request.url))
        context.set_default_timeout(TIMEOUT_MS)
        if signed_in:
            answer = context.request.post(self.url + "/api/console/sessions", data={"key": key}, headers={"origin": self.url})
            assert answer.status == 204, (answer.status, answer.text())
        return context

    def page(self, path="", **options):
        """A page of the console that has its first data."""
        page = self.context(**options).new_page()
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        self.open(page, path)
        return page

    def open(self, page, path):
        page.goto(f"{self.url}/console/{path}")
        page.wait_for_selector("html[data-ready='1']")

    def ask(self, message, *script, conversation=None, user=1):
        """A turn without the browser: the script answers, and the result is returned."""
        self.model.script = list(script)
        status, answer, _ = self.server.chat(message, conversation, user=user)
        assert status in (200, 202), answer
        return answer

    def echo(self, value, answer="Done."):
        """A turn whose one call returns `value`."""
        return self.ask("echo please", calls((ECHO_TOOL, {"value": value})), text(answer))

    def clean(self, page):
        """The page broke no rule: no error of its script, nothing refused by the policy, no request to another host."""
        assert page.errors == [], page.errors
        violations = page.evaluate("window.__violations")
        assert violations == [], violations
        foreign = [url for url in page.context.requested if not url.startswith((self.url + "/", "data:", "blob:"))]
        assert foreign == [], foreign


def test_id(page, name, **attributes):
    """The elements with a test id, and with these data attributes."""
    more = "".join(f'[data-{key}="{value}"]' for key, value in attributes.items())
    return page.locator(f'[data-testid="{name}"]{more}')


def axe_source():
    return pathlib.Path(ROOT / "web/node_modules/axe-core/axe.min.js").read_text()


__all__ = ["ADMIN", "Console", "ECHO_TOOL", "VIEWS", "axe_source", "calls", "expect", "held", "json", "test_id", "text"]
