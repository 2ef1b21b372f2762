"""I11: what Meta delivered, what the stub of its API accepted, and what was reported about it, compared with the inbox and the outbox.

Every delivered message is stored once, and starts one turn or decides one approval. Every row of the outbox reached its address exactly
once; one that is marked as ambiguous at most twice. The rows of a turn are its whole answer, in order. Every report is applied.
"""
import collections
import json

CHANNEL = "whatsapp"
# From the state in which a row was sent to the last one that a report can give it.
SENT = ("sent", "delivered", "read")


def check(audit, rows, approvals):
    """Reports what is wrong to the audit."""
    observed = audit.observations["whatsapp"]
    rows = [row for row in rows if row["channel"] == CHANNEL]
    stored_once(audit, observed)
    answered(audit, observed, rows)
    decided(audit, observed, rows, approvals)
    arrived(audit, observed, rows)
    in_order(audit, observed, rows)
    reports_applied(audit, observed, rows)


def stored_once(audit, observed):
    entries = {entry["external_id"]: entry for entry in audit.inbox if entry["channel"] == CHANNEL}
    reports = {f"{one['id']}:{one['status']}" for one in observed["reported"]}
    for unknown in set(entries) - reports - {one["id"] for one in observed["inbound"]}:
        audit.report("I11", "", f"{unknown} is in the inbox but was never delivered")
    for missing in reports - set(entries):
        audit.report("I11", "", f"the report {missing} is lost")
    for one in observed["inbound"]:
        entry = entries.get(one["id"])
        if not one["stored"] or entry is None:
            audit.report("I11", "", f"the message {one['id']} is lost (answered with 200: {one['stored']})")
        elif (entry["turn_id"] in audit.turns) != (one["approval"] is None):
            audit.report("I11", entry["turn_id"], f"the message {one['id']} has the turn {entry['turn_id']}, approves {one['approval']}")


def answered(audit, observed, rows):
    """A turn's parts are numbered without gaps, and end with its answer."""
    sender = {one["id"]: one["from"] for one in observed["inbound"]}
    address = {entry["turn_id"]: sender.get(entry["external_id"]) for entry in audit.inbox if entry["channel"] == CHANNEL}
    parts = collections.defaultdict(list)
    for row in rows:
        if row["turn_id"] and not row["approval_id"]:
            parts[row["turn_id"]].append(row)
    for turn in audit.turns.values():
        found = sorted(parts[turn["id"]], key=lambda row: row["part"])
        if turn["id"] not in address:
            if found:
                audit.report("I11", turn["id"], "a turn of another channel is answered on WhatsApp")
            continue
        answer = turn["message"] or json.loads(turn["error"] or "{}").get("message") or "?"
        text = squeezed("".join(text_of(row) for row in found))
        if [row["part"] for row in found] != list(range(1, len(found) + 1)) or not text.endswith(squeezed(answer)):
            audit.report("I11", turn["id"], f"the answer {answer[:60]!r} is not that of its rows: {[row['part'] for row in found]} {text[:60]!r}")
        if {row["recipient"] for row in found} != {address[turn["id"]]}:
            audit.report("I11", turn["id"], f"the answer goes to {[row['recipient'] for row in found]}, not to {address[turn['id']]}")


def decided(audit, observed, rows, approvals):
    """Every pressed button has decided, and is answered once; everybody else who was asked is told once."""
    presses = [one for one in observed["inbound"] if one["approval"]]
    asked = collections.Counter((row["approval_id"], row["recipient"]) for row in rows if row["approval_id"] and is_question(row))
    for (approval, recipient), count in asked.items():
        if count != 1:
            audit.report("I11", "", f"{recipient} is asked {count} times about {approval}")
    told = collections.Counter(row["recipient"] for row in rows if not row["turn_id"] and not row["approval_id"])
    told.update(row["recipient"] for row in rows if row["approval_id"] and not is_question(row))
    wanted = collections.Counter()
    for one in presses:
        status = next((row["status"] for row in approvals if row["id"] == one["approval"]), None)
        if status != "approved":
            audit.report("I11", "", f"the approval {one['approval']} was approved by a button and is {status}")
        wanted[one["from"]] += 1
        wanted.update(recipient for approval, recipient in asked if approval == one["approval"] and recipient != one["from"])
    if told != wanted:
        audit.report("I11", "", f"about decisions people are told {dict(told)} times, not {dict(wanted)}")


