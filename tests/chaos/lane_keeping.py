"""The server, or a command without one, dies while it migrates, imports, backs up, restores or erases.

Afterwards there is all of it or nothing, and the same thing done again goes well.
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
from scene import Victim, message, until

MIGRATIONS = sorted((points.ROOT / "crates/werkruf-store/src/sqlite/migrations").glob("*.sql"))
DOORS = ("server", "command")
# What a copy made in the middle of everything must still hold; the rest needs a ledger of the same moment.
OF_A_COPY = ("I0", "I2", "I3", "I4", "I5", "I7")


def keeping(options, model, tool, Yard):
    yard = Yard("keep", model, tool)
    for _ in range(6 if options.full else 1):
        for do in (migrations, imports, backups, erasures):
            guarded(yard, do, options)
    return [yard]


def guarded(yard, do, *rest):
    try:
        do(yard, *rest)
    except Exception as error:
        yard.failures.append(f"{do.__name__}: {error!r}")


class Newborn(Victim):
    """A server whose very first start is interfered with."""

    def __init__(self, yard, crash=None, prepare=lambda victim: None):
        self.first, self.url = (crash, prepare), "http://127.0.0.1:9"
        super().__init__(yard.model, yard.tool)

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


def counted(yard, label):
    yard.kills += 1
    return yard.run_id(label)


# ---------------------------------------------------------------- schema


def migrations(yard, options):
    for what, crash, older in points.MIGRATIONS:
        counted(yard, what)
        victim = Newborn(yard, crash, older_database if older else lambda victim: None)
        until(victim.died, 5, f"the crash {crash}")
        settled(victim, older, what)
    dice = random.Random(options.seed)
    counted(yard, "first start killed at any moment")
    settled(Newborn(yard, None, lambda victim: kill_first_starts(victim, dice)), False, "killed at any moment")


def kill_first_starts(victim, dice):
    for _ in range(4):
        process = subprocess.Popen(victim.arguments, env=victim.env, cwd=victim.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0, 0.12))
        process.kill()
        process.wait()


def older_database(victim):
    """As the release before left it: all migrations but the last."""
    db = sqlite3.connect(victim.db)
    db.execute("CREATE TABLE schema_migrations (version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT")
    for path in MIGRATIONS[:-1]:
        version, name = path.stem.split("_", 1)
        db.executescript(path.read_text())
        row = (int(version), name, hashlib.sha256(path.read_bytes()).hexdigest(), "2026-01-01T00:00:00.000000Z")
        db.execute("INSERT INTO schema_migrations VALUES (?, ?, ?, ?)", row)
    db.execute("INSERT INTO settings VALUES ('canary', 'old')")
    db.commit()
    db.close()


def settled(victim, older, what):
    """The next start works, and nothing of the first is missing or half."""
    known = len(MIGRATIONS)
    victim.bury()
    victim.start()
    try:
        assert scalar(victim.db, "SELECT count(*) FROM schema_migrations") == known, what
        assert scalar(victim.db, "PRAGMA integrity_check") == "ok", what
        assert scalar(victim.db, "SELECT count(*) FROM users") == 6, f"{what}: the sample data is not whole"
        if older:
            copy = f"{victim.db}.before-{known}"
            assert scalar(victim.db, "SELECT value FROM settings WHERE name = 'canary'") == "old", what
            assert scalar(copy, "PRAGMA integrity_check") == "ok" and scalar(copy, "SELECT count(*) FROM schema_migrations") == known - 1, what
            assert scalar(copy, "SELECT value FROM settings WHERE name = 'canary'") == "old", what
        status, answer, _ = victim.chat(message("other-new", "read"))
        assert status == 200, (what, answer)
    finally:
        victim.bury()
        victim.folder.cleanup()


# ---------------------------------------------------------------- import


def die(yard, victim, door, crash, *arguments):
    """Runs a command that dies, or whose server does."""
    if door == "server":
        victim.bury()
        victim.start(crash)
        done = victim.cli(*arguments)
        until(victim.died, 10, f"the crash {crash}")
        assert done.returncode != 0, (crash, done.stdout)
    else:
        victim.bury()
        done = victim.cli(*arguments, env={"WERKRUF_CRASH": crash})
        assert done.returncode == -signal.SIGABRT, (crash, done.returncode, done.stderr)


def works(victim, *arguments):
    done = victim.cli(*arguments)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr, done.stdout)
    return done


def imports(yard, options):
    victim = yard.victim
    for door in DOORS:
        for what, crash in points.IMPORTS:
            run = counted(yard, f"{what}, by a {door}")
            count = lambda: scalar(victim.db, f"SELECT count(*) FROM requests WHERE title LIKE '{run} %'")
            first = 100_000 * yard.runs
            rows = [{"id": first + n, "title": f"{run} {n}", "status": "open", "requester_id": 1, "branch_id": 1} for n in range(300)]
            file = os.path.join(victim.folder.name, "import.json")
            pathlib.Path(file).write_text(json.dumps({"tenant": "demo", "requests": rows}))
            die(yard, victim, door, crash, "workspace", "import", file)
            assert count() == 0, f"{what}: {count()} rows of an import that died"
            victim.bury()
            victim.start()
            works(victim, "workspace", "import", file)
            assert count() == 300, what


# ---------------------------------------------------------------- backup and restore


def backups(yard, options):
    victim = yard.victim
    quiet = yard.client("before the backup", None, effect="once", shape="three")
    quiet.insist()
    older = fresh(victim, "older.db")
    works(victim, "backup", older)
    yard.client("after the older backup", None, effect="once").insist()
    for door in DOORS:
        for what, crash in points.BACKUPS:
            counted(yard, f"{what}, by a {door}")
            target = fresh(victim, "copy.db")
            die(yard, victim, door, crash, "backup", target)
            if crash.startswith("backup_copied"):
                assert not os.path.exists(target), "half a backup bears the name of a whole one"
            else:
                sound(target, yard.ledger())
            victim.bury()
            victim.start()
            works(victim, "backup", target, "--force")
            sound(target, yard.ledger())
    guarded(yard, restores, older, target)
    guarded(yard, restored_under_load, options)


def fresh(victim, name):
    path = os.path.join(victim.folder.name, name)
    for end in ("", ".part"):
        pathlib.Path(path + end).unlink(missing_ok=True)
    return path


def sound(path, ledger):
    found = audit(path, ledger)
    assert not found, found[:3]


def restores(yard, older, newer):
    victim = yard.victim
    turns = lambda path: scalar(path, "SELECT count(*) FROM turns")
    has, shall_have = turns(older), turns(newer)
    assert has < shall_have
    for what, crash in points.RESTORES:
        counted(yard, what)
        folder = pathlib.Path(victim.folder.name) / f"restore-{yard.runs}"
        folder.mkdir()
        database = str(folder / "r.db")
        works(victim, "restore", older, "--database", "sqlite:" + database)
        restore = ["restore", newer, "--force", "--database", "sqlite:" + database]
        done = victim.cli(*restore, env={"WERKRUF_CRASH": crash})
        assert done.returncode == -signal.SIGABRT, (crash, done.returncode, done.stderr)
        # A start at this moment must find one of the two, whole.
        assert scalar(database, "PRAGMA integrity_check") == "ok", what
        assert turns(database) == (shall_have if crash.startswith("restore_named") else has), f"{what}: {turns(database)} turns"
        works(victim, *restore)
        sound(database, yard.ledger())
        kept = sorted(folder.glob("r.db.before-restore-*"))
        assert kept and turns(kept[0]) == has and scalar(kept[0], "PRAGMA integrity_check") == "ok", (what, kept)
        left = [path.name for path in folder.iterdir() if ".restoring" in path.name]
        assert not left, left


def restored_under_load(yard, options):
    """A copy made in the middle of everything is whole, and its server sends nothing that was under way."""
    counted(yard, "backup under load")
    yard.kills -= 1
    victim, copy = yard.victim, fresh(yard.victim, "busy.db")
    with yard.talking(options.seed, "during a backup", work_ms=(0, 20, 300)):
        until(lambda: victim.rows("SELECT 1 FROM tool_calls WHERE status = 'running'"), what="something under way")
        works(victim, "backup", copy)
    other = Newborn(yard, None, lambda new: works(new, "restore", copy))
    try:
        empty = {"tool": [], "model": [], "clients": [], "direct": [], "labels": {}, "may_fail": {run: ["restored"] for run in yard.labels}}
        found = [what for what in audit(other.db, empty) if what.startswith(OF_A_COPY)]
        assert not found, found[:3]
        before = len(yard.tool.requests)
        status, answer, _ = other.chat(message("other-restored", "read"))
        assert status == 200, answer
        sent = {r["run"] for r in list(yard.tool.requests)[before:]}
        assert sent == {"other-restored"}, f"sent again after a restore: {sent}"
        assert not other.rows("SELECT 1 FROM turns WHERE finished_at IS NULL")
    finally:
        other.bury()
        other.folder.cleanup()


# ---------------------------------------------------------------- erasure


def erasures(yard, options):
    victim = Newborn(yard)
    try:
        for door in DOORS:
            for number, (what, crash) in enumerate(points.ERASURES):
                counted(yard, f"{what}, by a {door}")
                erase_one(yard, victim, door, crash, 1000 + 10 * DOORS.index(door) + number)
    finally:
        victim.bury()
        victim.folder.cleanup()


def erase_one(yard, victim, door, crash, user):
    canary = f"Canary{user}bird"
    victim.bury()
    victim.start()
    person = {"id": user, "first_name": canary, "last_name": "Erased", "email": f"{canary}@example.org", "locale": "de-DE", "branch_id": 1, "role_ids": []}
    file = os.path.join(victim.folder.name, "people.json")
    pathlib.Path(file).write_text(json.dumps({"tenant": "demo", "users": [person]}))
    works(victim, "workspace", "import", file)
    os.unlink(file)
    status, answer, _ = victim.chat(message(f"other-erase-{user}", "once") + f" word={canary}", user=user)
    assert status == 200, answer
    named = lambda: scalar(victim.db, f"SELECT (SELECT count(*) FROM messages WHERE content LIKE '%{canary}%') + (SELECT count(*) FROM users WHERE first_name = '{canary}')")
    before = named()
    assert before >= 2, before
    die(yard, victim, door, crash, "people", "erase", str(user), "--tenant", "demo")
    assert named() == (0 if crash.startswith("erased") else before), f"{crash}: {named()} of {before} left"
    victim.bury()
    victim.start()
    works(victim, "people", "erase", str(user), "--tenant", "demo")
    files = [path for path in pathlib.Path(victim.folder.name).iterdir() if path.name.startswith("w.db")]
    found = [path.name for path in files if canary.encode() in path.read_bytes()]
    assert not found, f"{crash}: {canary} is still in {found}"
    calls = scalar(victim.db, f"SELECT count(*) FROM turns WHERE user_id = '{user}'")
    assert calls == 1, "the registry keeps the ids"
