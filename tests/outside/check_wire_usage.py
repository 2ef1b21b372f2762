"""What recorded streams of providers say of their tokens is what the usage rows say: a fake provider sends the bytes, a turn receives them."""
import json
import os
import pathlib
import threading

from fakes import FakeEndpoint, FakeServer, chunk
from server import ROOT, Server

# The project's own corpus, and recordings beside the checkout if they exist.
FOLDERS = [ROOT / "tests/corpus/wire", pathlib.Path(os.environ.get("WERKRUF_WIRE", ROOT.parent / "shared/fixtures/wire"))]
KINDS = {".sse": "text/event-stream", ".jsonl": "application/x-ndjson"}


class Recorded(FakeServer):
    """Answers the first request of each turn with the bytes of a recording, and the others with a short text."""

    def __init__(self):
        self.recording = None

        class Endpoint(FakeEndpoint):
            def do_POST(self):
                self.note_request()
                with self.owner.lock:
                    recording, self.owner.recording = self.owner.recording, None
                if recording:
                    self.answer(200, recording.read_bytes(), kind=KINDS[recording.suffix])
                else:
                    self.answer(200, short_answer(self.path), kind="text/event-stream")

            def note_request(self):
                self.owner.note(json.loads(self.body()))

        super().__init__(Endpoint)


def short_answer(path):
    if path.endswith("/responses"):
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}
        event = {"type": "response.completed", "response": {"id": "resp_end", "status": "completed", "output": [message]}}
        return f"data: {json.dumps(event)}\n\n".encode()
    return f"data: {json.dumps(chunk({'role': 'assistant', 'content': 'Done.'}, 'stop'))}\n\ndata: [DONE]\n\n".encode()


def first(fields, *names):
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def reported(usage):
    """The columns of a usage row that the provider reported."""
    inner = lambda name, *parts: next((usage[part][name] for part in parts if (usage.get(part) or {}).get(name) is not None), None)
    prompt, completion = first(usage, "prompt_tokens", "input_tokens") or 0, first(usage, "completion_tokens", "output_tokens") or 0
    cached = inner("cached_tokens", "prompt_tokens_details", "input_tokens_details")
    cached = first(usage, "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens") if cached is None else cached
    total = usage.get("total_tokens")
    return {
        "tokens_prompt": prompt,
        "tokens_cached": cached or 0,
        "tokens_completion": completion,
        "tokens_reasoning": inner("reasoning_tokens", "completion_tokens_details", "output_tokens_details") or 0,
        "tokens_total": prompt + completion if total is None else total,
        "estimated": 0,
    }


def fault(row, fact):
    """How the first row of a turn differs from what the recording says."""
    if fact.get("usage"):
        want = reported(fact["usage"])
        have = {name: row[name] for name in want}
        return None if have == want else f"{have} instead of {want}"
    # Without a report the tokens are estimated. A request that was refused has none.
    refused = row["tokens_total"] == 0 and not fact.get("final_text")
    return None if row["estimated"] == 1 or refused else f"not marked as estimated: {dict(row)}"


def replay(api, recordings):
    model = Recorded()
    server = Server(model, env={"OPENAI_API": api})
    faults = []
    try:
        for number, (file, fact) in enumerate(recordings):
            message = f"Recording {number}"
            model.recording = file
            server.chat(message)
            rows = server.rows("SELECT u.tokens_prompt, u.tokens_cached, u.tokens_completion, u.tokens_reasoning, u.tokens_total, u.estimated FROM api_usage u "
                               "JOIN messages m ON m.turn_id = u.turn_id WHERE m.role = 'user' AND m.content = ? ORDER BY u.id LIMIT 1", message)
            wrong = fault(rows[0], fact) if rows else "no usage row"
            if wrong:
                faults.append(f"{file.name}: {wrong}")
    finally:
        server.close()
        model.close()
    return faults


def check_recorded_usage_is_in_the_usage_rows():
    recordings = {"chat": [], "responses": []}
    for folder in FOLDERS:
        if not (folder / "index.json").exists():
            continue
        for entry in json.loads((folder / "index.json").read_text())["entries"]:
            if entry["file"].startswith("streams/"):
                api = "responses" if entry["expected"]["api"] == "responses" else "chat"
                recordings[api].append((folder / entry["file"], entry["expected"]))
    assert min(len(list) for list in recordings.values()) >= 15
    faults = []
    # Two servers at once: a turn whose answer breaks off waits before it is tried again.
    threads = [threading.Thread(target=lambda api=api: faults.extend(replay(api, recordings[api]))) for api in recordings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(len(list) for list in recordings.values())} streams replayed")
    assert not faults, "\n".join(faults)


def check_a_wrong_report_is_found():
    """A comparison that finds nothing proves nothing."""
    row = {"tokens_prompt": 10, "tokens_cached": 4, "tokens_completion": 5, "tokens_reasoning": 0, "tokens_total": 15, "estimated": 0}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    assert fault(row, {"usage": usage}) is None
    assert fault(row, {"usage": {**usage, "completion_tokens": 6}}) and fault({**row, "estimated": 1}, {"usage": usage})
    assert fault(row, {"usage": None, "final_text": "Hot."}) and fault(row, {"usage": None}) and not fault({**row, "estimated": 1}, {"usage": None})
