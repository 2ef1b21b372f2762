"""How a client of the OpenAI APIs returns to a conversation: no path mixes conversations, hides an effect or repeats one."""
import threading

from fakes import calls, text
from server import until, with_model_and_tool

OWN = [{"type": "function", "function": {"name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
MAIL = """
[[tools]]
name = "send_mail"
description = "Sends a mail."
kind = "http"
url = "{url}/mail"
effect = "once"
permission = "none"
parameters = '''{{"type": "object", "properties": {{"to": {{"type": "string"}}}}}}'''
"""


def scenario():
    return with_model_and_tool(MAIL, lambda request, number: (200, {"sent": True}, {}))


def user(content):
    return {"role": "user", "content": content}


def ask(server, messages, **more):
    status, answer, headers = server.call("POST", "/v1/chat/completions", {"model": "x", "messages": messages, "tools": OWN, **more})
    assert status == 200, (status, answer)
    return answer["choices"][0]["message"], headers["x-conversation-id"]


def model_messages(model):
    return [m.get("content") for m in model.last()["messages"] if m["role"] != "system"]


def check_an_answer_the_client_lost_is_answered_again():
    with scenario() as (model, tool, server):
        model.script = [("cut", text("Hello world, this is it")), calls(("send_mail", {"to": "a"}), before="OK. "), text("Sent.")]
        message, _ = ask(server, [user("mail a")])
        assert message["content"] == "OK. Sent." and len(tool.requests) == 1, message


def check_results_go_to_the_conversation_of_their_call():
    with scenario() as (model, tool, server):
        model.script = [calls(("my_weather", {"city": "Bonn"}, "call_0")), calls(("my_weather", {"city": "Rome"}, "call_0"))]
        first, here = ask(server, [user("secret alpha")])
        _, there = ask(server, [user("secret beta")])
        assert here != there
        model.script = [text("Sunny.")]
        _, conversation = ask(server, [user("secret alpha"), first, {"role": "tool", "tool_call_id": "call_0", "content": "sun"}])
        assert conversation == here and model_messages(model) == ["secret alpha", None, "sun"], model_messages(model)


def check_a_conversation_awaiting_approval_is_found_by_its_transcript():
    with scenario() as (model, tool, server):
        model.script = [calls(("create_request", {"title": "Chair"}))]
        waits, here = ask(server, [user("order a chair")])
        model.script = [calls(("create_request", {"title": "Chair"})), text("It waits.")]
        message, conversation = ask(server, [user("order a chair"), waits, user("is it done? else do it")])
        assert (conversation, message["content"]) == (here, "It waits."), message
        [approval] = server.rows("SELECT id FROM approvals")
        model.script = [text("Ordered.")]
        assert server.call("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})[0] == 200
        until(lambda: not server.rows("SELECT 1 FROM turns WHERE finished_at IS NULL"))
        assert len(server.rows("SELECT 1 FROM requests WHERE title = 'Chair'")) == 1
        model.script = [text("As I said.")]
        _, conversation = ask(server, [user("order a chair"), waits, user("is it done? else do it"), message, user("and now?")])
        assert conversation == here


def check_results_sent_twice_are_answered_twice_and_run_once():
    with scenario() as (model, tool, server):
        model.script = [calls(("send_mail", {"to": "a"}, "call_m"), ("my_weather", {"city": "Bonn"}, "call_c")), text("Sent, and sunny.")]
        first, here = ask(server, [user("mail and weather")])
        assert [call["id"] for call in first["tool_calls"]] == ["call_c"]
        again = [user("mail and weather"), first, {"role": "tool", "tool_call_id": "call_c", "content": "sun"}]
        answers = [ask(server, again), ask(server, again)]
        assert answers[0] == answers[1] == ({"role": "assistant", "content": "Sent, and sunny.", "refusal": None}, here), answers
        assert len(model.requests) == 2 and len(tool.requests) == 1


def check_branches_from_one_message_do_not_mix():
    with scenario() as (model, tool, server):
        model.script = [text("Hello.")]
        hello, here = ask(server, [user("hi")])
        conversations = {}
        branch = lambda content: conversations.update({content: ask(server, [user("hi"), hello, user(content)])[1]})
        threads = [threading.Thread(target=branch, args=(f"branch {n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(conversations.values())) == 6 and here in conversations.values(), conversations
        received = [[m.get("content") for m in r["messages"] if m["role"] != "system"] for r in model.requests[1:]]
        assert sorted(h[-1] for h in received) == sorted(conversations) and all(h[:-1] == ["hi", "Hello."] for h in received), received


def check_a_call_the_client_leaves_open_is_canceled_by_the_native_api_too():
    with scenario() as (model, tool, server):
        model.script = [calls(("my_weather", {"city": "Bonn"})), text("Then not.")]
        _, here = ask(server, [user("weather?")])
        assert server.chat("never mind", here)[0] == 200
        [row] = server.rows("SELECT status, content FROM messages WHERE role = 'tool'")
        assert row["status"] == "error" and "canceled" in row["content"], row


def check_a_client_cannot_raise_the_operators_limit():
    with scenario() as (model, tool, server):
        ask(server, [user("much")], max_tokens=1_000_000)
        assert model.last()["max_tokens"] == 16384
        ask(server, [user("little")], max_tokens=7)
        assert model.last()["max_tokens"] == 7
