"""Request bodies recorded from real clients of OpenAI's APIs: none is rejected, none breaks the server."""
import json
import os
import pathlib

from fakes import Model
from server import ROOT, Server

# The project's own corpus, and recordings beside the checkout if they exist.
FOLDERS = [ROOT / "tests/corpus/requests", pathlib.Path(os.environ.get("WERKRUF_WIRE_REQUESTS", ROOT.parent / "shared/fixtures/wire/requests"))]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}


def check_openai_requests_of_real_clients_are_answered():
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.json"))]
    assert len(list(FOLDERS[0].glob("*.json"))) >= 18
    model = Model()
    server = Server(model)
    faults, answered = [], {}
    try:
        status, made, _ = server.call("POST", "/api/keys", {"user_id": 1, "scopes": ["chat"]})
        assert status == 201, made
        served = server.call("GET", "/openapi.json", key=None)[1]["paths"]
        for file in files:
            api = file.name.split("-")[0]
            if PATHS[api] not in served:
                continue
            fault = replayed(server, made["key"], PATHS[api], json.loads(file.read_text()))
            fault = fault or missing_message(model.last()["messages"], json.loads(file.read_text()))
            answered[api] = answered.get(api, 0) + 1
            if fault:
                faults.append(f"{file.name}: {fault}")
    finally:
        server.close()
        model.close()
    print(", ".join(f"{count} {api} bodies" for api, count in answered.items()) + " replayed")
    assert not faults, "\n".join(faults)


def replayed(server, key, path, body):
    """Sends a recorded request; returns what is wrong with the response, or None."""
    status, answer, headers = server.call("POST", path, body, key=key)
    if status != 200:
        # A conversation of another server cannot be continued here, and the server must report that.
        foreign = body.get("previous_response_id") or body.get("conversation")
        if foreign and status == 404:
            return None
        return f"{status} {answer}"
    if "x-conversation-id" not in headers or "x-werkruf-model" not in headers:
        return f"headers are missing: {dict(headers)}"
    if body.get("stream"):
        return None if "Done." in pieces(answer) else f"the stream lacks the text of the model: {answer[-500:]}"
    if answer["model"] != body.get("model", answer["model"]):
        return f"the model is not echoed: {answer['model']}"
    if "choices" in answer:
        choice = answer["choices"][0]
        return None if (choice["message"]["content"], choice["finish_reason"]) == ("Done.", "stop") else f"not the answer: {choice}"
    if body.get("background") and answer["status"] in ("queued", "in_progress"):
        return None
    return None if "Done." in json.dumps(answer["output"]) else f"not the answer: {answer}"


def missing_message(messages_sent, body):
    """Checks that the last user message reaches the model verbatim, as its last message."""
    messages = body.get("messages") or []
    if not messages or messages[-1].get("role") != "user" or not isinstance(messages[-1].get("content"), str):
        return None
    last = messages_sent[-1]
    return None if (last["role"], last["content"]) == ("user", messages[-1]["content"]) else f"the model received {last}"


def pieces(stream):
    """The text of a stream of either API."""
    out = ""
    for line in stream.splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line[6:])
        if event.get("type") == "response.output_text.delta":
            out += event["delta"]
        for choice in event.get("choices", []):
            out += choice["delta"].get("content") or ""
    return out
