"""The client of the `auth/*` scenarios: a server that has the suite's address with `auth = "oauth"`. A person follows the link without a browser, and calls the tools.

usage: auth_driver.py URL     the suite adds the address, and sets MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT
"""
import json
import os
import pathlib
import sys
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))
from server import Server, until  # noqa: E402
from suite_tool import TOOL  # noqa: E402

# Every person has an account of their own, and a changed list of tools is seen soon.
ACCOUNTS = 'auth = "oauth"\nrefresh_s = 1\n'
# The address of the client metadata document that the suite knows.
DOCUMENT = "https://conformance-test.local/client-metadata.json"
# A person logs in again at most so often for one call.
LOGINS = 3


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def get(url, cookie=None):
    """(status, headers, text) of a page, without following redirects."""
    request = urllib.request.Request(url, headers={"cookie": cookie} if cookie else {})
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def log_in(link):
    """Opens a link and comes back; true if the account is connected."""
    _, headers, _ = get(link)
    status, headers, text = get(link + "/open", headers["set-cookie"].split(";")[0])
    if status != 303:
        print("the login does not begin:", status, text)
        return False
    cookie = headers["set-cookie"].split(";")[0]
    status, headers, text = get(headers["location"])
    if status not in (302, 303, 307):
        print("the authorization server refuses:", status, text)
        return False
    status, _, text = get(headers["location"], cookie)
    print("came back:", status)
    return status == 200


def issuer_of(url):
    """The authorization server of the suite. The suite does not tell it, so its metadata is read as an operator would read it."""
    parts = urllib.parse.urlsplit(url)
    for path in (f"/.well-known/oauth-protected-resource{parts.path}", "/.well-known/oauth-protected-resource"):
        status, _, text = get(f"{parts.scheme}://{parts.netloc}{path}")
        if status == 200:
            return json.loads(text)["authorization_servers"][0]
    raise AssertionError("the suite names no authorization server")


def settings(scenario, context, url):
    lines = []
    if scenario == "auth/basic-cimd":
        lines.append(f'client_id = "{DOCUMENT}"')
    elif context.get("client_id"):
        lines.append(f'client_id = "{context["client_id"]}"')
        if context.get("client_secret"):
            # A secret is sent to a server that the operator names only.
            lines += ['client_secret_env = "SUITE_SECRET"', f'issuer = "{issuer_of(url)}"']
    return "\n".join(lines) + "\n"


def call(server, name):
    """Calls a tool; logs in again where the server asks for it."""
    for _ in range(LOGINS):
        _, answer, _ = server.call("POST", f"/api/tools/{name}/invoke", {"input": {}})
        error = answer.get("error") or {}
        print(name, answer.get("status"), answer.get("data") or error)
        if error.get("code") != "needs_connection":
            return
        [link] = [word for word in error["message"].split() if word.startswith("http")]
        if not log_in(link):
            return


def main():
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    secret = {"SUITE_SECRET": context["client_secret"]} if context.get("client_secret") else {}
    server = Server(None, TOOL.format(url=sys.argv[-1]) + ACCOUNTS + settings(scenario, context, sys.argv[-1]), env=secret)
    try:
        def entry():
            [entry] = server.call("GET", "/api/admin/tools")[1]["servers"]
            return entry if entry["tools"] or entry["state"] == "needs_connection" else None

        # A server that does not accept the account any more, because another authorization server issues its tokens now, gets another login.
        for _ in range(LOGINS):
            status, link, _ = server.call("POST", "/api/connections", {"server": "suite"})
            assert status == 201, link
            if not log_in(link["url"]):
                sys.exit(1)
            until(lambda: server.call("GET", "/api/connections")[1]["connections"][0]["state"] != "needs_connection", what="the account")
            try:
                until(lambda: (entry() or {}).get("tools"), 8, "the tools of the server")
                break
            except AssertionError as late:
                print(late)

        names = until(entry, 25, "the tools of the server")["tools"]
        until(lambda: set(names) <= {tool["name"] for tool in server.call("GET", "/api/tools")[1]["tools"]}, what="the tools")
        for name in names:
            call(server, name)
        assert server.stop() == 0
    finally:
        if os.environ.get("DRIVER_LOG"):
            print(server.logged() if not server.log.closed else pathlib.Path(server.log.name).read_text())
        server.close()


main()
