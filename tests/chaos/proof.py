"""Proves that the auditor detects each kind of damage, done to a copy of a sound database or of sound observations."""
import copy
import os
import shutil
import sqlite3
import tempfile

import proof_whatsapp
from auditor import audit

ONE = "(SELECT id FROM turns WHERE kind = 'chat' AND status = 'completed' LIMIT 1)"
CALL = "(SELECT id FROM tool_calls WHERE attempt = 1 AND status = 'succeeded' LIMIT 1)"
SENT = "(SELECT id FROM tool_calls WHERE attempt = 1 AND effect = 'once' AND status = 'succeeded' LIMIT 1)"
CONVERSATION = "(SELECT conversation_id FROM turns WHERE kind = 'chat' LIMIT 1)"
# A budget for the cost of all model requests, with a counter that has used and reserved this much more than the rows say.
COUNTER = ("INSERT INTO budgets (tenant_id, id, scope, subject, period, unit, max_amount, configured, created_at) SELECT tenant_id, 'b', 'tenant', NULL, 'month', 'nano_usd', 9, 0, '' FROM api_usage LIMIT 1;"
           " INSERT INTO budget_periods (tenant_id, budget_id, subject, period_start, used, reserved)"
           " SELECT tenant_id, 'b', '', substr(created_at, 1, 8) || '01', coalesce(sum(cost_nano_usd), 0) + %d, %d FROM api_usage GROUP BY 1, 4 LIMIT 1")
REPLY = f"role = 'assistant' AND tool_calls IS NULL AND turn_id = {ONE}"
DAMAGE = [
    ("I0", f"INSERT INTO call_attempts VALUES ('unknown', 'nothing', 1, '', '', 'failed', '')"),
    ("I1", f"UPDATE inbox SET turn_id = 'unknown' WHERE turn_id = {ONE}"),
    ("I1", f"DELETE FROM turns WHERE id = {ONE}"),
    ("I1", f"UPDATE messages SET content = (SELECT content FROM messages WHERE role = 'user' LIMIT 1) WHERE role = 'user'"),
    ("I2", f"UPDATE turns SET status = 'acting', finished_at = NULL WHERE id = {ONE}"),
    ("I2", f"UPDATE turns SET status = 'failed', error_code = 'internal' WHERE id = {ONE}"),
    ("I2", f"UPDATE tool_calls SET status = 'running', finished_at = NULL WHERE id = {CALL}"),
    ("I2", f"UPDATE leases SET owner = 'other' WHERE conversation_id = {CONVERSATION}"),
    ("I3", f"UPDATE tool_calls SET started_at = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET finished_at = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET attempt = 3 WHERE id = {CALL}"),
    ("I3", f"UPDATE tool_calls SET response = NULL WHERE id = {CALL}"),
    ("I3", f"UPDATE turns SET finished_at = NULL WHERE id = {ONE}"),
    ("I4", "DELETE FROM messages WHERE id = (SELECT id FROM messages WHERE role = 'tool' LIMIT 1)"),
    ("I4", "UPDATE messages SET tool_call_id = 'unknown' WHERE id = (SELECT id FROM messages WHERE role = 'tool' LIMIT 1)"),
    ("I5", f"DELETE FROM events WHERE type = 'final' AND turn_id = {ONE}"),
    ("I5", f"UPDATE events SET type = 'final' WHERE type = 'init' AND turn_id = {ONE}"),
    ("I5", f"UPDATE leases SET next_event_seq = next_event_seq + 1 WHERE conversation_id = {CONVERSATION}"),
    ("I5", f"UPDATE leases SET epoch = 0 WHERE conversation_id = {CONVERSATION}"),
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
    ("I10", f"DELETE FROM outbox WHERE turn_id = {ONE}"),
    ("I10", f"UPDATE outbox SET status = 'dead' WHERE turn_id = {ONE}"),
    ("I12", COUNTER % (1, 0)),
    ("I12", COUNTER % (0, 1)),
    ("I12", COUNTER % (0, 0) + "; INSERT INTO budget_reservations SELECT tenant_id, 'r', 'b', '', period_start, 1, NULL, '' FROM budget_periods WHERE budget_id = 'b'"),
    ("I12", f"INSERT INTO budget_reservations SELECT tenant_id, 'r', 'b', '', '', 0, id, '' FROM turns WHERE id = {ONE}"),
    *proof_whatsapp.DAMAGE,
]


