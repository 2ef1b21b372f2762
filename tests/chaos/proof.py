"""Proves that the auditor sees: each kind of damage, done to a copy of a sound database or ledger, must be named."""
import copy
import os
import shutil
import sqlite3
import tempfile

from auditor import audit

ONE = "(SELECT id FROM turns WHERE kind = 'chat' AND status = 'completed' LIMIT 1)"
CALL = "(SELECT id FROM tool_calls WHERE attempt = 1 AND status = 'succeeded' LIMIT 1)"
SENT = "(SELECT id FROM tool_calls WHERE attempt = 1 AND effect = 'once' AND status = 'succeeded' LIMIT 1)"
TALK = "(SELECT conversation_id FROM turns WHERE kind = 'chat' LIMIT 1)"
REPLY = f"role = 'assistant' AND tool_calls IS NULL AND turn_id = {ONE}"
DAMAGE = [
    ("I0", f"INSERT INTO call_attempts VALUES ('nobody', 'nothing', 1, '', '', 'failed', '')"),
    ("I1", f"UPDATE inbox SET turn_id = 'nobody' WHERE turn_id = {ONE}"),
    ("I1", f"DELETE FROM turns WHERE id = {ONE}"),
    ("I1", f"UPDATE messages SET content = (SELECT content FROM messages WHERE role = 'user' LIMIT 1) WHERE role = 'user'"),
    ("I2", f"UPDATE turns SET status = 'acting', finished_at = NULL WHERE id = {ONE}"),
    ("I2", f"UPDATE turns SET status = 'failed', error_code = 'internal' WHERE id = {ONE}"),
    ("I2", f"UPDATE tool_calls SET status = 'running', finished_at = NULL WHERE id = {CALL}"),
    ("I2", f"UPDATE leases SET owner = 'somebody' WHERE conversation_id = {TALK}"),
    ("I3", f"UPDATE tool_calls SET started_at = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET finished_at = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET attempt = 3 WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET response = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE turns SET finished_at = NULL WHERE id = {ONE}"),
    ("I4", "DELETE FROM messages WHERE id = (SELECT id FROM messages WHERE role = 'tool' LIMIT 1)"),
    ("I4", "UPDATE messages SET tool_call_id = 'nobody' WHERE id = (SELECT id FROM messages WHERE role = 'tool' LIMIT 1)"),
    ("I5", f"DELETE FROM events WHERE type = 'final' AND turn_id = {ONE}"),
    ("I5", f"UPDATE events SET type = 'final' WHERE type = 'init' AND turn_id = {ONE}"),
    ("I5", f"UPDATE leases SET next_event_seq = next_event_seq + 1 WHERE conversation_id = {TALK}"),
    ("I5", f"UPDATE leases SET epoch = 0 WHERE conversation_id = {TALK}"),
    ("I6", f"UPDATE tool_calls SET idempotency_key = 'other' WHERE id = {CALL}"),
    ("I6", f"UPDATE tool_calls SET idempotency_key = NULL WHERE id = {CALL}"),
    ("I6", f"UPDATE tool_calls SET idempotency_key = (SELECT idempotency_key FROM tool_calls WHERE id = {CALL}) WHERE attempt = 1"),
    ("I6", f"UPDATE tool_calls SET attempt = 0, started_at = NULL WHERE id = {CALL}"),
    ("I6", f"UPDATE tool_calls SET status = 'failed', error_code = 'interrupted' WHERE id = {SENT}"),
    ("I6", f"DELETE FROM tool_calls WHERE id = {CALL}"),
    ("I7", f"DELETE FROM messages WHERE {REPLY}"),
    ("I7", f"UPDATE turns SET status = 'canceled' WHERE id = {ONE}"),
    ("I8", f"DELETE FROM api_usage WHERE turn_id = {ONE}"),
    ("I8", f"UPDATE api_usage SET tokens_total = 16 WHERE estimated = 0 AND turn_id = {ONE}"),
    ("I8", "INSERT INTO api_usage (id, tenant_id, user_id, turn_id, created_at, provider, model, operation, tokens_prompt, tokens_cached,"
           " tokens_completion, tokens_reasoning, tokens_total, estimated) SELECT n.value || api_usage.id, tenant_id, user_id, turn_id, created_at, provider,"
           " model, operation, 0, 0, 0, 0, 15, 1 FROM api_usage, json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]') n"
           f" WHERE turn_id = {ONE}"),
    ("I9", f"UPDATE messages SET content = 'Something else.' WHERE {REPLY}"),
    ("I9", f"UPDATE turns SET message = 'Something else.' WHERE id = {ONE}"),
]


