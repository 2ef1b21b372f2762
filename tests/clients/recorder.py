"""A proxy between a client and the server that stores the request bodies of OpenAI's APIs, for tests/corpus/requests."""
import json
import pathlib
import urllib.error
import urllib.request

from fakes import FakeEndpoint, FakeServer

APIS = {"/v1/chat/completions": "chat", "/v1/responses": "responses"}


class Recorder(FakeServer):
    def __init__(self, server_url, folder):
        self.server_url, self.folder, self.client, self.numbers = server_url, pathlib.Path(folder), "", {}
        self.folder.mkdir(parents=True, exist_ok=True)

        class Endpoint(FakeEndpoint):
            def pass_on(self):
                body = self.body() or None
                if self.command == "POST":
                    self.owner.store(self.path, body)
                kept = {name: self.headers[name] for name in ("authorization", "content-type", "accept") if self.headers[name]}
                request = urllib.request.Request(self.owner.server_url + self.path, body, kept, method=self.command)
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        self.answer(answer.status, answer.read(), kind=answer.headers["content-type"])
                except urllib.error.HTTPError as error:
                    self.answer(error.code, error.read(), kind=error.headers["content-type"])
            do_GET = do_POST = do_DELETE = pass_on

        super().__init__(Endpoint)

    def store(self, path, body):
        if path in APIS:
            name = f"{APIS[path]}-{self.client}"
            self.numbers[name] = self.numbers.get(name, 0) + 1
            (self.folder / f"{name}-{self.numbers[name]}.json").write_text(json.dumps(json.loads(body), indent=1, ensure_ascii=False) + "\n")
