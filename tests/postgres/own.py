"""A separate PostgreSQL for one test run: on a free port, with its own files, stopped and started at will.

PostgreSQL refuses to run as root, so root runs it as another user.
"""
import json
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Small, but as durable as in production: an acknowledged commit is on the disk.
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "max_connections": "200", "shared_buffers": "64MB", "log_min_messages": "fatal"}


def find_programs():
    """The folder of the programs and the user who runs them: those of the scripts beside this file, else the system's."""
    common = pathlib.Path(__file__).with_name("common")
    output = subprocess.run(["bash", "-c", f'source "{common}"; echo "$programs"; echo "${{owner:-}}"'], capture_output=True, text=True)
    programs, owner = output.stdout.splitlines() if output.returncode == 0 else ("", "")
    found = [pathlib.Path(programs)] if programs and os.access(f"{programs}/pg_ctl", os.X_OK) else []
    found += [one.parent for one in sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), reverse=True)]
    if not found:
        raise SystemExit("no PostgreSQL here: run tests/postgres/up, which installs one")
    return found[0], owner


class Postgres:
    def __init__(self):
        self.bin, owner = find_programs()
        self.as_user = ["runuser", "-u", owner, "--"] if owner else []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="werkruf-postgres-"))
        self.data = self.folder / "data"
        if owner:
            user = pwd.getpwnam(owner)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"
        self.start()

    def run(self, program, *arguments, check=True):
        done = subprocess.run([*self.as_user, str(self.bin / program), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True, cwd="/")
        if check and done.returncode:
            raise AssertionError(f"{program}: {done.stderr[-1000:]}")

    def start(self):
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= {settings}"
        self.run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-t", 60, "-o", options, "start")

    def stop(self, mode="fast"):
        """`fast` closes all connections, `immediate` is a crash."""
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", 60, "stop")

    def rows(self, sql, schema="werkruf"):
        """Rows as SQLite returns them: JSON as text, booleans as numbers."""
        query = f"SELECT coalesce(json_agg(row_to_json(q)), '[]') FROM ({sql}) q"
        done = subprocess.run([str(self.bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.url, "-f", "-"], capture_output=True, text=True,
                              input=f"SET search_path TO {schema}; SET ROLE werkruf_operator; {query};", cwd="/")
        if done.returncode:
            raise AssertionError(f"{sql}: {done.stderr[-1000:]}")
        return [{name: plain(value) for name, value in row.items()} for row in json.loads(done.stdout)]

    def close(self):
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def plain(value):
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value) if isinstance(value, (dict, list)) else value
