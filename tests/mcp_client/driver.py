"""The client that the conformance suite tests: a server with the suite's address in its configuration. Its tools are listed and called over the API.

usage: driver.py URL     the suite adds the address, and sets MCP_CONFORMANCE_SCENARIO
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "outside"))
from server import Server, until  # noqa: E402
from suite_tool import TOOL  # noqa: E402

# The arguments of the tools that the scenarios have.
NUMBERS = {"a": 5, "b": 3}


def arguments(schema):
    """Some arguments that fit a schema."""
    made = {"string": "text", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}
    properties = schema.get("properties") or {}
    return {name: NUMBERS.get(name, made.get(value.get("type"))) for name, value in properties.items() if isinstance(value, dict) and value.get("type") in made}


def main():
    server = Server(None, TOOL.format(url=sys.argv[-1]))
    try:
        def connected():
            [entry] = server.call("GET", "/api/admin/tools")[1]["servers"]
            return entry if entry["state"] == "connected" else None

        entry = until(connected, 40, "a connection")
        until(lambda: set(entry["tools"]) <= {tool["name"] for tool in server.call("GET", "/api/tools")[1]["tools"]}, what="the tools")
        for name in entry["tools"]:
            tool = server.call("GET", f"/api/tools/{name}")[1]
            status, answer, _ = server.call("POST", f"/api/tools/{name}/invoke", {"input": arguments(tool["parameters"])})
            print(name, status, answer.get("status"), answer.get("data") or answer.get("error"))
        assert server.stop() == 0
    finally:
        if os.environ.get("DRIVER_LOG"):
            print(server.logged() if not server.log.closed else pathlib.Path(server.log.name).read_text())
        server.close()


main()
