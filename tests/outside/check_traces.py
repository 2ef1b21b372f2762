"""Traces over OTLP: one trace per turn, also if the process that began the turn was killed, and nothing in it that is not wanted."""
import signal
import threading

from check_recovery import begin, finished, kill
from check_turns import Scenario
from fakes import calls, text
from otlp import Collector
from server import ADMIN, until

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def variables(collector, **more):
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-token=token-of-the-collector", "OTEL_BSP_SCHEDULE_DELAY": "50", **more}


def parents(spans):
    """The names of the spans, each with the name of its parent."""
    names = {span["id"]: span["name"] for span in spans}
    return sorted((span["name"], names.get(span["parent"], span["parent"])) for span in spans)


def check_a_taken_over_turn_is_one_trace_with_one_root():
    collector, gate = Collector(), threading.Event()

    def behave(request, number):
        if number == 1:
            gate.wait(60)
        return 200, {"number": number}, {}

    with Scenario(behave, env=variables(collector)) as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}, "c1"), ("test_echo", {"value": 1}, "c2")), text("After the crash.")]
        body = {"message": "How is the weather?", "background": True}
        status, accepted, _ = server.call("POST", "/api/chat", body, headers={"traceparent": PARENT})
        assert status == 202, accepted
        until(lambda: tool.requests and collector.named("chat fake") and collector.named("execute_tool test_echo"), what="the first spans")
        kill(server)
        gate.set()
        server.start()
        assert finished(server, accepted["turn_id"])["takeovers"] == 1
        [root] = until(lambda: collector.named("invoke_agent"), what="the turn's span")
        with collector.lock:
            spans = list(collector.spans)
        assert {span["trace"] for span in spans} == {"4bf92f3577b34da6a3ce929d0e0e4736"} and root["parent"] == "00f067aa0ba902b7"
        expected = [("chat fake", "invoke_agent")] * 2 + [("execute_tool get_weather", "invoke_agent"), ("execute_tool test_echo", "invoke_agent")]
        assert parents(spans) == expected + [("invoke_agent", "00f067aa0ba902b7")], parents(spans)
        assert len({span["id"] for span in spans}) == len(spans), "each span once"
        assert all(root["start"] <= span["start"] <= span["end"] <= root["end"] for span in spans), spans
        before = [span for span in spans if span["resource"]["service.instance.id"] != root["resource"]["service.instance.id"]]
        assert sorted(span["name"] for span in before) == ["chat fake", "execute_tool test_echo"], before
        assert all(span["attributes"].get("werkruf.takeover", False) == (span not in before) for span in spans)
        assert all(span["attributes"]["werkruf.turn_id"] == accepted["turn_id"] for span in spans)
        assert "traceparent" not in tool.requests[-1]["headers"] and "traceparent" not in tool.requests[-1]["body"]["context"], tool.requests[-1]
    collector.close()


def check_a_tool_that_may_have_it_gets_the_span_of_its_call():
    collector = Collector()
    with Scenario(env=variables(collector), config="traceparent = true\n") as (model, tool, server):
        model.script = [calls(("get_weather", {"city": "Bonn"}, "c1")), text("Blue.")]
        assert server.chat("How is the weather?")[0] == 200
        [span] = until(lambda: collector.named("execute_tool get_weather"), what="the span of the call")
        assert tool.requests[0]["headers"]["traceparent"] == f"00-{span['trace']}-{span['id']}-01", tool.requests
        assert "traceparent" not in tool.requests[0]["body"]["context"], tool.requests
    collector.close()


def check_the_last_spans_leave_before_a_server_stops():
    collector = Collector()
    with Scenario(env=variables(collector, OTEL_BSP_SCHEDULE_DELAY="600000")) as (model, _, server):
        model.script = [text("Hello.")]
        assert server.chat("Hello")[0] == 200
        assert not collector.spans, "nothing leaves before the delay"
        assert server.stop(signal.SIGTERM) == 0
        assert parents(collector.spans) == [("chat fake", "invoke_agent"), ("invoke_agent", "")]
    collector.close()


def check_spans_show_content_only_by_consent_and_secrets_never():
    for consent in (False, True):
        collector = Collector()
        env = variables(collector, **({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"} if consent else {}))
        with Scenario(lambda request, number: (200, {"echo": request["body"], "key": ADMIN}, {}), env=env) as (model, _, server):
            model.script = [calls(("get_weather", {"city": f"canary-city {ADMIN}"}, "c1")), text("canary-answer token-of-the-collector")]
            assert server.chat(f"canary-question {ADMIN}")[0] == 200
            until(lambda: collector.named("invoke_agent"), what="the turn's span")
            raw = b"".join(request["raw"] for request in collector.requests)
            for canary in (b"canary-question", b"canary-city", b"canary-answer"):
                assert (canary in raw) == consent, (canary, consent)
            assert ADMIN.encode() not in raw and b"token-of-the-collector" not in raw
            assert all(request["headers"]["x-token"] == "token-of-the-collector" for request in collector.requests)
        collector.close()


def check_a_dead_collector_is_logged_and_harms_nothing():
    collector = Collector()
    collector.close()
    with Scenario(env=variables(collector, OTEL_BSP_MAX_QUEUE_SIZE="4")) as (model, _, server):
        for number in range(20):
            accepted = begin(server, f"Hello {number}")
            assert finished(server, accepted["turn_id"])["status"] == "completed"
        assert server.stop(signal.SIGTERM) == 0
        lines = [line for line in server.logged().splitlines() if "spans_lost" in line]
        assert 1 <= len(lines) <= 2 and "token-of-the-collector" not in server.logged(), lines


def check_grpc_is_refused_with_what_to_write():
    try:
        with Scenario(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}):
            raise RuntimeError("the server started")
    except AssertionError as error:
        assert "OTEL_EXPORTER_OTLP_PROTOCOL" in str(error) and "http/protobuf" in str(error), error