def arrived(audit, observed, rows):
    known = {row["id"]: row for row in rows}
    reached = collections.defaultdict(list)
    for one in observed["sent"]:
        reached[one["row"]].append(one)
        row = known.get(one["row"])
        if row is None:
            audit.report("I11", "", f"{one['id']} was sent for {one['row']}, which is no row")
        elif (one["to"], one["account"], squeezed(one["text"])) != (row["recipient"], row["account"], squeezed(text_of(row))):
            audit.report("I11", row["turn_id"], f"row {row['id']} for {row['recipient']} reached {one['to']} as {one['text'][:60]!r}")
    for row in rows:
        times, where = len(reached[row["id"]]), f"row {row['id']} ({row['status']} {row['error_code'] or ''}, {row['attempts']} attempts, ambiguous {row['ambiguous']})"
        if row["status"] in SENT:
            if not 1 <= times <= (2 if row["ambiguous"] else 1):
                audit.report("I11", row["turn_id"], f"{where} was sent {times} times")
        elif row["status"] == "dead" and row["error_code"] == "outcome_unknown" and row["ambiguous"]:
            # Killed in both attempts. A report about either would have moved the row.
            if times:
                audit.report("I11", row["turn_id"], f"{where} arrived, and its report was not applied")
        elif (row["status"], row["error_code"], times) != ("dead", "earlier_part_dead", 0):
            audit.report("I11", row["turn_id"], f"{where} was sent {times} times and has not ended well")


def in_order(audit, observed, rows):
    """The parts of turns reach a person in the order in which they were written. A part that was perhaps sent twice is given up, and the parts after it
    with it. If a late report shows that it arrived, they are sent after all, behind what was sent meanwhile."""
    parts = {row["id"]: row for row in rows if row["turn_id"] and not row["approval_id"]}
    given_up = {}
    for row in parts.values():
        if row["ambiguous"] and row["attempts"] >= 2:
            given_up[row["turn_id"]] = min(row["part"], given_up.get(row["turn_id"], row["part"]))
    parts = {id: row for id, row in parts.items() if row["part"] <= given_up.get(row["turn_id"], row["part"])}
    last, seen = {}, set()
    for one in observed["sent"]:
        if one["row"] not in parts or one["row"] in seen:
            continue
        seen.add(one["row"])
        if one["row"] < last.get(one["to"], ""):
            audit.report("I11", parts[one["row"]]["turn_id"], f"row {one['row']} arrived after the later {last[one['to']]}")
        last[one["to"]] = max(last.get(one["to"], ""), one["row"])


def reports_applied(audit, observed, rows):
    row_of = {one["id"]: one["row"] for one in observed["sent"]}
    status = {row["id"]: row["status"] for row in rows}
    ids = {row["id"]: row["external_id"] for row in rows}
    for one in observed["reported"]:
        row = row_of.get(one["id"])
        if status.get(row) not in SENT[SENT.index(one["status"]):]:
            audit.report("I11", "", f"row {row} is {status.get(row)}, reported was {one['status']}")
    for row, external_id in ids.items():
        if status[row] in SENT and row_of.get(external_id) != row:
            audit.report("I11", "", f"row {row} has the id {external_id}, which is not that of a message sent for it")


def is_question(row):
    return json.loads(row["body"])["type"] == "approval"


def text_of(row):
    return json.loads(row["body"]).get("text", "")


def squeezed(text):
    """Parts are cut at spaces, and WhatsApp has its own marks for bold text."""
    return "".join(text.split()).replace("*", "")
