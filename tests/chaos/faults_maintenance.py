"""The server, or a command without a server, dies while it migrates, imports, backs up, restores or erases.

Afterwards the operation is done completely or not at all, and repeating it succeeds.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import time

import points
from auditor import audit
from scenario import CrashingServer, message, until

CRATES = points.ROOT / "crates"
# (part, file): those of the kernel, then those of the modules.
MIGRATIONS = [("kernel", path) for path in sorted((CRATES / "werkruf-store/src/sqlite/migrations/kernel").glob("*.sql"))] + [
    (path.parents[2].name.removeprefix("werkruf-"), path) for path in sorted(CRATES.glob("*/migrations/sqlite/*.sql"))]
RUNNERS = ("server", "command")
# The invariants that a copy made under load must satisfy; the others need observations of the same moment.
COPY_INVARIANTS = ("I0", "I2", "I3", "I4", "I5", "I7", "I12")


def maintenance(options, model, tool, Experiment):
    experiment = Experiment("maintenance", model, tool)
    for _ in range(6 if options.full else 1):
        for do in (migrations, imports, backups, erasures):
            collect_failure(experiment, do, options)
    return [experiment]


def collect_failure(experiment, do, *rest):
    try:
        do(experiment, *rest)
    except Exception as error:
        experiment.failures.append(f"{do.__name__}: {error!r}")


class FirstStart(CrashingServer):
    """A server whose first start is prepared or crashed."""

    def __init__(self, experiment, crash=None, prepare=lambda server: None):
        self.first, self.url = (crash, prepare), "http://127.0.0.1:9"
        super().__init__(experiment.model, experiment.tool)

    def start(self, crash=None):
        if self.first:
            (crash, prepare), self.first = self.first, None
            prepare(self)
        super().start(crash)


def scalar(path, sql):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchone()[0]
    finally:
        db.close()


def count_kill(experiment, label):
    experiment.kills += 1
    return experiment.run_id(label)


# ---------------------------------------------------------------- schema


def migrations(experiment, options):
    for what, crash, older in points.MIGRATIONS:
        count_kill(experiment, what)
        server = FirstStart(experiment, crash, older_database if older else lambda server: None)
        until(server.died, 5, f"the crash {crash}")
        check_next_start(server, older, what)
    rng = random.Random(options.seed)
    count_kill(experiment, "first start killed at any moment")
    check_next_start(FirstStart(experiment, None, lambda server: kill_first_starts(server, rng)), False, "killed at any moment")


def kill_first_starts(server, rng):
    for _ in range(4):
        process = subprocess.Popen(server.arguments, env=server.env, cwd=server.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 0.12))
        process.kill()
        process.wait()


def older_database(server):
    """A database of the previous release: all migrations but the last."""
    db = sqlite3.connect(server.db)
    db.execute("CREATE TABLE schema_migrations (part TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL, PRIMARY KEY (part, number)) STRICT")
    for part, path in MIGRATIONS[:-1]:
        number, name = path.stem.split("_", 1)
        db.executescript(path.read_text())
        row = (part, int(number), name, hashlib.sha256(path.read_bytes()).hexdigest(), "2026-01-01T00:00:00.000000Z")
        db.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?, ?)", row)
    db.execute("INSERT INTO settings VALUES ('canary', 'old')")
    db.commit()
    db.close()


def check_next_start(server, older, what):
    """Checks that the next start works, with a complete schema and complete sample data."""
    known = len(MIGRATIONS)
    server.terminate()
    server.start()
    try:
        assert scalar(server.db, "SELECT count(*) FROM schema_migrations") == known, what
        assert scalar(server.db, "PRAGMA integrity_check") == "ok", what
        assert scalar(server.db, "SELECT count(*) FROM users") == 6, f"{what}: the sample data is incomplete"
        if older:
            copy = f"{server.db}.before-{known}"
            assert scalar(server.db, "SELECT value FROM settings WHERE name = 'canary'") == "old", what
            assert scalar(copy, "PRAGMA integrity_check") == "ok" and scalar(copy, "SELECT count(*) FROM schema_migrations") == known - 1, what
            assert scalar(copy, "SELECT value FROM settings WHERE name = 'canary'") == "old", what
        status, answer, _ = server.chat(message("other-new", "read"))
        assert status == 200, (what, answer)
    finally:
        server.terminate()
        server.folder.cleanup()


# ---------------------------------------------------------------- import


def run_and_crash(experiment, server, runner, crash, *arguments):
    """Runs a command that crashes, or whose server crashes."""
    if runner == "server":
        server.terminate()
        server.start(crash)
        done = server.cli(*arguments)
        until(server.died, 10, f"the crash {crash}")
        assert done.returncode != 0, (crash, done.stdout)
    else:
        server.terminate()
        done = server.cli(*arguments, env={"WERKRUF_CRASH": crash})
        assert done.returncode == -signal.SIGABRT, (crash, done.returncode, done.stderr)


def run_command(server, *arguments):
    done = server.cli(*arguments)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr, done.stdout)
    return done


def imports(experiment, options):
    server = experiment.server
    for runner in RUNNERS:
        for what, crash in points.IMPORTS:
            run = count_kill(experiment, f"{what}, by a {runner}")
            count = lambda: scalar(server.db, f"SELECT count(*) FROM requests WHERE title LIKE '{run} %'")
            first = 100_000 * experiment.runs
            rows = [{"id": first + n, "title": f"{run} {n}", "status": "open", "requester_id": 1, "branch_id": 1} for n in range(300)]
            file = os.path.join(server.folder.name, "import.json")
            pathlib.Path(file).write_text(json.dumps({"tenant": "demo", "requests": rows}))
            run_and_crash(experiment, server, runner, crash, "workspace", "import", file)
            assert count() == 0, f"{what}: {count()} rows of an import that died"
            server.terminate()
            server.start()
            run_command(server, "workspace", "import", file)
            assert count() == 300, what


# ---------------------------------------------------------------- backup and restore


def backups(experiment, options):
    server = experiment.server
    first = experiment.client("before the backup", None, effect="once", shape="three")
    first.finish()
    older = unused_path(server, "older.db")
    run_command(server, "backup", older)
    experiment.client("after the older backup", None, effect="once").finish()
    for runner in RUNNERS:
        for what, crash in points.BACKUPS:
            count_kill(experiment, f"{what}, by a {runner}")
            target = unused_path(server, "copy.db")
            run_and_crash(experiment, server, runner, crash, "backup", target)
            if crash.startswith("backup_copied"):
                assert not os.path.exists(target), "an incomplete backup has the final name"
            else:
                check_sound(target, experiment.observations())
            server.terminate()
            server.start()
            run_command(server, "backup", target, "--force")
            check_sound(target, experiment.observations())
    collect_failure(experiment, restores, older, target)
    collect_failure(experiment, restored_under_load, options)


def unused_path(server, name):
    path = os.path.join(server.folder.name, name)
    for end in ("", ".part"):
        pathlib.Path(path + end).unlink(missing_ok=True)
    return path


def check_sound(path, observations):
    # A copy may be made before a notification was sent.
    found = [what for what in audit(path, observations) if not what.startswith("I10 ")]
    assert not found, found[:3]


def restores(experiment, older, newer):
    server = experiment.server
    turns = lambda path: scalar(path, "SELECT count(*) FROM turns")
    has, expected = turns(older), turns(newer)
    assert has < expected
    for what, crash in points.RESTORES:
        count_kill(experiment, what)
        folder = pathlib.Path(server.folder.name) / f"restore-{experiment.runs}"
        folder.mkdir()
        database = str(folder / "r.db")
        run_command(server, "restore", older, "--database", "sqlite:" + database)
        restore = ["restore", newer, "--force", "--database", "sqlite:" + database]
        done = server.cli(*restore, env={"WERKRUF_CRASH": crash})
        assert done.returncode == -signal.SIGABRT, (crash, done.returncode, done.stderr)
        # A start at this moment must find one of the two databases complete.
        assert scalar(database, "PRAGMA integrity_check") == "ok", what
        assert turns(database) == (expected if crash.startswith("restore_named") else has), f"{what}: {turns(database)} turns"
        run_command(server, *restore)
        check_sound(database, experiment.observations())
        previous = sorted(folder.glob("r.db.before-restore-*"))
        assert previous and turns(previous[0]) == has and scalar(previous[0], "PRAGMA integrity_check") == "ok", (what, previous)
        left = [path.name for path in folder.iterdir() if ".restoring" in path.name]
        assert not left, left


def restored_under_load(experiment, options):
    """A copy made under load is complete, and its server sends no request that was in flight."""
    count_kill(experiment, "backup under load")
    experiment.kills -= 1
    server, copy = experiment.server, unused_path(experiment.server, "busy.db")
    with experiment.load(options.seed, "during a backup", work_ms=(0, 20, 300)):
        until(lambda: server.rows("SELECT 1 FROM tool_calls WHERE status = 'running'"), what="a running call")
        run_command(server, "backup", copy)
    other = FirstStart(experiment, None, lambda new: run_command(new, "restore", copy))
    try:
        empty = {"tool": [], "model": [], "notified": [], "whatsapp": {"inbound": [], "sent": [], "reported": []}, "clients": [], "direct": [], "labels": {}, "may_fail": {run: ["restored"] for run in experiment.labels}}
        found = [what for what in audit(other.db, empty) if what.startswith(COPY_INVARIANTS)]
        assert not found, found[:3]
        before = len(experiment.tool.requests)
        status, answer, _ = other.chat(message("other-restored", "read"))
        assert status == 200, answer
        sent = {r["run"] for r in list(experiment.tool.requests)[before:]}
        assert sent == {"other-restored"}, f"sent again after a restore: {sent}"
        assert not other.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
    finally:
        other.terminate()
        other.folder.cleanup()


# ---------------------------------------------------------------- erasure


def erasures(experiment, options):
    server = FirstStart(experiment)
    try:
        for runner in RUNNERS:
            for number, (what, crash) in enumerate(points.ERASURES):
                count_kill(experiment, f"{what}, by a {runner}")
                erase_one(experiment, server, runner, crash, 1000 + 10 * RUNNERS.index(runner) + number)
    finally:
        server.terminate()
        server.folder.cleanup()


def erase_one(experiment, server, runner, crash, user):
    canary = f"Canary{user}bird"
    server.terminate()
    server.start()
    erased_user = {"id": user, "first_name": canary, "last_name": "Erased", "email": f"{canary}@example.org", "locale": "de-DE", "branch_id": 1, "role_ids": []}
    file = os.path.join(server.folder.name, "users.json")
    pathlib.Path(file).write_text(json.dumps({"tenant": "demo", "users": [erased_user]}))
    run_command(server, "workspace", "import", file)
    os.unlink(file)
    status, answer, _ = server.chat(message(f"other-erase-{user}", "once") + f" text={canary}", user=user)
    assert status == 200, answer
    named = lambda: scalar(server.db, f"SELECT (SELECT count(*) FROM messages WHERE content LIKE '%{canary}%') + (SELECT count(*) FROM users WHERE first_name = '{canary}')")
    before = named()
    assert before >= 2, before
    run_and_crash(experiment, server, runner, crash, "people", "erase", str(user), "--tenant", "demo")
    assert named() == (0 if crash.startswith("erased") else before), f"{crash}: {named()} of {before} left"
    server.terminate()
    server.start()
    run_command(server, "people", "erase", str(user), "--tenant", "demo")
    files = [path for path in pathlib.Path(server.folder.name).iterdir() if path.name.startswith("w.db")]
    found = [path.name for path in files if canary.encode() in path.read_bytes()]
    assert not found, f"{crash}: {canary} is still in {found}"
    calls = scalar(server.db, f"SELECT count(*) FROM turns WHERE user_id = '{user}'")
    assert calls == 1, "the erased turn keeps its row"
