"""Chat Completions with plain HTTP and no client library, across restarts, approvals and failing models."""
import json
import signal
import threading

from fakes import Model, Tool, calls, text
from server import Server, until

OWN = [{"type": "function", "function": {"name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CAREFUL = """
[[tools]]
name = "pay"
description = "Pays"
kind = "http"
url = "%s/pay"
effect = "once"
permission = "none"
approval = "lead"
parameters = '''{"type": "object", "properties": {"sum": {"type": "integer"}}}'''
"""


def ask(server, messages, **more):
    headers = more.pop("headers", None)
    return server.call("POST", "/v1/chat/completions", {"model": "gpt-4o", "messages": messages, **more}, headers=headers)


def chunks(server, messages, **more):
    status, stream, headers = ask(server, messages, stream=True, **more)
    assert status == 200, stream
    lines = [line[6:] for line in stream.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"], lines[-1] == "[DONE]", headers


def user(content):
    return {"role": "user", "content": content}


def check_openai_chat_mixed_turn_survives_a_kill():
    model = Model()
    server = Server(model)
    try:
        model.script = [calls(("test_echo", {"value": "tea"}, "call_ours"), ("my_weather", {"city": "Bonn"}, "call_theirs"), before="Wait.")]
        status, first, headers = ask(server, [user("hi")], tools=OWN)
        assert status == 200, first
        choice = first["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Wait.", choice
        assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_theirs"], choice
        assert first["usage"]["total_tokens"] == 15, first["usage"]
        server.stop(signal.SIGKILL)
        server.start()
        model.script = [text("Sunny tea.")]
        result = {"role": "tool", "tool_call_id": "call_theirs", "content": [{"type": "text", "text": "sunny"}]}
        status, second, later = ask(server, [user("hi"), choice["message"], result], tools=OWN)
        assert status == 200 and second["choices"][0]["message"]["content"] == "Sunny tea.", second
        assert later["x-conversation-id"] == headers["x-conversation-id"]
        messages = model.last()["messages"]
        [reply] = [m for m in messages if m["role"] == "assistant"]
        assert [c["id"] for c in reply["tool_calls"]] == ["call_ours", "call_theirs"] and reply["content"] == "Wait.", reply
        results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
        assert results["call_theirs"] == "sunny" and "tea" in results["call_ours"], results
        [call] = server.rows("SELECT tool_name, status FROM tool_calls")
        assert call == {"tool_name": "test_echo", "status": "succeeded"}, "the client's call has no row"
    finally:
        server.close()
        model.close()


def check_openai_chat_streams_text_of_all_steps():
    model = Model()
    server = Server(model)
    try:
        two = calls(("test_echo", {"value": 1}), ("test_echo", {"value": 2}), before="Let me see.\n")
        model.script = [two, text("Here – both."), text("Again.")]
        received, done, headers = chunks(server, [user("hi")], stream_options={"include_usage": True})
        assert done and received[0]["choices"][0]["delta"]["role"] == "assistant"
        reply = "".join(c["delta"].get("content") or "" for chunk in received for c in chunk["choices"])
        assert reply == "Let me see.\nHere – both.", reply
        assert received[-1]["choices"] == [] and received[-1]["usage"]["total_tokens"] == 30 and all(chunk["usage"] is None for chunk in received[:-1])
        assert not any("tool_calls" in c["delta"] for chunk in received for c in chunk["choices"])
        # A client that sends the transcript back continues the same conversation.
        _, _, later = chunks(server, [user("hi"), {"role": "assistant", "content": reply}, user("more")])
        assert later["x-conversation-id"] == headers["x-conversation-id"]
    finally:
        server.close()
        model.close()


def check_openai_chat_reports_what_awaits_approval():
    model = Model()
    tool = Tool(lambda request, number: (200, {"paid": True}, {}))
    server = Server(model, CAREFUL % tool.url)
    try:
        for stream in (False, True):
            model.script = [calls(("pay", {"sum": 5 + stream})), text("Paid.")]
            if stream:
                received, done, headers = chunks(server, [user("pay")])
                reply = "".join(c["delta"].get("content") or "" for chunk in received for c in chunk["choices"])
                assert done and received[-1]["choices"][0]["finish_reason"] == "stop"
            else:
                status, answer, headers = ask(server, [user("pay")])
                assert status == 200 and answer["choices"][0]["finish_reason"] == "stop", answer
                reply = answer["choices"][0]["message"]["content"]
            conversation = headers["x-conversation-id"]
            [approval] = server.rows("SELECT a.id FROM approvals a JOIN turns t ON t.id = a.turn_id WHERE t.conversation_id = ?", conversation)
            assert approval["id"] in reply and "pay" in reply, reply
            assert headers["x-approval-id"] == approval["id"]
            status, decided, _ = server.call("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})
            assert status < 300, decided
            until(lambda: server.rows("SELECT 1 FROM turns WHERE conversation_id = ? AND status = 'completed'", conversation), what="the turn")
        assert len(tool.requests) == 2
    finally:
        server.close()
        model.close()
        tool.close()


def check_openai_chat_many_concurrent_requests():
    model = Model()
    server = Server(model)
    try:
        wrong = []

        def one(number):
            model_says = "Done."
            status, answer, _ = ask(server, [user(f"message {number}")])
            if status != 200 or answer["choices"][0]["message"]["content"] != model_says:
                wrong.append((number, status, answer))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert len(server.rows("SELECT id FROM conversations WHERE channel = 'openai'")) == 24
    finally:
        server.close()
        model.close()