def again(ledger):
    # More often than any call is attempted: an attempt that a crash ate leaves room for one.
    ledger["tool"] += ledger["tool"][:1] * 10


def unknown_call(ledger):
    ledger["tool"] += [{**ledger["tool"][0], "job_id": "nobody"}]


def twice_under_two_ids(ledger):
    once = next((r for r in ledger["tool"] if r["effect"] == "once"), None)
    ledger["tool"] += [{**once, "job_id": "nobody"}] if once else []


def never_arrived(ledger):
    ledger["tool"] = []


def other_key(ledger):
    ledger["tool"][0]["key"] = "other"


def lost_turn(ledger):
    ledger["clients"][0]["turn_id"] = "nobody"


def other_text(ledger):
    told = next(client for client in ledger["clients"] if client["text"])
    told["text"] += "!"


def heard_too_much(ledger):
    ledger["clients"][0]["heard"].append([10_000, "final"])


def asked_more(ledger):
    ledger["model"] += ledger["model"][:1] * 20


def told_otherwise(ledger):
    ledger["direct"][0]["ok"] = not ledger["direct"][0]["ok"]


# (invariant, what is done to the ledger, the part of it that must not be empty)
LIES = [("I6", again, "tool"), ("I6", unknown_call, "tool"), ("I6", twice_under_two_ids, "tool"), ("I6", never_arrived, "tool"),
        ("I6", other_key, "tool"), ("I1", lost_turn, "clients"), ("I9", other_text, "clients"), ("I5", heard_too_much, "clients"),
        ("I8", asked_more, "model"), ("I1", told_otherwise, "direct")]


# What was seen already; it need not be shown again.
SEEN = set()


def unproved():
    """Damage that no database of this run could be given."""
    return [what for _, what in DAMAGE if what not in SEEN] + [lie.__name__ for _, lie, _ in LIES if lie not in SEEN]


def blind(path, ledger):
    """What the auditor did not see."""
    missed = []
    if not unproved():
        return missed
    with tempfile.TemporaryDirectory() as folder:
        sound, damaged = os.path.join(folder, "sound.db"), os.path.join(folder, "damaged.db")
        for end in ("", "-wal"):
            if os.path.exists(path + end):
                shutil.copy(path + end, sound + end)
        fold(sound)
        for invariant, sql in (entry for entry in DAMAGE if entry[1] not in SEEN):
            shutil.copy(sound, damaged)
            if damage(damaged, sql):
                look(missed, invariant, sql, damaged, ledger)
    for invariant, lie, part in (entry for entry in LIES if entry[1] not in SEEN):
        told = copy.deepcopy(ledger)
        if told[part]:
            lie(told)
        if told != ledger:
            look(missed, invariant, lie, path, told)
    return missed


def look(missed, invariant, what, path, ledger):
    if any(violation.startswith(invariant) for violation in audit(path, ledger)):
        SEEN.add(what)
    else:
        missed.append(f"the auditor does not see {invariant}: {what}")


def fold(path):
    """One file instead of two, which can be copied as often as needed."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()


def damage(path, sql):
    """How many rows were changed; what a constraint forbids cannot happen to a real one either."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = MEMORY")
    try:
        with db:
            return db.execute(sql).rowcount
    except sqlite3.IntegrityError:
        return 0
    finally:
        db.close()
