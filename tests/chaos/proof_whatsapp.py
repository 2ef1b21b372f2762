"""Damage to what is stored and observed about WhatsApp, which the check of I11 must detect."""

ENTRY = "channel = 'whatsapp' AND external_id = (SELECT min(external_id) FROM inbox WHERE channel = 'whatsapp' AND turn_id IS NOT NULL)"
REPORT = "channel = 'whatsapp' AND external_id = (SELECT min(external_id) FROM inbox WHERE channel = 'whatsapp' AND external_id LIKE '%:read')"
PRESSED = "channel = 'whatsapp' AND external_id = (SELECT min(external_id) FROM inbox WHERE channel = 'whatsapp' AND turn_id IS NULL AND external_id NOT LIKE '%:%')"
PART = "id = (SELECT min(id) FROM outbox WHERE channel = 'whatsapp' AND turn_id IS NOT NULL AND approval_id IS NULL AND status = 'read')"
NOTICE = "id = (SELECT min(id) FROM outbox WHERE channel = 'whatsapp' AND turn_id IS NULL AND status = 'read')"
QUESTION = "id = (SELECT min(id) FROM outbox WHERE channel = 'whatsapp' AND approval_id IS NOT NULL AND status = 'read')"
DAMAGE = [("I11", sql) for sql in (
    f"DELETE FROM inbox WHERE {ENTRY}",
    f"UPDATE inbox SET turn_id = NULL WHERE {ENTRY}",
    f"UPDATE inbox SET turn_id = 'unknown' WHERE {ENTRY}",
    f"DELETE FROM inbox WHERE {REPORT}",
    f"DELETE FROM inbox WHERE {PRESSED}",
    f"UPDATE inbox SET external_id = 'unknown' WHERE {PRESSED}",
    f"DELETE FROM outbox WHERE {PART}",
    f"DELETE FROM outbox WHERE {NOTICE}",
    f"DELETE FROM outbox WHERE {QUESTION}",
    f"UPDATE outbox SET status = 'pending' WHERE {PART}",
    f"UPDATE outbox SET status = 'sending' WHERE {QUESTION}",
    f"UPDATE outbox SET status = 'dead', error_code = 'outcome_unknown', ambiguous = 1 WHERE {PART}",
    f"UPDATE outbox SET status = 'dead', error_code = 'earlier_part_dead' WHERE {PART}",
    f"UPDATE outbox SET status = 'held' WHERE {NOTICE}",
    f"UPDATE outbox SET status = 'delivered' WHERE {PART}",
    f"UPDATE outbox SET external_id = NULL WHERE {PART}",
    f"UPDATE outbox SET recipient = '49888' WHERE {PART}",
    f"UPDATE outbox SET recipient = '49888' WHERE {QUESTION}",
    f"UPDATE outbox SET body = json_set(body, '$.text', 'Something else.') WHERE {PART}",
    f"UPDATE outbox SET part = part + 1000 WHERE {PART}",
    f"UPDATE outbox SET turn_id = (SELECT id FROM turns WHERE inbound IS NULL LIMIT 1), part = 1 WHERE {PART}",
    "UPDATE approvals SET status = 'denied' WHERE status = 'approved'",
)]


def arrived_again(observations):
    # More often than even an ambiguous row may.
    observations["whatsapp"]["sent"] += observations["whatsapp"]["sent"][:1] * 2


def arrived_twice(observations):
    observations["whatsapp"]["sent"] *= 2


def arrived_never(observations):
    del observations["whatsapp"]["sent"][:1]


def arrived_elsewhere(observations):
    for one in observations["whatsapp"]["sent"][:1]:
        one["to"] = "49888"


def arrived_from_another_number(observations):
    for one in observations["whatsapp"]["sent"][:1]:
        one["account"] = "99999"


def arrived_as_another_text(observations):
    for one in observations["whatsapp"]["sent"][:1]:
        one["text"] += "!"


def arrived_without_a_row(observations):
    observations["whatsapp"]["sent"] += [{**one, "row": "unknown"} for one in observations["whatsapp"]["sent"][:1]]


def arrived_out_of_order(observations):
    observations["whatsapp"]["sent"].reverse()


def message_lost(observations):
    observations["whatsapp"]["inbound"] += [{**one, "id": "unknown"} for one in observations["whatsapp"]["inbound"][:1]]


def message_never_stored(observations):
    for one in observations["whatsapp"]["inbound"][:1]:
        one["stored"] = False


def message_never_delivered(observations):
    del observations["whatsapp"]["inbound"][:1]


def report_lost(observations):
    observations["whatsapp"]["reported"] += [{**one, "status": "sent", "id": one["id"] + ".again"} for one in observations["whatsapp"]["reported"][:1]]


FALSE_OBSERVATIONS = [("I11", falsify, "whatsapp") for falsify in (
    arrived_again, arrived_twice, arrived_never, arrived_elsewhere, arrived_from_another_number, arrived_as_another_text, arrived_without_a_row, arrived_out_of_order,
    message_lost, message_never_stored, message_never_delivered, report_lost)]
