"""Interrupted streams: a client that is disconnected anywhere rebuilds exactly the stored text."""
import json
import threading

from check_recovery import begin, kill
from check_turns import Scenario
from fakes import calls, text
from server import DEMO, events, until


class Reader:
    """A correct client: it collects text per step, replaces it on a snapshot and discards it on a reset."""

    def __init__(self):
        self.last, self.steps, self.ended = 0, {}, None

    def take(self, number, name, data):
        if number is not None:
            assert number > self.last, (number, self.last)
            self.last = number
        if name == "assistant_token":
            self.steps[data["step"]] = self.steps.get(data["step"], "") + data["content"]
        elif name == "assistant_snapshot":
            self.steps[data["step"]] = data["content"]
        elif name == "assistant_reset":
            self.steps.pop(data["step"], None)
        elif name in ("final", "error"):
            self.ended = data


def check_cut_off_at_every_event_and_reconnected():
    with Scenario() as (model, _, server):
        whole = "Grüße aus Köln, Stück für Stück – 😀 done."
        cut_at = 0
        while True:
            model.script = [calls(("test_echo", {"value": 1}), before="I look it up."), text(whole, 9)]
            reader, taken = Reader(), 0
            with server.open("POST", "/api/chat", {"message": "Hi"}) as answer:
                conversation = answer.headers["x-conversation-id"]
                for event in events(answer):
                    if taken == cut_at:
                        break
                    reader.take(*event)
                    taken += 1
            if reader.ended:
                break
            with server.open("GET", f"/api/conversations/{conversation}/events", headers={"last-event-id": str(reader.last)}) as answer:
                for event in events(answer):
                    reader.take(*event)
                    if reader.ended:
                        break
            stored = server.rows("SELECT content FROM messages WHERE conversation_id = ? AND role = 'assistant' ORDER BY seq DESC LIMIT 1", conversation)[0]["content"]
            assert reader.ended["message"]["content"] == stored == whole
            # Text that came in pieces is a prefix of the whole text: nothing wrong, nothing twice. `final` has all of it.
            assert whole.startswith(reader.steps.get(2, "")), (cut_at, reader.steps)
            cut_at += 1
        # At least init, text, its snapshot, tool_started, tool_finished and final; the number of tokens depends on the network.
        assert cut_at >= 6, cut_at


def check_a_late_subscriber_gets_a_snapshot_and_the_rest():
    with Scenario() as (model, _, server):
        gate = threading.Event()

        def slow(request):
            chunks = text("one two three four", 4)

            def pieces():
                for at, chunk in enumerate(chunks):
                    if at == 3:
                        gate.wait(20)
                    yield chunk
            return LazyChunks(pieces(), len(chunks))

        model.script = [slow]
        _, accepted, _ = server.call("POST", "/api/chat", {"message": "Hi", "background": True})
        conversation = accepted["conversation_id"]
        until(lambda: model.requests)
        with server.open("GET", f"/api/conversations/{conversation}/events?after=0", headers={"accept": "text/event-stream"}) as answer:
            reader, names = Reader(), []
            for event in events(answer):
                names.append(event[1])
                reader.take(*event)
                gate.set()
                if reader.ended:
                    break
        assert reader.steps.get(1, "one two three four") == "one two three four" == reader.ended["message"]["content"], (names, reader.steps)


def follow(server, conversation, reader, most=None):
    """Continues from the reader's position, for at most so many events or to the end of the turn; returns the event names."""
    path = f"/api/conversations/{conversation}/events"
    names = []
    with server.open("GET", path, headers={"last-event-id": str(reader.last), "accept": "text/event-stream"}) as answer:
        for event in events(answer):
            reader.take(*event)
            names.append(event[1])
            if reader.ended or len(names) == most:
                break
    return names


def stored_texts(server, conversation):
    """The assistant's messages, step by step."""
    rows = server.rows("SELECT content FROM messages WHERE conversation_id = ? AND role = 'assistant' ORDER BY seq", conversation)
    return [row["content"] for row in rows]


FIRST, SECOND, LAST = "Ich sehe nach – 😀.", "Noch einmal, gründlicher.", "Grüße aus Köln: alles da."


def check_cut_off_after_every_single_event():
    """Several steps and an interrupted model stream: a client that gets one event per connection has everything in the end."""
    for most in (1, 2, 3):
        with Scenario() as (model, _, server):
            model.script = [calls(("test_echo", {"value": 1}), before=FIRST),
                            ("cut", text("Noch einmal, ganz anders als", 4)), calls(("test_echo", {"value": 2}), before=SECOND),
                            ("cut", text("Falsch", 3)), text(LAST, 9)]
            accepted = begin(server, "Hi")
            reader, connections, names = Reader(), 0, []
            while not reader.ended:
                names += follow(server, accepted["conversation_id"], reader, most)
                connections += 1
            stored = stored_texts(server, accepted["conversation_id"])
            assert stored == [FIRST, SECOND, LAST], stored
            assert reader.ended["message"]["content"] == LAST
            # The texts of finished steps are rows. Of the last step a client has what it received, and all of it in `final`.
            assert (reader.steps[1], reader.steps[2]) == (FIRST, SECOND), reader.steps
            assert LAST.startswith(reader.steps.get(3, "")), reader.steps
            assert names.count("assistant_reset") == 2 and connections >= names.count("final") + 8 // most, names


