"""`/v1/responses` with plain HTTP: objects, numbered streams, and streams that go on after clients and servers have left."""
import contextlib
import threading

from check_recovery import kill
from fakes import Model, calls, text
from house import House, events, until

WEATHER = [{"type": "function", "name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
LONG = "".join(f"word{number} " for number in range(200))


@contextlib.contextmanager
def scene():
    model = Model()
    house = House(model)
    try:
        yield model, house
    finally:
        house.close()
        model.close()


class Held(list):
    """Chunks that stop in the middle until the gate opens."""

    def __init__(self, chunks, at, gate):
        super().__init__(chunks)
        self.at, self.gate = at, gate

    def __add__(self, more):
        for number, item in enumerate([*self, *more]):
            if number == self.at:
                self.gate.wait(30)
            yield item


def respond(house, given, **more):
    status, answer, headers = house.call("POST", "/v1/responses", {"model": "gpt-4.1", "input": given, **more})
    assert status == 200, answer
    return answer, headers


def stream(house, given, **more):
    return house.open("POST", "/v1/responses", {"model": "gpt-4.1", "input": given, "stream": True, **more})


def follow(house, name, after):
    with house.open("GET", f"/v1/responses/{name}?stream=true&starting_after={after}") as answer:
        return [data for _, _, data in events(answer)]


def numbered(heard, first=0):
    assert [event["sequence_number"] for event in heard] == list(range(first, first + len(heard))), heard
    return heard


def said(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def check_responses_the_rest_of_a_stream_is_told_from_every_number():
    with scene() as (model, house):
        model.script = [calls(("test_echo", {"value": 1}), before="I look. "), text("It is one, and so it stays.", pieces=9)]
        with stream(house, "What is it?") as answer:
            assert answer.headers["x-conversation-id"] and answer.headers["x-werkruf-model"] == "fake"
            heard = numbered([data for _, _, data in events(answer)])
        assert [e["type"] for e in heard[:2]] == ["response.created", "response.in_progress"], heard
        end = heard[-1]
        assert end["type"] == "response.completed" and said(end["response"]) == "I look. It is one, and so it stays.", end
        assert [item["type"] for item in end["response"]["output"]] == ["message", "message"], "the server's call is not shown"
        assert end["response"]["usage"]["total_tokens"] == 30, end
        name = end["response"]["id"]
        for after in range(len(heard)):
            assert follow(house, name, after) == heard[after + 1:], after
        house.stop()
        house.start()
        assert follow(house, name, 3) == heard[4:], "another process tells the same"


def check_responses_a_stream_goes_on_after_the_server_died_in_it():
    gate = threading.Event()
    with scene() as (model, house):
        model.script = [Held(text(LONG, pieces=100), 60, gate), Held(text(LONG, pieces=37), 10, gate)]
        with contextlib.closing(stream(house, "Count.", background=True)) as answer:
            heard = []
            for _, _, data in events(answer):
                heard.append(data)
                if len(heard) == 40:
                    break
            kill(house)
        numbered(heard)
        name = heard[0]["response"]["id"]
        house.start()
        until(lambda: len(model.requests) == 2, what="the model is asked again")
        rest = []
        reader = threading.Thread(target=lambda: rest.extend(follow(house, name, 39)))
        reader.start()
        gate.set()
        reader.join(60)
        numbered(rest, 40)
        assert rest[-1]["type"] == "response.completed" and said(rest[-1]["response"]) == LONG, rest[-1]
        deltas = [e["delta"] for e in heard + rest if e["type"] == "response.output_text.delta"]
        assert "".join(deltas) == LONG, "nothing is missing and nothing comes twice"
        assert follow(house, name, 0) == (heard + rest)[1:]


def check_responses_a_client_that_left_does_not_stop_its_response():
    gate = threading.Event()
    with scene() as (model, house):
        model.script = [Held(text(LONG, pieces=50), 20, gate)]
        with contextlib.closing(stream(house, "Count.")) as answer:
            name = next(events(answer))[2]["response"]["id"]
        status, running, _ = house.call("GET", f"/v1/responses/{name}")
        assert (status, running["status"]) == (200, "in_progress"), running
        gate.set()
        rest = numbered(follow(house, name, 0), 1)
        assert said(rest[-1]["response"]) == LONG


def check_responses_results_of_client_tools_go_on_in_the_conversation():
    with scene() as (model, house):
        model.script = [calls(("test_echo", {"value": 1}, "call_s"), ("my_weather", {"city": "Bonn"}, "call_c"), before="Wait."), text("Sunny.")]
        first, _ = respond(house, "Weather?", tools=WEATHER)
        assert [item["type"] for item in first["output"]] == ["message", "function_call"], first
        result = {"type": "function_call_output", "call_id": "call_c", "output": "sunny"}
        second, headers = respond(house, [result], tools=WEATHER, previous_response_id=first["id"])
        assert said(second) == "Sunny." and second["conversation"] == first["conversation"], second
        assert [m["role"] for m in model.last()["messages"]] == ["system", "user", "assistant", "tool", "tool"]
        # A stateless client: everything again, one call left unanswered.
        model.script = [calls(("my_weather", {"city": "Ulm"}, "call_u"), ("my_weather", {"city": "Köln"}, "call_k")), text("Half of it.")]
        given = [{"role": "user", "content": "Both?"}]
        asked, _ = respond(house, given, tools=WEATHER, store=False)
        given += asked["output"] + [{"type": "function_call_output", "call_id": "call_u", "output": "rain"}]
        answer, _ = respond(house, given, tools=WEATHER, store=False)
        assert said(answer) == "Half of it." and answer["conversation"] == asked["conversation"], answer
        results = {m["tool_call_id"]: m["content"] for m in model.last()["messages"] if m["role"] == "tool"}
        assert results["call_u"] == "rain" and "cancel" in results["call_k"], results
        rows = house.rows("SELECT count(*) AS n FROM conversations WHERE channel = 'openai'")
        assert rows[0]["n"] == 2, rows


def check_responses_refusals_have_openais_shape():
    with scene() as (model, house):
        kept, _ = respond(house, "x")
        unkept, _ = respond(house, "x", store=False)
        wrong = [("GET", f"/v1/responses/{unkept['id']}", None, {}, 404, "not_found"),
                 ("GET", "/v1/responses/resp_unknown", None, {}, 404, "not_found"),
                 ("GET", f"/v1/responses/{kept['id']}", None, {"user": 3}, 404, "not_found"),
                 ("POST", "/v1/responses", {"input": "x", "previous_response_id": "resp_unknown"}, {}, 404, "previous_response_not_found"),
                 ("POST", "/v1/responses", {"input": "x", "conversation": "conv_unknown"}, {}, 404, "not_found"),
                 ("POST", "/v1/responses", b"{", {}, 400, "invalid_request"),
                 ("GET", f"/v1/responses/{kept['id']}", None, {"key": "wrong"}, 401, "unauthorized")]
        for method, path, body, who, expected, code in wrong:
            status, answer, _ = house.call(method, path, body, **who)
            assert status == expected and set(answer) == {"error"}, (path, status, answer)
            assert set(answer["error"]) == {"message", "type", "param", "code"} and answer["error"]["code"] == code, (path, answer)
        status, answer, _ = house.call("DELETE", f"/v1/responses/{kept['id']}")
        assert (status, answer) == (200, {"id": kept["id"], "object": "response.deleted", "deleted": True}), answer
        assert house.call("GET", f"/v1/responses/{kept['id']}")[0] == 404
        assert house.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 2, "the records stay"
        model.script = [("status", 400)]
        status, answer, _ = house.call("POST", "/v1/responses", {"input": "x"})
        assert (status, answer["error"]["type"], answer["error"]["code"]) == (502, "server_error", "model_unavailable"), answer
