"""The console from outside: the printed link, the cookie of its session, hints across servers, and the pages."""
import http.client
import json
import threading
import urllib.parse

from databases import postgres_only
from server import Replica, Server, until


def request(server, method, path, headers=None, body=None):
    """(status, headers, text) without following a redirect."""
    address = urllib.parse.urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.headers, text


def printed_link(server):
    line = next(line for line in server.process.stdout if line.startswith("Console: "))
    url = line.removeprefix("Console: ").strip()
    assert url.startswith(server.url + "/console/signin?token="), url
    return url.removeprefix(server.url)


def sign_in(server):
    status, headers, _ = request(server, "GET", printed_link(server))
    assert (status, headers["location"]) == (303, "/console/"), (status, headers)
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie, cookie
    return cookie.split(";")[0]


def check_the_printed_link_signs_in_as_the_operator():
    server = Server()
    try:
        link = printed_link(server)
        status, headers, _ = request(server, "GET", link)
        cookie = headers["set-cookie"].split(";")[0]
        assert status == 303 and request(server, "GET", link)[0] == 401, "it works once"
        own = {"cookie": cookie, "sec-fetch-site": "same-origin"}
        session = json.loads(request(server, "GET", "/api/console/session", own)[2])
        assert session["operator"] and session["acting_user_id"] is None, session
        chat = {**own, "origin": server.url, "x-user-id": "3", "accept": "application/json", "content-type": "application/json"}
        status, _, text = request(server, "POST", "/api/chat", chat, json.dumps({"message": "who am I"}))
        assert status == 200, (status, text)
        foreign = {**chat, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        status, _, text = request(server, "POST", "/api/chat", foreign, json.dumps({"message": "who am I"}))
        assert (status, json.loads(text)["error"]["code"]) == (403, "foreign_origin"), (status, text)
        assert [row["n"] for row in server.rows("SELECT count(*) AS n FROM turns")] == [1]
        server.stop()
        server.start()
        assert request(server, "GET", "/api/console/session", own)[0] == 200, "a session outlives a restart"
    finally:
        server.close()


def check_a_browser_is_led_to_the_console():
    server = Server()
    try:
        status, headers, _ = request(server, "GET", "/", {"accept": "text/html"})
        assert (status, headers["location"]) == (303, "/console/"), status
        assert request(server, "GET", "/")[0] == 401
        for path in ("/console/", "/console/calls", "/docs"):
            status, headers, text = request(server, "GET", path)
            assert status == 200 and headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';"), (path, status)
            assert b"<html" in text
    finally:
        server.close()


@postgres_only
def check_a_session_and_its_hints_are_the_same_at_every_server():
    server = Server()
    other = Replica(server)
    try:
        cookie = sign_in(server)
        own = {"cookie": cookie, "sec-fetch-site": "same-origin"}
        assert request(other, "GET", "/api/console/session", own)[0] == 200
        hints, address = [], urllib.parse.urlsplit(other.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        connection.request("GET", "/api/stream", headers=own)
        answer = connection.getresponse()
        assert answer.status == 200

        def read():
            for line in answer:
                if line.startswith(b"data: "):
                    hints.append(json.loads(line[6:]))

        reader = threading.Thread(target=read)
        reader.start()
        status, done, _ = server.chat("who am I")
        assert status == 200, done
        wanted = {"kind": "turn", "id": done["turn_id"], "status": "completed"}
        until(lambda: wanted in hints, what=f"{wanted} at the other server")
        assert request(server, "DELETE", "/api/console/session", {**own, "origin": server.url})[0] == 204
        assert request(other, "GET", "/api/console/session", own)[0] == 401
        reader.join(30)
        assert not reader.is_alive(), "the stream ends with the session"
        connection.close()
    finally:
        other.close()
        server.close()