def sent_again(observations):
    # More requests than any call has attempts: an attempt that was lost in a crash would hide one more request.
    observations["tool"] += observations["tool"][:1] * 10


def unknown_call(observations):
    observations["tool"] += [{**observations["tool"][0], "job_id": "unknown"}]


def twice_under_two_ids(observations):
    once = next((r for r in observations["tool"] if r["effect"] == "once"), None)
    observations["tool"] += [{**once, "job_id": "unknown"}] if once else []


def never_arrived(observations):
    observations["tool"] = []


def other_key(observations):
    observations["tool"][0]["key"] = "other"


def lost_turn(observations):
    observations["clients"][0]["turn_id"] = "unknown"


def other_text(observations):
    client = next(client for client in observations["clients"] if client["text"])
    client["text"] += "!"


def received_too_much(observations):
    observations["clients"][0]["received"].append([10_000, "final"])


def more_model_requests(observations):
    observations["model"] += observations["model"][:1] * 20


def never_told(observations):
    observations["notified"] = []


def told_otherwise(observations):
    observations["notified"] += [{**one, "body": one["body"] + " "} for one in observations["notified"]]


def told_out_of_order(observations):
    observations["notified"].reverse()


def other_outcome(observations):
    observations["direct"][0]["ok"] = not observations["direct"][0]["ok"]


# (invariant, the change of the observations, the part of them that must not be empty)
FALSE_OBSERVATIONS = [("I6", sent_again, "tool"), ("I6", unknown_call, "tool"), ("I6", twice_under_two_ids, "tool"), ("I6", never_arrived, "tool"),
        ("I6", other_key, "tool"), ("I1", lost_turn, "clients"), ("I9", other_text, "clients"), ("I5", received_too_much, "clients"),
        ("I8", more_model_requests, "model"), ("I10", never_told, "notified"), ("I10", told_otherwise, "notified"), ("I10", told_out_of_order, "notified"), ("I1", other_outcome, "direct"),
        *proof_whatsapp.FALSE_OBSERVATIONS]


# Damage that was detected already and need not be tried again.
DETECTED = set()


def unproved():
    """Damage that has not been detected yet, because no database of this run could be given it."""
    return [what for _, what in DAMAGE if what not in DETECTED] + [falsify.__name__ for _, falsify, _ in FALSE_OBSERVATIONS if falsify not in DETECTED]


def undetected(path, observations):
    """Damage that the auditor did not detect."""
    missed = []
    if not unproved():
        return missed
    # The other damage is done to turns of the API.
    over_whatsapp = bool(observations["whatsapp"]["inbound"])
    fits = lambda entry: entry[1] not in DETECTED and (entry[0] == "I11") == over_whatsapp
    with tempfile.TemporaryDirectory() as folder:
        sound, damaged = os.path.join(folder, "sound.db"), os.path.join(folder, "damaged.db")
        for end in ("", "-wal"):
            if os.path.exists(path + end):
                shutil.copy(path + end, sound + end)
        to_one_file(sound)
        for invariant, sql in filter(fits, DAMAGE):
            shutil.copy(sound, damaged)
            if damage(damaged, sql):
                expect_detection(missed, invariant, sql, damaged, observations)
    for invariant, falsify, part in filter(fits, FALSE_OBSERVATIONS):
        changed = copy.deepcopy(observations)
        if changed[part]:
            falsify(changed)
        if changed != observations:
            expect_detection(missed, invariant, falsify, path, changed)
    return missed


def expect_detection(missed, invariant, what, path, observations):
    if any(violation.startswith(invariant + " ") for violation in audit(path, observations)):
        DETECTED.add(what)
    else:
        missed.append(f"the auditor does not detect {invariant}: {what}")


def to_one_file(path):
    """Merges the write-ahead log into the database, so that one file can be copied."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()


def damage(path, sql):
    """Changes the database; returns the number of rows that the last statement changed. Damage that a constraint forbids cannot happen to a real database."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = MEMORY")
    try:
        with db:
            return [db.execute(statement).rowcount for statement in sql.split("; ")][-1]
    except sqlite3.IntegrityError:
        return 0
    finally:
        db.close()
