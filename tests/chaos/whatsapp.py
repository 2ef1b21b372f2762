"""WhatsApp around a crashing server: Meta, which repeats everything until it is answered 200, and people who write and press buttons."""
import random
import threading
import time

from scenario import LOST, in_thread, until
from whatsapp_fakes import Graph, WhatsApp, digits, give_phones, said

ADMIN_ROLE = 1
# Both get the buttons of every approval; the first presses one.
APPROVERS = (1, 2)
WRITERS = (3, 4, 5, 6)
KEYWORDS = ("wer bin ich", "todos", "requests", "worktime")
REPORTS = ("sent", "delivered", "read")
# What Meta does to a message instead of accepting it well: the answer is lost, or the message is refused for now.
FAULTS = (("drop",), ("drop",), ("error", 429, 130429), ("html", 503))
# Longer than a doubtful message waits for a report: it is sent once more.
LATE_S = 2


class Meta(WhatsApp):
    """Delivers messages and reports, each again until it is stored, and some once more after that."""

    def __init__(self, graph):
        super().__init__(None)
        self.graph, self.lock, self.closed, self.failures = graph, threading.Lock(), threading.Event(), []
        self.inbound, self.reported, self.pressed, self.known = [], [], set(), False
        # Whether the stub fails now and then.
        self.faulty = False
        # Several threads take numbers from it.
        self.random = random.Random(1)
        self.threads = []

    def serve(self, server):
        """Gives the people their numbers, and starts to report what the stub accepts. The approvers write once: only then can they be asked."""
        if self.known:
            return
        self.server, self.known = server, True
        give_phones(server, {user: {ADMIN_ROLE} for user in APPROVERS})
        for user in APPROVERS:
            self.write(user, "who am i")
        self.threads = [in_thread(self.report_all), in_thread(self.press_all)]

    def close(self):
        self.closed.set()
        for thread in self.threads:
            thread.join(10)
        self.graph.close()

    def post(self, payload, expect=200):
        raw = payload if isinstance(payload, bytes) else self.payload(payload)
        repeat = self.random.random() < 0.2
        while not self.closed.is_set():
            try:
                status = self.send(raw)
            except LOST:
                status = 0
            if status == expect and not repeat:
                return status
            if status == expect:
                repeat = False
            elif status not in (0, 503):
                self.failures.append(f"Meta was answered {status}")
                return status
            time.sleep(0.01)
        return None

    def deliver(self, *messages):
        records = [{"id": one["id"], "from": one["from"], "approval": approval_of(one), "stored": False} for one in messages]
        with self.lock:
            self.inbound += records
        status = super().deliver(*messages)
        for record in records:
            record["stored"] = status == 200
        return status

    def write(self, user, content):
        return self.text(digits(user), content)

    # ------------------------------------------------------------ what Meta and the approver do by themselves

    def report_all(self):
        """Reports each accepted message: at once or late, in order or the last status first."""
        seen, waiting = 0, []
        while not self.closed.wait(0.01):
            with self.graph.lock:
                new = self.graph.messages[seen:]
            seen += len(new)
            if self.faulty and new and self.random.random() < 0.1:
                self.graph.script.append(self.random.choice(FAULTS))
            for message in new:
                order = REPORTS if self.random.random() < 0.8 else REPORTS[::-1]
                due = time.monotonic() + (LATE_S if self.random.random() < 0.3 else 0)
                waiting += [(due, message, status) for status in order]
            for entry in [entry for entry in waiting if entry[0] <= time.monotonic()]:
                waiting.remove(entry)
                if self.report(*entry[1:]) == 200:
                    self.reported.append({"id": entry[1]["wamid"], "status": entry[2]})

    def press_all(self):
        """The first approver presses `approve` once under each question."""
        while not self.closed.wait(0.02):
            with self.graph.lock:
                asked = [m for m in self.graph.messages if m["type"] == "interactive" and m.get("to") == digits(APPROVERS[0])]
            for message in asked:
                button = message["interactive"]["action"]["buttons"][0]["reply"]["id"]
                if button not in self.pressed:
                    self.pressed.add(button)
                    self.press(digits(APPROVERS[0]), button, message["wamid"])

    def quiet(self):
        """Everything that the stub accepted is reported."""
        return not self.known or len(self.reported) == len(REPORTS) * len(self.graph.messages)

    def observation(self):
        with self.graph.lock:
            sent = [{"id": m["wamid"], "row": m["biz_opaque_callback_data"], "to": m.get("to"), "account": m["number"], "text": said(m)} for m in self.graph.messages]
        return {"inbound": list(self.inbound), "sent": sent, "reported": list(self.reported)}


def approval_of(message):
    """The approval that a message approves, if it is a pressed button."""
    return message["interactive"]["button_reply"]["id"].split(":")[1] if message["type"] == "interactive" else None


class Writer:
    """One message of a person. Has the interface of a client where an experiment needs it."""

    def __init__(self, meta, server, run, user, content):
        self.meta, self.server, self.run, self.user = meta, server, run, user
        self.message = meta.message(digits(user), content)

    def attempt(self):
        self.meta.deliver(self.message)

    def ended(self):
        """The turn has ended. (The auditor looks whether its answer arrived.)"""
        try:
            found = self.server.rows(f"SELECT t.finished_at FROM inbox i JOIN turns t ON t.id = i.turn_id WHERE i.external_id = '{self.message['id']}'")
        except AssertionError:
            return False  # the database restarts
        return bool(found and found[0]["finished_at"])

    def finish(self, seconds=60):
        until(lambda: self.ended() or time.sleep(0.1), seconds, f"the end of {self.run}")
