#!/usr/bin/env python3
"""Compares what is stored with what the outside saw, after any number of crashes.

usage: auditor.py DB LEDGER.json      exit 1 on violations

The ledger: {"tool": [{"run", "n", "round", "effect", "job_id", "key", "turn_id"}], one per request that reached the tool,
"model": [{"run"}], one per request that reached the model, "clients": [{"run", "key", "turn_id", "text", "heard"}] of chats,
"direct": [{"run", "key", "job_id", "ok"}] of tools called without a model, "labels": {run: what was done to it}, "may_fail": {run: codes its turn may end with}}.
A run's name stands in its message as `run=NAME`, and in the arguments of its calls.
"""
import collections
import json
import re
import sqlite3
import sys

TERMINAL = ("completed", "failed", "canceled")
CALL_TERMINAL = ("succeeded", "failed", "timeout", "canceled")


class Audit:
    def __init__(self, path, ledger):
        self.ledger, self.violations = ledger, []
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            db.row_factory = sqlite3.Row
            read = lambda sql: [dict(row) for row in db.execute(sql)]
            self.turns = {t["id"]: t for t in read("SELECT * FROM turns")}
            self.calls = {c["id"]: c for c in read("SELECT * FROM tool_calls")}
            self.messages = read("SELECT * FROM messages ORDER BY conversation_id, seq")
            self.events = read("SELECT * FROM events ORDER BY conversation_id, seq")
            self.inbox = read("SELECT * FROM inbox")
            self.leases = read("SELECT * FROM leases")
            self.attempts = group(read("SELECT * FROM call_attempts ORDER BY attempt"), "call_id")
            self.usage = collections.Counter(u["turn_id"] for u in read("SELECT turn_id FROM api_usage"))
            broken = [row[0] for row in db.execute("PRAGMA integrity_check")]
        if broken != ["ok"]:
            self.say("I0", "", f"the file is damaged: {broken[:3]}")
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
        for check in (self.one_turn_per_key, self.all_ended, self.legal_rows, self.valid_history, self.whole_numbers,
                      self.effects, self.bills, self.texts):
            check()
        return self.violations

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
        for turn in self.turns.values():
            if turn["status"] not in TERMINAL:
                self.say("I2", turn["id"], f"the turn is still {turn['status']}")
            elif turn["status"] != "completed" and turn["error_code"] not in ("poison", *may_fail.get(self.run_of.get(turn["id"]), ())) \
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
                numbers = [row["seq"] for row in of]
                if numbers != list(range(1, len(numbers) + 1)):
                    self.say("I5", of[-1]["turn_id"], f"{what} of {conversation} are numbered {numbers}")
        ends = collections.Counter(e["turn_id"] for e in self.events if e["type"] in ("final", "error"))
        begins = collections.Counter(e["turn_id"] for e in self.events if e["type"] == "init")
        for turn in self.turns.values():
            if turn["kind"] == "chat" and (begins[turn["id"]], ends[turn["id"]]) != (1, 1):
                self.say("I5", turn["id"], f"{begins[turn['id']]} init and {ends[turn['id']]} final or error")
        stored = {(e["conversation_id"], e["seq"]): (e["type"], e["turn_id"]) for e in self.events}
        for client in self.ledger["clients"]:
            for seq, kind in client["heard"]:
                if stored.get((client["conversation_id"], seq), ("nothing",))[0] != kind:
                    self.say("I5", client["turn_id"], f"event {seq} {kind} was heard but is not stored")

    def effects(self):
        sent = group(self.ledger["tool"], "job_id")
        for job, requests in sent.items():
            call = self.calls.get(job)
            turn = requests[0]["turn_id"]
            if call is None:
                self.say("I6", turn, f"a request carried job_id {job}, which is no call")
                continue
            # A call that waited for another turn's has no key of its own on record; it is sent under its id.
            if {r["key"] for r in requests} != {call["idempotency_key"] or call["dedupe_of"] and job}:
                self.say("I6", turn, f"call {job} was sent with keys {sorted({r['key'] for r in requests})}")
            if len(requests) > max(call["attempt"], 1):
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

    def bills(self):
        asked = collections.Counter(r["run"] for r in self.ledger["model"])
        for run, turns in self.runs.items():
            billed = sum(self.usage[turn] for turn in turns)
            if billed < asked[run]:
                self.say("I8", turns[0], f"{asked[run]} model requests, {billed} usage rows")

    def texts(self):
        last = {m["turn_id"]: m["content"] for m in self.messages if m["role"] == "assistant" and not m["tool_calls"]}
        for client in self.ledger["clients"]:
            turn = self.turns.get(client["turn_id"])
            if turn is None or turn["status"] != "completed":
                continue
            if not client["text"] == turn["message"] == last.get(turn["id"]):
                self.say("I9", turn["id"], f"heard {client['text']!r}, stored {turn['message']!r} and {last.get(turn['id'])!r}")


def group(rows, by):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
    return groups


def audit(path, ledger):
    return Audit(path, ledger).all()


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        violations = audit(sys.argv[1], json.load(file))
    print("\n".join(violations) or "no violations")
    sys.exit(1 if violations else 0)
