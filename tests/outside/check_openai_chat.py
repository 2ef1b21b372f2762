"""Chat Completions as a program without any library speaks them, through restarts, approvals and broken models."""
import json
import signal
import threading

from fakes import Model, Tool, calls, text
from house import House, until

OWN = [{"type": "function", "function": {"name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CAREFUL = """
[[tools]]
name = "pay"
description = "Pays"
kind = "http"
url = "%s/pay"
effect = "once"
approval = "lead"
parameters = '''{"type": "object", "properties": {"sum": {"type": "integer"}}}'''
"""


def ask(house, messages, **more):
    headers = more.pop("headers", None)
    return house.call("POST", "/v1/chat/completions", {"model": "gpt-4o", "messages": messages, **more}, headers=headers)


def chunks(house, messages, **more):
    status, stream, headers = ask(house, messages, stream=True, **more)
    assert status == 200, stream
    lines = [line[6:] for line in stream.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"], lines[-1] == "[DONE]", headers


def user(words):
    return {"role": "user", "content": words}


def check_openai_chat_mixed_turn_survives_a_kill():
    model = Model()
    house = House(model)
    try:
        model.script = [calls(("test_echo", {"value": "tea"}, "call_ours"), ("my_weather", {"city": "Bonn"}, "call_theirs"), before="Wait.")]
        status, first, headers = ask(house, [user("hi")], tools=OWN)
        assert status == 200, first
        choice = first["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Wait.", choice
        assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_theirs"], choice
        assert first["usage"]["total_tokens"] == 15, first["usage"]
        house.stop(signal.SIGKILL)
        house.start()
        model.script = [text("Sunny tea.")]
        result = {"role": "tool", "tool_call_id": "call_theirs", "content": [{"type": "text", "text": "sunny"}]}
        status, second, later = ask(house, [user("hi"), choice["message"], result], tools=OWN)
        assert status == 200 and second["choices"][0]["message"]["content"] == "Sunny tea.", second
        assert later["x-conversation-id"] == headers["x-conversation-id"]
        asked = model.last()["messages"]
        [said] = [m for m in asked if m["role"] == "assistant"]
        assert [c["id"] for c in said["tool_calls"]] == ["call_ours", "call_theirs"] and said["content"] == "Wait.", said
        results = {m["tool_call_id"]: m["content"] for m in asked if m["role"] == "tool"}
        assert results["call_theirs"] == "sunny" and "tea" in results["call_ours"], results
        [call] = house.rows("SELECT tool_name, status FROM tool_calls")
        assert call == {"tool_name": "test_echo", "status": "succeeded"}, "the client's call has no row"
    finally:
        house.close()
        model.close()


def check_openai_chat_streams_text_of_all_steps():
    model = Model()
    house = House(model)
    try:
        two = calls(("test_echo", {"value": 1}), ("test_echo", {"value": 2}), before="Let me see.\n")
        model.script = [two, text("Here – both."), text("Again.")]
        seen, done, headers = chunks(house, [user("hi")], stream_options={"include_usage": True})
        assert done and seen[0]["choices"][0]["delta"]["role"] == "assistant"
        said = "".join(c["delta"].get("content") or "" for chunk in seen for c in chunk["choices"])
        assert said == "Let me see.\nHere – both.", said
        assert seen[-1]["choices"] == [] and seen[-1]["usage"]["total_tokens"] == 30 and all(chunk["usage"] is None for chunk in seen[:-1])
        assert not any("tool_calls" in c["delta"] for chunk in seen for c in chunk["choices"])
        # What the client saw, sent again, is known again.
        _, _, later = chunks(house, [user("hi"), {"role": "assistant", "content": said}, user("more")])
        assert later["x-conversation-id"] == headers["x-conversation-id"]
    finally:
        house.close()
        model.close()


def check_openai_chat_says_what_waits_for_a_person():
    model = Model()
    tool = Tool(lambda request, number: (200, {"paid": True}, {}))
    house = House(model, CAREFUL % tool.url)
    try:
        for stream in (False, True):
            model.script = [calls(("pay", {"sum": 5 + stream})), text("Paid.")]
            if stream:
                seen, done, headers = chunks(house, [user("pay")])
                said = "".join(c["delta"].get("content") or "" for chunk in seen for c in chunk["choices"])
                assert done and seen[-1]["choices"][0]["finish_reason"] == "stop"
            else:
                status, answer, headers = ask(house, [user("pay")])
                assert status == 200 and answer["choices"][0]["finish_reason"] == "stop", answer
                said = answer["choices"][0]["message"]["content"]
            conversation = headers["x-conversation-id"]
            [approval] = house.rows("SELECT a.id FROM approvals a JOIN turns t ON t.id = a.turn_id WHERE t.conversation_id = ?", conversation)
            assert approval["id"] in said and "pay" in said, said
            assert headers["x-approval-id"] == approval["id"]
            status, decided, _ = house.call("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})
            assert status < 300, decided
            until(lambda: house.rows("SELECT 1 FROM turns WHERE conversation_id = ? AND status = 'completed'", conversation), what="the turn")
        assert len(tool.requests) == 2
    finally:
        house.close()
        model.close()
        tool.close()


def check_openai_chat_many_at_once():
    model = Model()
    house = House(model)
    try:
        wrong = []

        def one(number):
            model_says = "Done."
            status, answer, _ = ask(house, [user(f"message {number}")])
            if status != 200 or answer["choices"][0]["message"]["content"] != model_says:
                wrong.append((number, status, answer))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        assert len(house.rows("SELECT id FROM conversations WHERE channel = 'openai'")) == 24
    finally:
        house.close()
        model.close()