def check_a_restart_in_the_middle_of_a_text():
    """Killed during the model's text, at several positions: the shown text is reset, and the new text is complete."""
    for place in range(1, 5):
        with Scenario() as (model, _, server):
            gate = threading.Event()

            def breaks_off(request):
                chunks = text("one two three four", 4)

                def pieces():
                    yield from chunks[:place + 1]
                    gate.wait(30)
                return LazyChunks(pieces(), place)

            model.script = [calls(("test_echo", {"value": 1}), before=FIRST), breaks_off, text(LAST, 5)]
            accepted = begin(server, "Hi")
            conversation, reader = accepted["conversation_id"], Reader()
            shown = "one two three four"[:4 * place]
            with server.open("GET", f"/api/conversations/{conversation}/events", headers={"last-event-id": "0"}) as answer:
                for event in events(answer):
                    reader.take(*event)
                    if reader.steps.get(2) == shown:
                        break
            # The shown text is checkpointed about a second later, and the checkpoint is deleted with the step.
            checkpoints = lambda: server.rows("SELECT partial FROM turns WHERE partial IS NOT NULL")
            until(lambda: [row["partial"] for row in checkpoints()] == [shown], what="the checkpoint")
            kill(server)
            gate.set()
            server.start()
            names = follow(server, conversation, reader)
            assert "assistant_reset" in names, names
            assert reader.ended["message"]["content"] == LAST == stored_texts(server, conversation)[-1]
            assert reader.steps[1] == FIRST and LAST.startswith(reader.steps.get(2, "")), reader.steps
            assert checkpoints() == []


def resident(server):
    """KiB of the server's memory."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4


def check_a_slow_reader_of_a_long_log_holds_one_batch_in_memory():
    count, size, readers = 12000, 2000, 20
    with Scenario() as (_, _, server):
        _, answer, _ = server.chat("Hi")
        conversation = answer["conversation_id"]
        server.stop()
        [last] = [row["n"] for row in server.rows("SELECT max(seq) AS n FROM events WHERE conversation_id = ?", conversation)]
        rows = ((conversation, last + n, DEMO, answer["turn_id"], "tool_started", json.dumps({"n": n, "x": "y" * size}), "2026-01-01T00:00:00.000Z")
                for n in range(1, count + 1))
        server.change(*(("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row) for row in rows),
                     ("UPDATE leases SET next_event_seq = ? WHERE conversation_id = ?", [last + count + 1, conversation]))
        server.start()
        path = f"/api/conversations/{conversation}/events"
        numbers = lambda answer: (number for number, _, _ in events(answer) if number)

        def whole():
            with server.open("GET", path, headers={"last-event-id": "0"}) as answer:
                for expected, number in enumerate(numbers(answer), 1):
                    assert number == expected, (number, expected)
                    if number == last + count:
                        return

        whole()  # also warms up the server
        before = resident(server)
        slow = [server.open("GET", path, headers={"last-event-id": "0"}) for _ in range(readers)]
        for answer in slow:
            assert next(numbers(answer)) == 1
        whole()
        grown = resident(server) - before
        # The log is 24 MB; loaded as a whole it would take half a gigabyte for these readers.
        assert grown < 24 * 1024, f"{grown} KiB for {readers} slow readers"
        # A slow reader still gets every event.
        for expected, number in zip(range(2, last + count + 1), numbers(slow[0])):
            assert number == expected, (number, expected)
        for answer in slow:
            answer.close()


def check_deleted_events_are_reported_as_gone():
    with Scenario(config="\n[retention]\nevents_days = 30\n") as (_, _, server):
        _, answer, _ = server.chat("Hi")
        conversation = answer["conversation_id"]
        path = f"/api/conversations/{conversation}/events"
        done = server.cli("retention", "run", "--json")
        assert json.loads(done.stdout)["events"] == 0, done
        server.stop()
        server.change(("UPDATE events SET created_at = '2020-01-01T00:00:00.000Z'", []))
        server.start()  # deletes old events at start, and every hour
        until(lambda: server.rows("SELECT count(*) AS n FROM events")[0]["n"] == 0, what="the end of old events")
        server.chat("Again", conversation)
        for headers, query in (({}, "?after=0"), ({"last-event-id": "1"}, "")):
            status, refused, _ = server.call("GET", path + query, headers=headers)
            assert (status, refused["error"]["code"], refused["error"]["details"]) == (410, "events_gone", {"first_seq": 3}), refused
        _, remaining, _ = server.call("GET", path + "?after=2")
        assert [e["seq"] for e in remaining["events"]] == [3, 4]
        assert [row["content"] for row in server.rows("SELECT content FROM messages WHERE role = 'user' ORDER BY seq")] == ["Hi", "Again"]


class LazyChunks(list):
    """Chunks that the fake model consumes one by one."""

    def __init__(self, pieces, length):
        super().__init__()
        self.pieces = pieces

    def __add__(self, more):
        def chained():
            yield from self.pieces
            yield from more
        return chained()
