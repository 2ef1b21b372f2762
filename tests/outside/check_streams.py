"""Streams that break and go on: a client cut off anywhere rebuilds exactly the stored text."""
import threading

from check_spine import Scene
from fakes import calls, text
from house import events, until


class Reader:
    """What a careful client does: text per step, replaced by snapshots, thrown away by resets."""

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
    with Scene() as (model, _, house):
        whole = "Grüße aus Köln, Stück für Stück – 😀 done."
        cut_at = 0
        while True:
            model.script = [calls(("test_echo", {"value": 1}), before="I look it up."), text(whole, 9)]
            reader, taken = Reader(), 0
            with house.open("POST", "/api/chat", {"message": "Hi"}) as answer:
                conversation = answer.headers["x-conversation-id"]
                for event in events(answer):
                    if taken == cut_at:
                        break
                    reader.take(*event)
                    taken += 1
            if reader.ended:
                break
            with house.open("GET", f"/api/conversations/{conversation}/events", headers={"last-event-id": str(reader.last)}) as answer:
                for event in events(answer):
                    reader.take(*event)
                    if reader.ended:
                        break
            stored = house.rows("SELECT content FROM messages WHERE conversation_id = ? AND role = 'assistant' ORDER BY seq DESC LIMIT 1", conversation)[0]["content"]
            assert reader.ended["message"]["content"] == stored == whole
            # Text that came in pieces is the beginning of the whole: nothing wrong, nothing twice. `final` has all of it.
            assert whole.startswith(reader.steps.get(2, "")), (cut_at, reader.steps)
            cut_at += 1
        # init, text, its snapshot, tool_started, tool_finished, final at the least; how many tokens is up to the network.
        assert cut_at >= 6, cut_at


def check_who_joins_in_the_middle_gets_a_snapshot_and_the_rest():
    with Scene() as (model, _, house):
        gate = threading.Event()

        def slow(request):
            chunks = text("one two three four", 4)

            def pieces():
                for at, chunk in enumerate(chunks):
                    if at == 3:
                        gate.wait(20)
                    yield chunk
            return list_lazily(pieces(), len(chunks))

        model.script = [slow]
        _, accepted, _ = house.call("POST", "/api/chat", {"message": "Hi", "background": True})
        conversation = accepted["conversation_id"]
        until(lambda: model.requests)
        with house.open("GET", f"/api/conversations/{conversation}/events?after=0", headers={"accept": "text/event-stream"}) as answer:
            reader, names = Reader(), []
            for event in events(answer):
                names.append(event[1])
                reader.take(*event)
                gate.set()
                if reader.ended:
                    break
        assert reader.steps.get(1, "one two three four") == "one two three four" == reader.ended["message"]["content"], (names, reader.steps)


class list_lazily(list):
    """Chunks that the fake model takes one by one."""

    def __init__(self, pieces, length):
        super().__init__()
        self.pieces = pieces

    def __add__(self, more):
        def chained():
            yield from self.pieces
            yield from more
        return chained()
