"""Pictures and files in the results of an MCP server's tools: they reach the model, stay in the history, and come back over `/mcp`."""
import base64
import json
import zlib

from check_mcp_servers import HTTP, connected
from fakes import FakeEndpoint, FakeServer, Model, calls, text
from mcp_client import NEW, OLD, Client
from server import Server


def png():
    """A picture with one pixel."""
    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    size = (1).to_bytes(4, "big") * 2
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + b"\x08\x02\0\0\0") + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


PNG, PDF, WAV = png(), base64.b64encode(b"%PDF-1.7\n").decode(), base64.b64encode(b"RIFF....WAVE").decode()
PICTURE = {"type": "image", "mimeType": "image/png", "data": PNG}
RESULTS = {
    "photo": {"content": [{"type": "text", "text": "The entrance."}, PICTURE]},
    "measured": {"content": [{"type": "text", "text": "{\"width\": 1}"}, PICTURE], "structuredContent": {"width": 1}},
    "files": {"content": [
        {"type": "resource", "resource": {"uri": "file:///may.pdf", "mimeType": "application/pdf", "blob": PDF}},
        {"type": "audio", "mimeType": "audio/wav", "data": WAV},
        {"type": "resource_link", "uri": "https://e.org/a", "name": "a"},
    ]},
}


class Camera(FakeServer):
    """An MCP server of the older protocol whose tools return `RESULTS`."""

    def __init__(self):
        class Endpoint(FakeEndpoint):
            def do_GET(self):
                self.send_error(405)

            def do_DELETE(self):
                self.answer(200, {})

            def do_POST(self):
                message = json.loads(self.body())
                if "id" not in message:
                    return self.answer(202, b"")
                answer = {"jsonrpc": "2.0", "id": message["id"]}
                if message["method"] == "initialize":
                    answer["result"] = {"protocolVersion": OLD, "capabilities": {"tools": {}}, "serverInfo": {"name": "camera", "version": "1"}}
                elif message["method"] == "tools/list":
                    answer["result"] = {"tools": [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in RESULTS]}
                elif message["method"] == "tools/call":
                    answer["result"] = RESULTS[message["params"]["name"]]
                else:
                    answer["error"] = {"code": -32601, "message": "no such method"}
                self.answer(200, answer)

        super().__init__(Endpoint)


def results(request):
    return [json.loads(message["content"]) for message in request["messages"] if message["role"] == "tool"]


def check_pictures_of_an_mcp_server_reach_the_model():
    model, camera = Model(), Camera()
    server = Server(model, HTTP.format(name="cam", url=camera.url, more='effect = "read"'))
    try:
        connected(server, "cam")
        model.script = [calls(*((f"cam_{name}", {}, name) for name in RESULTS)), text("An entrance.")]
        status, answer, _ = server.chat("Look.", user=3)
        assert status == 200, answer
        named = {"type": "image", "mimeType": "image/png", "bytes": len(base64.b64decode(PNG)), "attached": True}
        photo, measured, files = results(model.last())
        assert photo == {"content": [{"type": "text", "text": "The entrance."}, named]}, photo
        assert measured == {"width": 1, "content": [named]}, measured
        assert [block.get("attached", block.get("resource", {}).get("attached")) for block in files["content"]] == [True, False, None], files
        attached = model.last()["messages"][-1]
        url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}
        file = {"type": "file", "file": {"filename": "may.pdf", "file_data": "data:application/pdf;base64," + PDF}}
        assert attached["role"] == "user" and [part for part in attached["content"] if part["type"] != "text"] == [url, url, file], attached
        # Programs get the whole data, and a later turn sends the pictures again.
        assert answer["tool_results"][0]["data"]["content"][1]["data"] == PNG, answer
        model.script = [text("Still.")]
        status, again, _ = server.chat("And now?", answer["conversation_id"], user=3)
        assert status == 200 and attached in model.last()["messages"], again
        # Over /mcp the bytes are blocks of their own.
        for version in (OLD, NEW):
            result = Client(server, version).call("cam_photo")
            assert json.loads(result["content"][0]["text"]) == photo and result["structuredContent"] == photo, result
            assert result["content"][1:] == [PICTURE], result
            result = Client(server, version).call("cam_files")
            assert [block["type"] for block in result["content"]] == ["text", "resource", "audio"], result
    finally:
        server.close()
        model.close()
        camera.close()
