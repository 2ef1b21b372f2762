"""The crash points, and the work that the server does when it reaches them."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (description, crash, shape of the step, rounds). NAME:N crashes the nth time: writes are B, C, D in this order; model responses are the step's, then the last.
POINTS = [
    ("before commit A", "before_a:1", "one", 1),
    ("inside commit A", "inside_a:1", "one", 1),
    ("after A, before the acknowledgement", "after_a:1", "one", 1),
    ("after A, before the turn begins", "called:1", "one", 1),
    ("after the acknowledgement, before the model request", "before_request:1:5", "one", 1),
    ("model request sent, nothing received", "request_out:1", "one", 1),
    ("after the first text of the step", "mid_stream:1:5", "one", 1),
    ("after the model's response, before B is prepared", "answered:1", "three", 1),
    ("before commit B", "before_b:1", "one", 1),
    ("inside commit B", "inside_write:1", "three", 1),
    ("after B, before its events are sent", "before_publish:1", "one", 1),
    ("after B, before sending", "after_b:1", "three", 1),
    ("before the one call is sent", "before_send:1", "one", 1),
    ("before the third of three calls is sent", "before_send:3:5", "three", 1),
    ("after the tool's answer, before C", "tool_answered:1", "one", 1),
    ("after the second answer of three, before its C", "tool_answered:2", "three", 1),
    ("inside C of the first of three", "inside_write:2", "three", 1),
    ("inside C, the next request sent already", "inside_write:2:40", "one", 1),
    ("inside C of twins, the next request sent already", "inside_write:2:40", "twins", 1),
    ("after C, before its events are sent", "before_publish:2", "one", 1),
    ("one of three done", "some_done:1:2", "three", 1),
    ("two of three done", "some_done:2:2", "three", 1),
    ("after the one answer to both twins", "tool_answered:1", "twins", 1),
    ("between the tool round and the next request", "between_rounds:1", "one", 1),
    ("before the second request", "before_request:2", "three", 1),
    ("second request sent", "request_out:2:5", "one", 1),
    ("in the second round of calls", "before_send:2", "one", 2),
    ("after the answer of the second round", "tool_answered:2", "one", 2),
    ("in the middle of the last text", "mid_stream:3:5", "one", 1),
    ("after the last text, before D", "answered:2", "one", 1),
    ("before commit D", "before_d:1", "one", 1),
    ("inside commit D", "inside_write:3", "one", 1),
    ("after D, before its events are sent", "before_publish:3", "one", 1),
    ("after D", "after_d:1", "one", 1),
]

# (description, number of the request during which the server is killed from outside, shape)
HELD = [
    ("request held by the tool", 0, "one"),
    ("the second of three held", 1, "three"),
    ("the last of three held", 2, "three"),
    ("the one request of both twins held", 0, "twins"),
]

# (description, the second crash, during the recovery from the first one; shape: None for a first crash in the model's text)
TAKEOVERS = [
    ("after the claim, a call open", "after_claim:1", "one"),
    ("after the claim, three calls open", "after_claim:1", "three"),
    ("inside the first write after the claim", "inside_write:1", "three"),
    ("before the calls are sent again", "resumed:1", "three"),
    ("after the repeated answer", "tool_answered:1", "one"),
    ("inside the write of the repeated answer", "inside_write:2", "one"),
    ("after the calls are closed", "caught_up:1", "twins"),
    ("in the first request after the recovery", "request_out:1", "one"),
    ("after the claim, the model's text lost", "after_claim:1", None),
    ("inside the reset", "inside_write:1", None),
    ("in the first request after the reset", "request_out:1", None),
]

# (description, the crash while a second message is queued behind the first)
WAITING = [
    ("before the second is stored", "before_a:2"),
    ("while the second is queued", "before_d:1"),
    ("the second leaves the queue", "called:2"),
    ("after the second started", "after_start:1"),
]

# (description, the crash while a long text is streamed and checkpointed)
LONG = [
    ("before the partial text is stored", "before_partial:1"),
    ("inside the write of the partial text", "inside_partial:1"),
    ("after the partial text is stored", "after_partial:1"),
]

# (description, the crash while a second message, queued behind the first, is canceled)
CANCELS = [("inside the cancel of a queued turn", "inside_cancel:1")]

# (description, the crash while old events are deleted)
RETENTION = [("inside a batch of deleted events", "inside_retention:2")]

# (description, the crash while a tool is called without a model; None: killed from outside while the request is held; number of callers)
DIRECT = [
    ("inside A+B", "inside_a:1", 1),
    ("before sending", "before_send:1", 1),
    ("request held by the tool", None, 1),
    ("request held, a second caller waits for it", None, 2),
    ("after the tool's answer", "tool_answered:1", 1),
    ("inside C+D", "inside_write:1", 1),
    ("after C+D, before the answer", "before_publish:1", 1),
]

# (description, the crash while calls await an approval, which is given at once; shape)
APPROVALS = [
    ("before the turn awaits approval", "before_park:1", "one"),
    ("inside the write of its status awaiting_approval", "inside_write:2", "one"),
    ("the turn awaits approval", "after_park:1", "three"),
    ("inside the decision", "before_decision:1", "one"),
    ("the decision is stored, the turn not yet resumed", "decided:1", "one"),
    ("after the claim", "after_claim:1", "twins"),
    ("before the call is sent", "before_send:1", "one"),
    ("after the tool's answer", "tool_answered:1", "one"),
    ("the calls are done, before the last request", "caught_up:1", "twins"),
]

# (description, the crash while the schema is migrated, whether an older database exists)
MIGRATIONS = [
    ("before the first migration of a new database", "before_first_migration:1", False),
    ("inside the first migration of a new database", "inside_migration:1", False),
    ("between two migrations of a new database", "after_migration:1", False),
    ("inside the second migration of a new database", "inside_migration:2", False),
    ("inside the sample data of a new database", "inside_import:1", False),
    ("an older database copied, not yet changed", "migration_copied:1", True),
    ("inside the migration of an older database", "inside_migration:1", True),
    ("after the migration of an older database", "after_migration:1", True),
]

# (description, the crash) while a workspace is imported, a backup made or restored, a user erased
IMPORTS = [("inside the import", "inside_import:1")]
BACKUPS = [("the copy written under a temporary name", "backup_copied:1"), ("the copy renamed, not yet reported", "backup_named:1")]
RESTORES = [
    ("the copy filled", "restore_filled:1"),
    ("the old database renamed", "restore_set_aside:1"),
    ("the new database in place, not yet reported", "restore_named:1"),
]
ERASURES = [("inside the erasure", "inside_erase:1"), ("listed, not committed", "erase_listed:1"), ("erased, not compacted", "erased:1")]

# (description, the crash while the end of a turn is told to a program)
OUTBOX = [
    ("a notification is claimed, not sent", "outbox_claimed:1"),
    ("a notification is sent, its end not written", "outbox_sent:1"),
    ("a notification is sent, and its end written", "outbox_settled:1"),
]

# (description, the crash while a message comes by WhatsApp, is answered, and the answer is reported; what the message is). The end of every turn is also told
# to a program, and every report comes to the same address as a message, so a number counts these too.
WHATSAPP = [
    ("received, nothing stored", "whatsapp_received:1", "turn"),
    ("the contact stored, before A", "contact_stored:1", "turn"),
    ("before A", "before_a:1", "keyword"),
    ("inside A", "inside_a:1", "turn"),
    ("inside A of a keyword", "inside_a:1", "keyword"),
    ("after A", "after_a:1", "turn"),
    ("after A of a keyword", "after_a:1", "keyword"),
    ("before the turn begins", "called:1", "turn"),
    ("stored, before the 200", "whatsapp_recorded:1", "turn"),
    ("a keyword stored, before the 200", "whatsapp_recorded:1", "keyword"),
    ("model request sent", "request_out:1", "turn"),
    ("inside B", "inside_write:1", "turn"),
    ("before the call is sent", "before_send:1", "turn"),
    ("after the tool's answer", "tool_answered:1", "turn"),
    ("inside C", "inside_write:2", "turn"),
    ("before D", "before_d:1", "parts"),
    ("inside D of several parts", "inside_write:3", "parts"),
    ("inside the first write of a keyword", "inside_write:1", "keyword"),
    ("after D", "after_d:1", "turn"),
    ("after D of several parts", "after_d:1", "parts"),
    ("the first row claimed", "outbox_claimed:1", "turn"),
    ("the second row claimed", "outbox_claimed:2", "turn"),
    ("the first row of a keyword claimed", "outbox_claimed:1", "keyword"),
    ("the first row sent", "outbox_sent:1", "turn"),
    ("the second row sent", "outbox_sent:2", "turn"),
    ("the second row of a keyword sent", "outbox_sent:2", "keyword"),
    ("inside the end of the first row", "inside_settle:1", "turn"),
    ("inside the end of the second row", "inside_settle:2", "turn"),
    ("the end of the first row written", "outbox_settled:1", "turn"),
    ("the end of the second row written", "outbox_settled:2", "turn"),
    ("the second of several parts claimed", "outbox_claimed:3", "parts"),
    ("the second of several parts sent", "outbox_sent:3", "parts"),
    ("the third of several parts sent", "outbox_sent:4", "parts"),
    ("inside the end of the second of several parts", "inside_settle:3", "parts"),
    ("the end of the second of several parts written", "outbox_settled:3", "parts"),
    ("a report received", "whatsapp_received:3", "turn"),
    ("inside the first report", "inside_report:1", "turn"),
    ("inside the third report", "inside_report:3", "keyword"),
    ("inside a report between parts", "inside_report:2", "parts"),
    ("the first report applied", "report_applied:1", "turn"),
    ("the second report applied, before the 200", "report_applied:2", "keyword"),
    ("the third report applied", "report_applied:3", "turn"),
    ("a report stored, before the 200", "whatsapp_recorded:3", "turn"),
    ("before the turn awaits approval", "before_park:1", "approval"),
    ("inside the write of its status awaiting_approval", "inside_write:2", "approval"),
    ("the turn awaits approval", "after_park:1", "approval"),
    ("the first question claimed", "outbox_claimed:1", "approval"),
    ("the first question sent", "outbox_sent:1", "approval"),
    ("the second question sent", "outbox_sent:2", "approval"),
    ("the third row of the question sent", "outbox_sent:3", "approval"),
    ("inside the decision by a button", "before_decision:1", "approval"),
    ("decided by a button, the turn not resumed", "decided:1", "approval"),
    ("decided, the button not recorded", "button_decided:1", "approval"),
    ("inside the record of a button", "inside_inbound:1", "approval"),
    ("the resumed turn claimed", "after_claim:1", "approval"),
    ("the answer after an approval sent", "outbox_sent:5", "approval"),
    ("the last row after an approval sent", "outbox_sent:6", "approval"),
]

# (description, the crash after SIGTERM)
DRAINS = [("in drain", "in_drain:1"), ("after turns were asked to release their leases", "in_release:1:10")]


def named():
    tables = (POINTS, TAKEOVERS, WAITING, APPROVALS, DRAINS, DIRECT, LONG, CANCELS, RETENTION, OUTBOX, WHATSAPP, MIGRATIONS, IMPORTS, BACKUPS, RESTORES, ERASURES)
    return {crash.split(":")[0] for table in tables for _, crash, *_ in table if crash}


def in_sources():
    names = set()
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        names.update(re.findall(r'crash::point\("(\w+)"\)', path.read_text()))
    return names


def check():
    """Every crash point in the sources must be listed here, and every listed one must exist."""
    if named() != in_sources():
        raise SystemExit(f"crash points in the sources and in tests/chaos/points.py differ: {sorted(named() ^ in_sources())}")
