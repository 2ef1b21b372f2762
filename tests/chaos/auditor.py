#!/usr/bin/env python3
"""Compares what is stored with what the outside saw, after any number of crashes.

usage: auditor.py DB LEDGER.json      exit 1 on violations (DB is an SQLite file; PostgreSQL is read by the lane that made it)

The ledger: {"tool": [{"run", "n", "round", "effect", "job_id", "key", "turn_id"}], one per request that reached the tool,
"model": [{"run"}], one per request that reached the model, "clients": [{"run", "key", "turn_id", "text", "heard", "canceled"}] of chats,
"direct": [{"run", "key", "job_id", "ok"}] of tools called without a model, "labels": {run: what was done to it}, "may_fail": {run: codes its turn may end with}}.
A run's name stands in its message as `run=NAME`, and in the arguments of its calls.

What is checked, and where (`proof.py` damages a sound database once for each, and more):
  I0 the file itself                                                     sound_file
  I1 one turn per inbound key, none that was acknowledged is lost        one_turn_per_key
  I2 every turn, call and lease has come to its end                      all_ended
  I3 rows only as legal transitions leave them                           legal_rows
  I4 the history is valid for a provider                                 valid_history
  I5 numbers without holes, epochs that only grow, one beginning and one end per turn, nothing heard that is not stored
                                                                         whole_numbers
  I6 a once call is sent at most once, every attempt of a call under its one key, nothing sent without a record
                                                                         effects
  I7 one reply per answered turn, none for another
                                                                         replies
  I8 every model request is on the bill, and no more than crashes explain; reported tokens are what the model said
                                                                         bills
  I9 what clients heard is what is stored                                texts
"""
import collections
import json
import re
import sqlite3
import sys

TERMINAL = ("completed", "failed", "canceled")
# What the model says that an answer cost.
TOKENS = 15
CALL_TERMINAL = ("succeeded", "failed", "timeout", "canceled")


