"""What every client does, and what the server and the model must have seen of it. A scenario gets `run`, which makes the client's program run
one of its own scenarios and returns what it received."""
import json
import threading

from fakes import calls, chunk, text
from server import until

TWO_TOOLS = "Here is tea, and here is cake."
OWN_TOOL = "It is sunny in Bonn."
WEATHER = {"city": "Bonn", "degrees": 21}
OVERFLOW = {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
                      "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}


def server_tool(run, model, server):
    """A streamed turn with two parallel server tools: the client receives text and no tool calls."""
    model.script = [calls(("test_echo", {"value": "tea"}), ("test_echo", {"value": "cake"})), text(TWO_TOOLS, pieces=6)]
    received, requests = run("server_tool")
    assert received["text"] == TWO_TOOLS, received
    # The number of pieces depends on timing: text that arrives while results are being stored is sent afterwards in one piece.
    assert received["pieces"] >= 1 and not received["calls"], received
    assert received["total_tokens"] == 30, received
    assert len(requests) == 2, len(requests)
    results = [json.loads(m["content"]) for m in requests[1]["messages"] if m["role"] == "tool"]
    assert [r["data"]["value"] if "data" in r else r["value"] for r in results] == ["tea", "cake"], results


def client_tool(run, model, server):
    """A turn with a client tool: the client receives the call, runs it, and its result continues the conversation."""
    model.script = [calls(("my_weather", {"city": "Bonn"}, "call_weather_%d" % len(model.requests))), text(OWN_TOOL)]
    conversations = len(server.rows("SELECT id FROM conversations"))
    received, requests = run("client_tool")
    assert received["text"] == OWN_TOOL, received
    assert [(c["name"], c["arguments"]) for c in received["calls"]] == [("my_weather", {"city": "Bonn"})], received
    assert len(requests) == 2, len(requests)
    last = requests[1]["messages"][-1]
    assert last["role"] == "tool" and "sunny" in last["content"], last
    assert len(server.rows("SELECT id FROM conversations")) == conversations + 1, "call and result belong to one conversation"


def structured(run, model, server):
    """An answer of a class. The model writes text before it calls a server tool; only the last step's text is the answer."""
    model.script = [calls(("test_echo", {"value": "Bonn"}), before="Let me look. "), text(json.dumps(WEATHER))]
    received, requests = run("structured")
    assert received == WEATHER, received
    assert [r["response_format"]["type"] for r in requests] == ["json_schema", "json_schema"], requests


def structured_tool(run, model, server):
    """The same, where the client asks for the answer as a call of its own tool. The choice stands until the model called it."""
    model.script = [calls(("test_echo", {"value": "Bonn"}), before="Let me look. "), lambda request: calls((wanted_tool(request), WEATHER))]
    received, requests = run("structured", "tool")
    assert received == WEATHER, received
    choices = [r.get("tool_choice") for r in requests]
    assert len(choices) == 2 and choices[0] == choices[1] and choices[0] not in (None, "auto"), choices


def wanted_tool(request):
    """The client's tool: the one with the fields of the answer."""
    return next(t["function"]["name"] for t in request["tools"] if "degrees" in t["function"]["parameters"].get("properties", {}))


def image(run, model, server, say=str):
    """An image reaches the model."""
    model.script = [text(say("A white dot."))]
    received, requests = run("image")
    assert received["text"] == "A white dot.", received
    parts = [part for part in requests[0]["messages"][-1]["content"] if part["type"] == "image_url"]
    assert [part["image_url"]["url"][:22] for part in parts] == ["data:image/png;base64,"], requests[0]["messages"][-1]


def usage(run, model, server, say=str):
    """Without a stream: the tokens of both model requests."""
    model.script = [calls(("test_echo", {"value": "tea"})), text(say("Tea."))]
    received, _ = run("usage")
    assert received["total_tokens"] == 30, received


def overflow(run, model, server):
    """The provider refuses a request that is too long: the client sees a bad request with the provider's code, and does not repeat it."""
    model.script = [("status", 400, {}, OVERFLOW)]
    received, requests = run("overflow")
    assert received["status"] in (400, None) and (received["code"] == "context_length_exceeded" or "ContextWindow" in received["class"]), received
    assert len(requests) == 1, len(requests)


def stop(run, model, server):
    """A client that leaves a stream ends its turn, and what was said is kept."""
    left = threading.Event()
    model.script = [[chunk({"role": "assistant", "content": "One two "}), lambda: left.wait(20), *text("three.")]]
    known = {row["id"] for row in server.rows("SELECT id FROM turns")}
    try:
        received, _ = run("stop")
        assert received["text"].startswith("One"), received
        ended = "SELECT id, status, conversation_id FROM turns WHERE finished_at IS NOT NULL"
        [turn] = until(lambda: [row for row in server.rows(ended) if row["id"] not in known], 12, "the end of the turn")
        assert turn["status"] == "canceled", turn
        messages = server.rows("SELECT content FROM messages WHERE conversation_id = ? AND role = 'assistant'", turn["conversation_id"])
        said = [row["content"] for row in messages]
        assert len(said) == 1 and "One two" in said[0], said
    finally:
        left.set()


def session(run, model, server, kind):
    """Two turns in one session of the Agents SDK."""
    model.script = [text("Noted."), text("You said tea.")]
    received, requests = run("session", kind)
    assert received["texts"] == ["Noted.", "You said tea."], received
    assert [role for role, _ in received["items"]] == ["user", "assistant", "user", "assistant"], received
    assert [m["role"] for m in requests[1]["messages"] if m["role"] != "system"] == ["user", "assistant", "user"], requests[1]["messages"]


def session_of_client(run, model, server):
    """The client keeps the session."""
    session(run, model, server, "client")


def session_of_server(run, model, server):
    """The server keeps the session (`/v1/conversations`)."""
    session(run, model, server, "server")


def history(run, model, server):
    """`messages_from_dict` reads the export, the server imports what `messages_to_dict` writes, and nothing is lost in between."""
    model.script = [calls(("test_echo", {"value": "tea"}), ("test_echo", {"value": "cake"})), text(TWO_TOOLS)]
    status, answer, _ = server.call("POST", "/api/chat", {"message": "tea and cake please"}, headers={"accept": "application/json"})
    assert status == 200, answer
    received, _ = run("history", answer["conversation_id"])
    assert received["text"] == TWO_TOOLS, received
    assert received["calls"] == [{"name": "test_echo", "arguments": {"value": value}} for value in ("tea", "cake")], received
    assert received["plain"][0] == received["plain"][1] and len(received["plain"][0]) == 5, received
