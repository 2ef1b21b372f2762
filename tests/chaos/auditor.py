#!/usr/bin/env python3
"""Compares the database with what clients, tool and model observed, after any number of crashes.

usage: auditor.py DB OBSERVATIONS.json      exit 1 on violations (DB is an SQLite file; faults_cluster.py audits PostgreSQL itself)

The observations: {"tool": [{"run", "n", "round", "effect", "job_id", "key", "turn_id"}], one per request that reached the tool,
"model": [{"run"}], one per request that reached the model, "notified": [{"id", "turn_id", "body", "signed"}] of the webhook, "clients": [{"run", "key", "turn_id", "text", "received", "canceled"}] of chats,
"whatsapp": {"inbound": [{"id", "from", "approval", "stored"}] that Meta delivered, "sent": [{"id", "row", "to", "account", "text"}] that its API accepted, "reported": [{"id", "status"}]},
"direct": [{"run", "key", "job_id", "ok"}] of tools called without a model, "labels": {run: its fault}, "may_fail": {run: codes its turn may end with}}.
The message of a run contains its name as `run=NAME`, and so do the arguments of its calls.

The invariants and the methods that check them (`proof.py` damages a sound database at least once for each):
  I0 the database file is undamaged                                      sound_file
  I1 one turn per inbound key, no acknowledged turn is lost              one_turn_per_key
  I2 every turn and call has ended, every lease is released              all_ended
  I3 every row is the result of legal transitions                        legal_rows
  I4 the history is valid for a provider                                 valid_history
  I5 numbers without gaps, epochs that only grow, one init and one final or error per turn, no event received that is not stored
                                                                         numbering
  I6 a once call is sent at most once, every attempt of a call under its one key, nothing sent without a record
                                                                         effects
  I7 one reply per completed turn and none for others
                                                                         replies
  I8 every model request has a usage row, with only as many extra rows as crashes explain; reported tokens are those of the model
                                                                         usage_rows
  I9 clients received the stored text                                    texts
  I10 every ended turn is told to the program exactly once, or again with the same bytes; in order per conversation
                                                                         notifications
  I11 every WhatsApp message is stored once and answered once, in order, at most twice if marked; every report is applied
                                                                         auditor_whatsapp.py
  I12 every counter of a budget is the sum of its usage rows and reservations; a turn that has ended reserves nothing
                                                                         auditor_budgets.py
"""
import collections
import json
import re
import sqlite3
import sys

import auditor_budgets
import auditor_whatsapp

TERMINAL = ("completed", "failed", "canceled")
# The total tokens that the fake model reports for each response.
TOKENS = 15
CALL_TERMINAL = ("succeeded", "failed", "timeout", "canceled")