class Audit:
    def __init__(self, read, broken, ledger):
        self.ledger, self.violations, self.broken = ledger, [], broken
        self.turns = {t["id"]: t for t in read("SELECT * FROM turns")}
        self.calls = {c["id"]: c for c in read("SELECT * FROM tool_calls")}
        self.messages = read("SELECT * FROM messages ORDER BY conversation_id, seq")
        self.events = read("SELECT * FROM events ORDER BY conversation_id, seq")
        self.inbox = read("SELECT * FROM inbox")
        self.leases = read("SELECT * FROM leases")
        self.attempts = group(read("SELECT * FROM call_attempts ORDER BY attempt"), "call_id")
        self.usage = group(read("SELECT * FROM api_usage"), "turn_id")
        self.runs = {}
        for message in self.messages:
            found = message["role"] == "user" and re.search(r"run=(\S+)", message["content"])
            if found:
                self.runs.setdefault(found[1], []).append(message["turn_id"])
        self.run_of = {c["turn_id"]: json.loads(c["request"])["run"] for c in self.calls.values() if c["request"]}
        self.run_of.update({turn: run for run, turns in self.runs.items() for turn in turns})

    def say(self, invariant, turn, what):
        run = self.run_of.get(turn, "") if turn else ""
        self.violations.append(f"{invariant} {what} [turn {turn or '-'}, {self.ledger['labels'].get(run, run) or 'no run'}]")

    def all(self):
        for check in (self.sound_file, self.one_turn_per_key, self.all_ended, self.legal_rows, self.valid_history, self.whole_numbers,
                      self.effects, self.replies, self.bills, self.texts):
            check()
        return self.violations

    def sound_file(self):
        if self.broken != ["ok"]:
            self.say("I0", "", f"the file is damaged: {self.broken[:3]}")

    def one_turn_per_key(self):
        for run, turns in self.runs.items():
            if len(turns) != 1:
                self.say("I1", turns[0], f"{run} was stored {len(turns)} times")
        known = collections.Counter(entry["turn_id"] for entry in self.inbox)
        for turn in self.turns.values():
            if known[turn["id"]] != 1:
                self.say("I1", turn["id"], f"{known[turn['id']]} keys lead to the turn")
        for client in self.ledger["clients"]:
            if client["turn_id"] not in self.turns:
                self.say("I1", client["turn_id"], f"acknowledged {client['run']} is lost")
        for client in self.ledger["direct"]:
            call = self.calls.get(client["job_id"])
            if call is None or client["ok"] != (call["status"] == "succeeded"):
                self.say("I1", call and call["turn_id"], f"{client['run']} was answered ok={client['ok']}, stored is {call and call['status']}")

    def all_ended(self):
        may_fail = self.ledger.get("may_fail", {})
        unknown = collections.Counter(c["turn_id"] for c in self.calls.values() if (c["effect"], c["error_code"]) == ("once", "outcome_unknown"))
        canceled = {client["turn_id"] for client in self.ledger["clients"] if client.get("canceled")}
        for turn in self.turns.values():
            if turn["partial"] is not None:
                self.say("I2", turn["id"], "the text so far was left behind")
            if turn["status"] not in TERMINAL:
                self.say("I2", turn["id"], f"the turn is still {turn['status']}")
            elif (turn["status"] == "canceled") != (turn["id"] in canceled):
                self.say("I2", turn["id"], f"canceled by the client: {turn['id'] in canceled}, but it ended {turn['status']}")
            elif turn["status"] not in ("completed", "canceled") and turn["error_code"] not in ("poison", *may_fail.get(self.run_of.get(turn["id"]), ())) \
                    and not (turn["kind"] == "invoke" and unknown[turn["id"]]):
                self.say("I2", turn["id"], f"the turn ended {turn['status']}: {turn['error']}")
        for call in self.calls.values():
            if call["status"] not in CALL_TERMINAL:
                self.say("I2", call["turn_id"], f"call {call['id']} is still {call['status']}")
        for lease in self.leases:
            if lease["owner"]:
                self.say("I2", "", f"the lease of {lease['conversation_id']} is still held")

    def legal_rows(self):
        for turn in self.turns.values():
            if (turn["status"] in TERMINAL) != bool(turn["finished_at"]):
                self.say("I3", turn["id"], f"{turn['status']} with finished_at {turn['finished_at']}")
        for call in self.calls.values():
            where = f"call {call['id']} ({call['status']}, attempt {call['attempt']})"
            if (call["status"] in CALL_TERMINAL) != bool(call["finished_at"]):
                self.say("I3", call["turn_id"], f"{where} has finished_at {call['finished_at']}")
            if (call["attempt"] == 0) != (call["started_at"] is None):
                self.say("I3", call["turn_id"], f"{where} has started_at {call['started_at']}")
            earlier = [a["attempt"] for a in self.attempts.get(call["id"], [])]
            if earlier != list(range(1, max(call["attempt"], 1))):
                self.say("I3", call["turn_id"], f"{where} has earlier attempts {earlier}")
            if call["status"] == "succeeded" and call["response"] is None:
                self.say("I3", call["turn_id"], f"{where} has no response")

    def valid_history(self):
        for conversation, messages in group(self.messages, "conversation_id").items():
            open_ids = []
            for message in messages:
                turn = message["turn_id"]
                if message["role"] == "tool":
                    if message["tool_call_id"] not in open_ids:
                        self.say("I4", turn, f"a result answers no call: {message['tool_call_id']}")
                    else:
                        open_ids.remove(message["tool_call_id"])
                    continue
                if open_ids:
                    self.say("I4", turn, f"calls without result before seq {message['seq']}: {open_ids}")
                open_ids = [call["id"] for call in json.loads(message["tool_calls"] or "[]")]
            if open_ids:
                self.say("I4", messages[-1]["turn_id"], f"calls without result at the end: {open_ids}")

    def whole_numbers(self):
        for rows, what in ((self.events, "events"), (self.messages, "messages")):
            for conversation, of in group(rows, "conversation_id").items():
                # A message canceled while it waited gets its place with the next turn.
                numbers = [row["seq"] for row in of if row["seq"] is not None or self.turns[row["turn_id"]]["status"] != "canceled"]
                if numbers != list(range(1, len(numbers) + 1)):
                    self.say("I5", of[-1]["turn_id"], f"{what} of {conversation} are numbered {numbers}")
        ends = collections.Counter(e["turn_id"] for e in self.events if e["type"] in ("final", "error"))
        begins = collections.Counter(e["turn_id"] for e in self.events if e["type"] == "init")
        for turn in self.turns.values():
            if turn["kind"] == "chat" and (begins[turn["id"]], ends[turn["id"]]) != (1, 1):
                self.say("I5", turn["id"], f"{begins[turn['id']]} init and {ends[turn['id']]} final or error")
        self.leases_fit()
        stored = {(e["conversation_id"], e["seq"]): (e["type"], e["turn_id"]) for e in self.events}
        for client in self.ledger["clients"]:
            for seq, kind in client["heard"]:
                if stored.get((client["conversation_id"], seq), ("nothing",))[0] != kind:
                    self.say("I5", client["turn_id"], f"event {seq} {kind} was heard but is not stored")

    def leases_fit(self):
        """A lease counts on from what is stored, and was claimed at least once for every turn that began and every takeover."""
        events, messages = group(self.events, "conversation_id"), group(self.messages, "conversation_id")
        claims = collections.Counter()
        for turn in filter(began, self.turns.values()):
            claims[turn["conversation_id"] or turn["id"]] += 1 + turn["takeovers"]
        for lease in self.leases:
            stream = lease["conversation_id"]
            placed = [m for m in messages[stream] if m["seq"] is not None]
            next_numbers = (len(events[stream]) + 1, len(placed) + 1)
            if (lease["next_event_seq"], lease["next_message_seq"]) != next_numbers:
                self.say("I5", "", f"the lease of {stream} counts on from {lease['next_event_seq']} and {lease['next_message_seq']}, not {next_numbers}")
            if lease["epoch"] < claims[stream]:
                self.say("I5", "", f"the lease of {stream} has epoch {lease['epoch']} after {claims[stream]} claims")

    def effects(self):
        sent = group(self.ledger["tool"], "job_id")
        for job, requests in sent.items():
            call = self.calls.get(job)
            turn = requests[0]["turn_id"]
            if call is None:
                self.say("I6", turn, f"a request carried job_id {job}, which is no call")
                continue
            if {r["key"] for r in requests} != {call["idempotency_key"]}:
                self.say("I6", turn, f"call {job} was sent with keys {sorted({r['key'] for r in requests})}")
            if len(requests) > call["attempt"]:
                self.say("I6", turn, f"call {job} was sent {len(requests)} times in {call['attempt']} attempts")
        keys = collections.Counter(c["idempotency_key"] for c in self.calls.values() if c["idempotency_key"])
        for key in (key for key, count in keys.items() if count > 1):
            self.say("I6", "", f"key {key} belongs to {keys[key]} calls")
        for call in self.calls.values():
            reached = len(sent.get(call["id"], []))
            shared = call["dedupe_of"] is not None
            if call["effect"] == "once":
                if reached > 1:
                    self.say("I6", call["turn_id"], f"once call {call['id']} was sent {reached} times")
                if reached and call["status"] != "succeeded" and call["error_code"] != "outcome_unknown":
                    self.say("I6", call["turn_id"], f"once call {call['id']} was sent and ended {call['status']} {call['error_code']}")
            if call["status"] == "succeeded" and not reached and not shared:
                self.say("I6", call["turn_id"], f"call {call['id']} succeeded but never reached the tool")
            if call["effect"] != "once" and call["status"] != "succeeded" and self.turns[call["turn_id"]]["status"] == "completed":
                self.say("I6", call["turn_id"], f"{call['effect']} call {call['id']} ended {call['status']} {call['error_code']}")
        same = collections.defaultdict(set)
        for request in self.ledger["tool"]:
            if request["effect"] == "once":
                same[request["run"], request["n"], request["round"]].add(request["job_id"])
        turn_of = {run: turn for turn, run in self.run_of.items()}
        for (run, n, _), jobs in same.items():
            if len(jobs) > 1:
                self.say("I6", turn_of.get(run), f"the same once call (n={n}) was sent under {len(jobs)} ids: {sorted(jobs)}")

    def replies(self):
        spoken = collections.Counter(m["turn_id"] for m in self.messages if m["role"] == "assistant" and not m["tool_calls"])
        for turn in self.turns.values():
            wanted = int(turn["kind"] == "chat" and turn["status"] == "completed")
            if spoken[turn["id"]] != wanted:
                self.say("I7", turn["id"], f"{spoken[turn['id']]} replies to a {turn['kind']} that is {turn['status']}")

    def bills(self):
        asked, extra = collections.Counter(r["run"] for r in self.ledger["model"]), collections.Counter()
        for run, turns in self.runs.items():
            rows = [row for turn in turns for row in self.usage[turn]]
            if len(rows) < asked[run]:
                self.say("I8", turns[0], f"{asked[run]} model requests, {len(rows)} usage rows")
            extra[self.turns.get(turns[0], {}).get("conversation_id")] += len(rows) - asked[run]
            reported = [row["tokens_total"] for row in rows if not row["estimated"]]
            if len(reported) > asked[run] or any(tokens != TOKENS for tokens in reported):
                self.say("I8", turns[0], f"{asked[run]} model requests, reported as {reported}")
        # Whoever goes on with a turn books one request that may have been out; each of them claimed the lease once more.
        begun = collections.Counter(turn["conversation_id"] for turn in self.turns.values() if began(turn))
        for lease in self.leases:
            stream = lease["conversation_id"]
            if extra[stream] > lease["epoch"] - begun[stream]:
                self.say("I8", "", f"{extra[stream]} usage rows too many in {stream}, {lease['epoch']} claims for {begun[stream]} turns")

    def texts(self):
        last = {m["turn_id"]: m["content"] for m in self.messages if m["role"] == "assistant" and not m["tool_calls"]}
        for client in self.ledger["clients"]:
            turn = self.turns.get(client["turn_id"])
            if turn is None or turn["status"] != "completed":
                continue
            if not client["text"] == turn["message"] == last.get(turn["id"]):
                self.say("I9", turn["id"], f"heard {client['text']!r}, stored {turn['message']!r} and {last.get(turn['id'])!r}")


def began(turn):
    """A turn that was canceled while it waited behind another never held the lease."""
    return turn["status"] != "canceled" or turn["step"] > 0


def group(rows, by):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return groups


def audit(path, ledger):
    """An SQLite file."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        broken = [row[0] for row in db.execute("PRAGMA integrity_check")]
        broken += [f"{row[0]} names a row of {row[2]} that is missing" for row in db.execute("PRAGMA foreign_key_check")]
        violations = Audit(lambda sql: [dict(row) for row in db.execute(sql)], broken, ledger).all()
    db.close()
    return violations


def audit_rows(read, ledger):
    """A database that looks after its own files; `read` answers a query with rows."""
    return Audit(read, ["ok"], ledger).all()


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        violations = audit(sys.argv[1], json.load(file))
    print("\n".join(violations) or "no violations")
    sys.exit(1 if violations else 0)
