"""`/v1/responses` with plain HTTP: objects, numbered streams, and streams that continue after disconnects and restarts."""
import contextlib
import threading

from check_recovery import kill
from fakes import Model, calls, text
from server import Server, events, until

WEATHER = [{"type": "function", "name": "my_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
LONG = "".join(f"word{number} " for number in range(200))


@contextlib.contextmanager
def scenario():
    model = Model()
    server = Server(model)
    try:
        yield model, server
    finally:
        server.close()
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


def respond(server, given, **more):
    status, answer, headers = server.call("POST", "/v1/responses", {"model": "gpt-4.1", "input": given, **more})
    assert status == 200, answer
    return answer, headers


def stream(server, given, **more):
    return server.open("POST", "/v1/responses", {"model": "gpt-4.1", "input": given, "stream": True, **more})


def follow(server, name, after):
    with server.open("GET", f"/v1/responses/{name}?stream=true&starting_after={after}") as answer:
        return [data for _, _, data in events(answer)]


def numbered(received, first=0):
    assert [event["sequence_number"] for event in received] == list(range(first, first + len(received))), received
    return received


def output_text(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def check_responses_a_stream_can_be_continued_from_every_number():
    with scenario() as (model, server):
        model.script = [calls(("test_echo", {"value": 1}), before="I look. "), text("It is one, and so it stays.", pieces=9)]
        with stream(server, "What is it?") as answer:
            assert answer.headers["x-conversation-id"] and answer.headers["x-werkruf-model"] == "fake"
            received = numbered([data for _, _, data in events(answer)])
        assert [e["type"] for e in received[:2]] == ["response.created", "response.in_progress"], received
        end = received[-1]
        assert end["type"] == "response.completed" and output_text(end["response"]) == "I look. It is one, and so it stays.", end
        assert [item["type"] for item in end["response"]["output"]] == ["message", "message"], "the server's call is not shown"
        assert end["response"]["usage"]["total_tokens"] == 30, end
        name = end["response"]["id"]
        for after in range(len(received)):
            assert follow(server, name, after) == received[after + 1:], after
        server.stop()
        server.start()
        assert follow(server, name, 3) == received[4:], "another process sends the same"


def check_responses_a_stream_continues_after_the_server_died():
    gate = threading.Event()
    with scenario() as (model, server):
        model.script = [Held(text(LONG, pieces=100), 60, gate), Held(text(LONG, pieces=37), 10, gate)]
        with contextlib.closing(stream(server, "Count.", background=True)) as answer:
            received = []
            for _, _, data in events(answer):
                received.append(data)
                if len(received) == 40:
                    break
            kill(server)
        numbered(received)
        name = received[0]["response"]["id"]
        server.start()
        until(lambda: len(model.requests) == 2, what="a second model request")
        rest = []
        reader = threading.Thread(target=lambda: rest.extend(follow(server, name, 39)))
        reader.start()
        gate.set()
        reader.join(60)
        numbered(rest, 40)
        assert rest[-1]["type"] == "response.completed" and output_text(rest[-1]["response"]) == LONG, rest[-1]
        deltas = [e["delta"] for e in received + rest if e["type"] == "response.output_text.delta"]
        assert "".join(deltas) == LONG, "nothing is missing and nothing comes twice"
        assert follow(server, name, 0) == (received + rest)[1:]


def check_responses_a_client_that_comes_back_at_once_keeps_its_response():
    gate = threading.Event()
    with scenario() as (model, server):
        model.script = [Held(text(LONG, pieces=50), 20, gate)]
        with contextlib.closing(stream(server, "Count.")) as answer:
            name = next(events(answer))[2]["response"]["id"]
        status, running, _ = server.call("GET", f"/v1/responses/{name}")
        assert (status, running["status"]) == (200, "in_progress"), running
        gate.set()
        rest = numbered(follow(server, name, 0), 1)
        assert output_text(rest[-1]["response"]) == LONG


def check_responses_results_of_client_tools_continue_the_conversation():
    with scenario() as (model, server):
        model.script = [calls(("test_echo", {"value": 1}, "call_s"), ("my_weather", {"city": "Bonn"}, "call_c"), before="Wait."), text("Sunny.")]
        first, _ = respond(server, "Weather?", tools=WEATHER)
        assert [item["type"] for item in first["output"]] == ["message", "function_call"], first
        result = {"type": "function_call_output", "call_id": "call_c", "output": "sunny"}
        second, headers = respond(server, [result], tools=WEATHER, previous_response_id=first["id"])
        assert output_text(second) == "Sunny." and second["conversation"] == first["conversation"], second
        assert [m["role"] for m in model.last()["messages"]] == ["system", "user", "assistant", "tool", "tool"]
        # A stateless client sends everything again, with one call left unanswered.
        model.script = [calls(("my_weather", {"city": "Ulm"}, "call_u"), ("my_weather", {"city": "Köln"}, "call_k")), text("Half of it.")]
        given = [{"role": "user", "content": "Both?"}]
        first_response, _ = respond(server, given, tools=WEATHER, store=False)
        given += first_response["output"] + [{"type": "function_call_output", "call_id": "call_u", "output": "rain"}]
        answer, _ = respond(server, given, tools=WEATHER, store=False)
        assert output_text(answer) == "Half of it." and answer["conversation"] == first_response["conversation"], answer
        results = {m["tool_call_id"]: m["content"] for m in model.last()["messages"] if m["role"] == "tool"}
        assert results["call_u"] == "rain" and "cancel" in results["call_k"], results
        rows = server.rows("SELECT count(*) AS n FROM conversations WHERE channel = 'openai'")
        assert rows[0]["n"] == 2, rows


def check_responses_refusals_have_openais_shape():
    with scenario() as (model, server):
        stored, _ = respond(server, "x")
        unstored, _ = respond(server, "x", store=False)
        wrong = [("GET", f"/v1/responses/{unstored['id']}", None, {}, 404, "not_found"),
                 ("GET", "/v1/responses/resp_unknown", None, {}, 404, "not_found"),
                 ("GET", f"/v1/responses/{stored['id']}", None, {"user": 3}, 404, "not_found"),
                 ("POST", "/v1/responses", {"input": "x", "previous_response_id": "resp_unknown"}, {}, 404, "previous_response_not_found"),
                 ("POST", "/v1/responses", {"input": "x", "conversation": "conv_unknown"}, {}, 404, "not_found"),
                 ("POST", "/v1/responses", b"{", {}, 400, "invalid_request"),
                 ("GET", f"/v1/responses/{stored['id']}", None, {"key": "wrong"}, 401, "unauthorized")]
        for method, path, body, who, expected, code in wrong:
            status, answer, _ = server.call(method, path, body, **who)
            assert status == expected and set(answer) == {"error"}, (path, status, answer)
            assert set(answer["error"]) == {"message", "type", "param", "code"} and answer["error"]["code"] == code, (path, answer)
        status, answer, _ = server.call("DELETE", f"/v1/responses/{stored['id']}")
        assert (status, answer) == (200, {"id": stored["id"], "object": "response.deleted", "deleted": True}), answer
        assert server.call("GET", f"/v1/responses/{stored['id']}")[0] == 404
        assert server.rows("SELECT count(*) AS n FROM turns")[0]["n"] == 2, "the records stay"
        model.script = [("status", 400)]
        status, answer, _ = server.call("POST", "/v1/responses", {"input": "x"})
        assert (status, answer["error"]["type"], answer["error"]["code"]) == (400, "invalid_request_error", "model_refused"), answer
