"""The ways a client of the OpenAI doors comes back: none of them mixes conversations, hides an effect or does it twice."""
import contextlib
import threading

from fakes import Model, Tool, calls, text
from house import House, until

OWN = [{"type": "function", "function": {"name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
MAIL = """
[[tools]]
name = "send_mail"
description = "Sends a mail."
kind = "http"
url = "{url}/mail"
effect = "once"
parameters = '''{{"type": "object", "properties": {{"to": {{"type": "string"}}}}}}'''
"""


@contextlib.contextmanager
def scene():
    model, tool = Model(), Tool(lambda request, number: (200, {"sent": True}, {}))
    house = House(model, MAIL.format(url=tool.url))
    try:
        yield model, tool, house
    finally:
        house.close()
        model.close()
        tool.close()


def said(content):
    return {"role": "user", "content": content}


def ask(house, messages, **more):
    status, answer, headers = house.call("POST", "/v1/chat/completions", {"model": "x", "messages": messages, "tools": OWN, **more})
    assert status == 200, (status, answer)
    return answer["choices"][0]["message"], headers["x-conversation-id"]


def told(model):
    return [m.get("content") for m in model.last()["messages"] if m["role"] != "system"]


def check_an_answer_nobody_saw_takes_a_second_beginning():
    with scene() as (model, tool, house):
        model.script = [("cut", text("Hello world, this is it")), calls(("send_mail", {"to": "a"}), before="OK. "), text("Sent.")]
        message, _ = ask(house, [said("mail a")])
        assert message["content"] == "OK. Sent." and len(tool.requests) == 1, message


def check_results_go_to_the_conversation_they_were_asked_in():
    with scene() as (model, tool, house):
        model.script = [calls(("my_weather", {"city": "Bonn"}, "call_0")), calls(("my_weather", {"city": "Rome"}, "call_0"))]
        first, here = ask(house, [said("secret alpha")])
        _, there = ask(house, [said("secret beta")])
        assert here != there
        model.script = [text("Sunny.")]
        _, went = ask(house, [said("secret alpha"), first, {"role": "tool", "tool_call_id": "call_0", "content": "sun"}])
        assert went == here and told(model) == ["secret alpha", None, "sun"], told(model)


def check_what_waits_for_a_word_is_found_again_by_its_text():
    with scene() as (model, tool, house):
        model.script = [calls(("create_request", {"title": "Chair"}))]
        waits, here = ask(house, [said("order a chair")])
        model.script = [calls(("create_request", {"title": "Chair"})), text("It waits.")]
        message, went = ask(house, [said("order a chair"), waits, said("is it done? else do it")])
        assert (went, message["content"]) == (here, "It waits."), message
        [approval] = house.rows("SELECT id FROM approvals")
        model.script = [text("Ordered.")]
        assert house.call("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})[0] == 200
        until(lambda: not house.rows("SELECT 1 FROM turns WHERE finished_at IS NULL"))
        assert len(house.rows("SELECT 1 FROM requests WHERE title = 'Chair'")) == 1
        model.script = [text("As I said.")]
        _, went = ask(house, [said("order a chair"), waits, said("is it done? else do it"), message, said("and now?")])
        assert went == here


def check_results_sent_twice_are_answered_twice_and_run_once():
    with scene() as (model, tool, house):
        model.script = [calls(("send_mail", {"to": "a"}, "call_m"), ("my_weather", {"city": "Bonn"}, "call_c")), text("Sent, and sunny.")]
        first, here = ask(house, [said("mail and weather")])
        assert [call["id"] for call in first["tool_calls"]] == ["call_c"]
        again = [said("mail and weather"), first, {"role": "tool", "tool_call_id": "call_c", "content": "sun"}]
        answers = [ask(house, again), ask(house, again)]
        assert answers[0] == answers[1] == ({"role": "assistant", "content": "Sent, and sunny.", "refusal": None}, here), answers
        assert len(model.requests) == 2 and len(tool.requests) == 1


def check_branches_from_one_place_do_not_mix():
    with scene() as (model, tool, house):
        model.script = [text("Hello.")]
        hello, here = ask(house, [said("hi")])
        went = {}
        branch = lambda word: went.update({word: ask(house, [said("hi"), hello, said(word)])[1]})
        threads = [threading.Thread(target=branch, args=(f"branch {n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(went.values())) == 6 and here in went.values(), went
        heard = [[m.get("content") for m in r["messages"] if m["role"] != "system"] for r in model.requests[1:]]
        assert sorted(h[-1] for h in heard) == sorted(went) and all(h[:-1] == ["hi", "Hello."] for h in heard), heard


def check_a_call_the_client_leaves_open_is_canceled_also_by_the_native_door():
    with scene() as (model, tool, house):
        model.script = [calls(("my_weather", {"city": "Bonn"})), text("Then not.")]
        _, here = ask(house, [said("weather?")])
        assert house.chat("never mind", here)[0] == 200
        [row] = house.rows("SELECT status, content FROM messages WHERE role = 'tool'")
        assert row["status"] == "error" and "canceled" in row["content"], row


def check_a_client_cannot_raise_the_operators_limit():
    with scene() as (model, tool, house):
        ask(house, [said("much")], max_tokens=1_000_000)
        assert model.last()["max_tokens"] == 16384
        ask(house, [said("little")], max_tokens=7)
        assert model.last()["max_tokens"] == 7
