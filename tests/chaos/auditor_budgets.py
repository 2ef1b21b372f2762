"""I12: the counters of budgets, compared with the usage rows and reservations that they count.

`used` is the sum of the usage rows of the period, `reserved` the sum of the reservations, and no turn that has ended still reserves.
"""
import collections
import datetime

# The column of a usage row that says whose counter counts it; a tenant has one counter for all.
SUBJECT = {"user": "user_id", "key": "key_id", "assistant": "assistant"}


def check(audit, budgets, counters, reservations):
    """Reports what is wrong to the audit."""
    budgets = {budget["id"]: budget for budget in budgets}
    used, reserved = collections.Counter(), collections.Counter()
    for row in (row for rows in audit.usage.values() for row in rows):
        for budget in budgets.values():
            subject = row[SUBJECT[budget["scope"]]] if budget["scope"] in SUBJECT else ""
            if budget["tenant_id"] == row["tenant_id"] and (budget["subject"] or subject) == subject:
                used[budget["id"], subject, period(budget, row)] += amount(budget["unit"], row)
    for row in reservations:
        reserved[row["budget_id"], row["subject"], row["period_start"]] += row["amount"]
        if row["turn_id"] in audit.turns and audit.turns[row["turn_id"]]["finished_at"]:
            audit.report("I12", row["turn_id"], f"the turn has ended and still reserves {row['amount']} of {row['budget_id']}")
    for counter in counters:
        key = (counter["budget_id"], counter["subject"], counter["period_start"])
        where = f"the counter of {key}"
        if counter["budget_id"] not in budgets:
            audit.report("I12", "", f"{where} belongs to no budget")
        elif counter["used"] != used[key]:
            audit.report("I12", "", f"{where} has used {counter['used']}, its usage rows {used[key]}")
        if counter["reserved"] != reserved[key]:
            audit.report("I12", "", f"{where} has reserved {counter['reserved']}, its reservations {reserved[key]}")
    known = {(counter["budget_id"], counter["subject"], counter["period_start"]) for counter in counters}
    for key in reserved.keys() - known:
        audit.report("I12", "", f"{reserved[key]} is reserved of {key}, which is no counter")


def period(budget, row):
    """The first day of the period that counts the row."""
    day = row["counted_on"] or datetime.datetime.fromisoformat(row["created_at"]).astimezone(datetime.timezone.utc).date().isoformat()
    return day if budget["period"] == "day" else day[:8] + "01"


def amount(unit, row):
    return {"tokens": row["tokens_total"], "nano_usd": row["cost_nano_usd"] or 0, "model_calls": 1}[unit]
