"""Proves that the auditor sees: each kind of damage, done to a copy of a sound database, must be named."""
import copy
import os
import shutil
import sqlite3
import tempfile

from auditor import audit

ONE = "(SELECT id FROM turns WHERE kind = 'chat' AND status = 'completed' LIMIT 1)"
DAMAGE = [
    ("I1", f"UPDATE inbox SET turn_id = 'nobody' WHERE turn_id = {ONE}"),
    ("I2", f"UPDATE turns SET status = 'acting', finished_at = NULL WHERE id = {ONE}"),
    ("I3", "UPDATE tool_calls SET started_at = NULL WHERE id = (SELECT id FROM tool_calls WHERE attempt = 1 LIMIT 1)"),
    ("I4", "DELETE FROM messages WHERE id = (SELECT id FROM messages WHERE role = 'tool' LIMIT 1)"),
    ("I5", f"DELETE FROM events WHERE type = 'final' AND turn_id = {ONE}"),
    ("I8", f"DELETE FROM api_usage WHERE turn_id = {ONE}"),
    ("I9", f"UPDATE messages SET content = 'Something else.' WHERE role = 'assistant' AND tool_calls IS NULL AND turn_id = {ONE}"),
]


def blind(path, ledger):
    """What the auditor did not see."""
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for invariant, sql in DAMAGE:
            damaged = os.path.join(folder, invariant + ".db")
            for end in ("", "-wal"):
                if os.path.exists(path + end):
                    shutil.copy(path + end, damaged + end)
            with sqlite3.connect(damaged) as db:
                changed = db.execute(sql).rowcount
            db.close()
            seen = audit(damaged, ledger)
            if changed and not any(what.startswith(invariant) for what in seen):
                missed.append(f"the auditor does not see {invariant}: {sql}")
    repeated = copy.deepcopy(ledger)
    repeated["tool"] += repeated["tool"][:1]
    if ledger["tool"] and not any(what.startswith("I6") for what in audit(path, repeated)):
        missed.append("the auditor does not see I6: a request sent once more")
    return missed