class Audit:
    def __init__(self, read, broken, observations):
        self.observations, self.violations, self.broken = observations, [], broken
        self.turns = {t["id"]: t for t in read("SELECT * FROM turns")}
        self.calls = {c["id"]: c for c in read("SELECT * FROM tool_calls")}
        self.messages = read("SELECT * FROM messages ORDER BY conversation_id, seq")
        self.events = read("SELECT * FROM events ORDER BY conversation_id, seq")
        self.inbox = read("SELECT * FROM inbox")
        self.leases = read("SELECT * FROM leases")
        self.attempts = group(read("SELECT * FROM call_attempts ORDER BY attempt"), "call_id")
        self.usage = group(read("SELECT * FROM api_usage"), "turn_id")
        self.outbox = read("SELECT * FROM outbox ORDER BY id")
        self.approvals = read("SELECT * FROM approvals")
        self.budgets = [read(f"SELECT * FROM {table}") for table in ("budgets", "budget_periods", "budget_reservations")]
        self.runs = {}
        for message in self.messages:
            found = message["role"] == "user" and re.search(r"run=(\S+)", message["content"])
            if found:
                self.runs.setdefault(found[1], []).append(message["turn_id"])
        self.run_of = {c["turn_id"]: json.loads(c["request"]).get("run") for c in self.calls.values() if c["request"]}
        self.run_of.update({turn: run for run, turns in self.runs.items() for turn in turns})

    def report(self, invariant, turn, what):
        run = self.run_of.get(turn, "") if turn else ""
        self.violations.append(f"{invariant} {what} [turn {turn or '-'}, {self.observations['labels'].get(run, run) or 'no run'}]")

    def all(self):
        for check in (self.sound_file, self.one_turn_per_key, self.all_ended, self.legal_rows, self.valid_history, self.numbering,
                      self.effects, self.replies, self.usage_rows, self.texts, self.notifications):
            check()
        auditor_whatsapp.check(self, self.outbox, self.approvals)
        auditor_budgets.check(self, *self.budgets)
        return self.violations

    def sound_file(self):
        if self.broken != ["ok"]:
            self.report("I0", "", f"the file is damaged: {self.broken[:3]}")

    def one_turn_per_key(self):
        for run, turns in self.runs.items():
            if len(turns) != 1:
                self.report("I1", turns[0], f"{run} was stored {len(turns)} times")
        known = collections.Counter(entry["turn_id"] for entry in self.inbox)
        for turn in self.turns.values():
            if known[turn["id"]] != 1:
                self.report("I1", turn["id"], f"{known[turn['id']]} inbox rows name the turn")
        for client in self.observations["clients"]:
            if client["turn_id"] not in self.turns:
                self.report("I1", client["turn_id"], f"acknowledged {client['run']} is lost")
        for client in self.observations["direct"]:
            call = self.calls.get(client["job_id"])
            if call is None or client["ok"] != (call["status"] == "succeeded"):
                self.report("I1", call and call["turn_id"], f"{client['run']} was answered ok={client['ok']}, stored is {call and call['status']}")

    def all_ended(self):
        may_fail = self.observations.get("may_fail", {})
        unknown = collections.Counter(c["turn_id"] for c in self.calls.values() if (c["effect"], c["error_code"]) == ("once", "outcome_unknown"))
        canceled = {client["turn_id"] for client in self.observations["clients"] if client.get("canceled")}
        for turn in self.turns.values():
            if turn["partial"] is not None:
                self.report("I2", turn["id"], "the partial text was not deleted")
            if turn["status"] not in TERMINAL:
                self.report("I2", turn["id"], f"the turn is still {turn['status']}")
            elif (turn["status"] == "canceled") != (turn["id"] in canceled):
                self.report("I2", turn["id"], f"canceled by the client: {turn['id'] in canceled}, but it ended {turn['status']}")
            elif turn["status"] not in ("completed", "canceled") and turn["error_code"] not in ("poison", *may_fail.get(self.run_of.get(turn["id"]), ())) \
                    and not (turn["kind"] == "invoke" and unknown[turn["id"]]):
                self.report("I2", turn["id"], f"the turn ended {turn['status']}: {turn['error']}")
        for call in self.calls.values():
            if call["status"] not in CALL_TERMINAL:
                self.report("I2", call["turn_id"], f"call {call['id']} is still {call['status']}")
        for lease in self.leases:
            if lease["owner"]:
                self.report("I2", "", f"the lease of {lease['conversation_id']} is still held")

    def legal_rows(self):
        for turn in self.turns.values():
            if (turn["status"] in TERMINAL) != bool(turn["finished_at"]):
                self.report("I3", turn["id"], f"{turn['status']} with finished_at {turn['finished_at']}")
        for call in self.calls.values():
            where = f"call {call['id']} ({call['status']}, attempt {call['attempt']})"
            if (call["status"] in CALL_TERMINAL) != bool(call["finished_at"]):
                self.report("I3", call["turn_id"], f"{where} has finished_at {call['finished_at']}")
            if (call["attempt"] == 0) != (call["started_at"] is None):
                self.report("I3", call["turn_id"], f"{where} has started_at {call['started_at']}")
            earlier = [a["attempt"] for a in self.attempts.get(call["id"], [])]
            if earlier != list(range(1, max(call["attempt"], 1))):
                self.report("I3", call["turn_id"], f"{where} has earlier attempts {earlier}")
            if call["status"] == "succeeded" and call["response"] is None:
                self.report("I3", call["turn_id"], f"{where} has no response")

    def valid_history(self):
        for conversation, messages in group(self.messages, "conversation_id").items():
            open_ids = []
            for message in messages:
                turn = message["turn_id"]
                if message["role"] == "tool":
                    if message["tool_call_id"] not in open_ids:
                        self.report("I4", turn, f"a result answers no call: {message['tool_call_id']}")
                    else:
                        open_ids.remove(message["tool_call_id"])
                    continue
                if open_ids:
                    self.report("I4", turn, f"calls without result before seq {message['seq']}: {open_ids}")
                open_ids = [call["id"] for call in json.loads(message["tool_calls"] or "[]")]
            if open_ids:
                self.report("I4", messages[-1]["turn_id"], f"calls without result at the end: {open_ids}")

    def numbering(self):
        for rows, what in ((self.events, "events"), (self.messages, "messages")):
            for conversation, of in group(rows, "conversation_id").items():
                # A message canceled in the queue gets its number with the next turn.
                numbers = [row["seq"] for row in of if row["seq"] is not None or self.turns[row["turn_id"]]["status"] != "canceled"]
                if numbers != list(range(1, len(numbers) + 1)):
                    self.report("I5", of[-1]["turn_id"], f"{what} of {conversation} are numbered {numbers}")
        ends = collections.Counter(e["turn_id"] for e in self.events if e["type"] in ("final", "error"))
        begins = collections.Counter(e["turn_id"] for e in self.events if e["type"] == "init")
        for turn in self.turns.values():
            if turn["kind"] == "chat" and (begins[turn["id"]], ends[turn["id"]]) != (1, 1):
                self.report("I5", turn["id"], f"{begins[turn['id']]} init and {ends[turn['id']]} final or error")
        self.lease_counters()
        stored = {(e["conversation_id"], e["seq"]): (e["type"], e["turn_id"]) for e in self.events}
        for client in self.observations["clients"]:
            for seq, kind in client["received"]:
                if stored.get((client["conversation_id"], seq), ("nothing",))[0] != kind:
                    self.report("I5", client["turn_id"], f"event {seq} {kind} was received but is not stored")

    def lease_counters(self):
        """A lease continues the stored numbers, and was claimed at least once for every started turn and every takeover."""
        events, messages = group(self.events, "conversation_id"), group(self.messages, "conversation_id")
        claims = collections.Counter()
        for turn in filter(began, self.turns.values()):
            claims[turn["conversation_id"] or turn["id"]] += 1 + turn["takeovers"]
        for lease in self.leases:
            stream = lease["conversation_id"]
            placed = [m for m in messages[stream] if m["seq"] is not None]
            next_numbers = (len(events[stream]) + 1, len(placed) + 1)
            if (lease["next_event_seq"], lease["next_message_seq"]) != next_numbers:
                self.report("I5", "", f"the lease of {stream} continues from {lease['next_event_seq']} and {lease['next_message_seq']}, not {next_numbers}")
            if lease["epoch"] < claims[stream]:
                self.report("I5", "", f"the lease of {stream} has epoch {lease['epoch']} after {claims[stream]} claims")

    def effects(self):
        sent = group(self.observations["tool"], "job_id")
        for job, requests in sent.items():
            call = self.calls.get(job)
            turn = requests[0]["turn_id"]
            if call is None:
                self.report("I6", turn, f"a request has job_id {job}, which is no call")
                continue
            if {r["key"] for r in requests} != {call["idempotency_key"]}:
                self.report("I6", turn, f"call {job} was sent with keys {sorted({r['key'] for r in requests})}")
            if len(requests) > call["attempt"]:
                self.report("I6", turn, f"call {job} was sent {len(requests)} times in {call['attempt']} attempts")
        keys = collections.Counter(c["idempotency_key"] for c in self.calls.values() if c["idempotency_key"])
        for key in (key for key, count in keys.items() if count > 1):
            self.report("I6", "", f"key {key} belongs to {keys[key]} calls")
        # The tools of keywords are the server's own.
        for call in (call for call in self.calls.values() if call["tool_name"].startswith("chaos_")):
            reached = len(sent.get(call["id"], []))
            shared = call["dedupe_of"] is not None
            if call["effect"] == "once":
                if reached > 1:
                    self.report("I6", call["turn_id"], f"once call {call['id']} was sent {reached} times")
                if reached and call["status"] != "succeeded" and call["error_code"] != "outcome_unknown":
                    self.report("I6", call["turn_id"], f"once call {call['id']} was sent and ended {call['status']} {call['error_code']}")
            if call["status"] == "succeeded" and not reached and not shared:
                self.report("I6", call["turn_id"], f"call {call['id']} succeeded but never reached the tool")
            if call["effect"] != "once" and call["status"] != "succeeded" and self.turns[call["turn_id"]]["status"] == "completed":
                self.report("I6", call["turn_id"], f"{call['effect']} call {call['id']} ended {call['status']} {call['error_code']}")
        same = collections.defaultdict(set)
        for request in self.observations["tool"]:
            if request["effect"] == "once":
                same[request["run"], request["n"], request["round"]].add(request["job_id"])
        turn_of = {run: turn for turn, run in self.run_of.items()}
        for (run, n, _), jobs in same.items():
            if len(jobs) > 1:
                self.report("I6", turn_of.get(run), f"the same once call (n={n}) was sent under {len(jobs)} ids: {sorted(jobs)}")

    def replies(self):
        replies = collections.Counter(m["turn_id"] for m in self.messages if m["role"] == "assistant" and not m["tool_calls"])
        for turn in self.turns.values():
            wanted = int(turn["kind"] == "chat" and turn["status"] == "completed")
            if replies[turn["id"]] != wanted:
                self.report("I7", turn["id"], f"{replies[turn['id']]} replies to a {turn['kind']} that is {turn['status']}")

    def usage_rows(self):
        requested, extra = collections.Counter(r["run"] for r in self.observations["model"]), collections.Counter()
        for run, turns in self.runs.items():
            rows = [row for turn in turns for row in self.usage[turn]]
            if len(rows) < requested[run]:
                self.report("I8", turns[0], f"{requested[run]} model requests, {len(rows)} usage rows")
            extra[self.turns.get(turns[0], {}).get("conversation_id")] += len(rows) - requested[run]
            reported = [row["tokens_total"] for row in rows if not row["estimated"]]
            if len(reported) > requested[run] or any(tokens != TOKENS for tokens in reported):
                self.report("I8", turns[0], f"{requested[run]} model requests, reported as {reported}")
        # A replica that resumes a turn writes one usage row for a model request that may have been sent; it claimed the lease once more.
        started = collections.Counter(turn["conversation_id"] for turn in self.turns.values() if began(turn))
        for lease in self.leases:
            stream = lease["conversation_id"]
            if extra[stream] > lease["epoch"] - started[stream]:
                self.report("I8", "", f"{extra[stream]} usage rows too many in {stream}, {lease['epoch']} claims for {started[stream]} turns")

    def texts(self):
        last = {m["turn_id"]: m["content"] for m in self.messages if m["role"] == "assistant" and not m["tool_calls"]}
        for client in self.observations["clients"]:
            turn = self.turns.get(client["turn_id"])
            if turn is None or turn["status"] != "completed":
                continue
            if not client["text"] == turn["message"] == last.get(turn["id"]):
                self.report("I9", turn["id"], f"received {client['text']!r}, stored {turn['message']!r} and {last.get(turn['id'])!r}")

    def notifications(self):
        received = group((one for one in self.observations["notified"] if one["turn_id"] in self.turns), "turn_id")
        told = group((row for row in self.outbox if row["channel"] == "webhook"), "turn_id")
        for turn in self.turns.values():
            rows = told[turn["id"]]
            # A restore ends turns without telling anybody, and holds what was not sent.
            if turn["status"] not in TERMINAL or turn["error_code"] == "restored" or any(row["status"] == "held" for row in rows):
                continue
            if [row["status"] for row in rows] != ["sent"]:
                self.report("I10", turn["id"], f"its notifications are {[row['status'] for row in rows]}")
                continue
            if {one["id"] for one in received[turn["id"]]} != {rows[0]["id"]}:
                self.report("I10", turn["id"], f"{rows[0]['id']} was not received, or another one was: {received[turn['id']]}")
            if len({one["body"] for one in received[turn["id"]]}) > 1 or not all(one["signed"] for one in received[turn["id"]]):
                self.report("I10", turn["id"], "a repetition has other bytes, or a signature is wrong")
        last = {}
        for one in self.observations["notified"]:
            conversation = self.turns.get(one["turn_id"], {}).get("conversation_id")
            if conversation and one["id"] < last.get(conversation, ""):
                self.report("I10", one["turn_id"], "it was told after a later one of the conversation")
            last[conversation] = max(last.get(conversation, ""), one["id"])


def began(turn):
    """A turn that was canceled in the queue never held the lease."""
    return turn["status"] != "canceled" or turn["step"] > 0


def group(rows, by):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return groups


def audit(path, observations):
    """Audits an SQLite file."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        broken = [row[0] for row in db.execute("PRAGMA integrity_check")]
        broken += [f"{row[0]} refers to a missing row of {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]
        violations = Audit(lambda sql: [dict(row) for row in db.execute(sql)], broken, observations).all()
    db.close()
    return violations


def audit_rows(read, observations):
    """Audits a database without files to check; `read` runs a query and returns its rows."""
    return Audit(read, ["ok"], observations).all()


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        violations = audit(sys.argv[1], json.load(file))
    print("\n".join(violations) or "no violations")
    sys.exit(1 if violations else 0)
