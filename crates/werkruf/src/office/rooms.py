"""The tool server of the example office: it books meeting rooms. docs/writing-a-tool.md explains it."""
import hashlib, hmac, json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = os.environ["ROOMS_SECRET"].encode()
booked = {}  # Idempotency-Key -> answer; a real tool keeps this in its database

class Rooms(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        sent, nonce = self.headers.get("X-Werkruf-Timestamp", ""), self.headers.get("X-Werkruf-Nonce", "")
        expected = "sha256=" + hmac.new(SECRET, f"{sent}.{nonce}.".encode() + body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, self.headers.get("X-Werkruf-Signature-256", "")):
            return self.answer(401, {"error": "wrong signature"})
        call, key = json.loads(body), self.headers["Idempotency-Key"]
        room, hours = call["arguments"]["room"], call["arguments"]["hours"]
        if key not in booked:  # the same key is the same call: do it once, answer it as often as asked
            booked[key] = {"booking": len(booked) + 1, "user": call["context"]["user_id"],
                           "message": f"Room {room} is yours for {hours} h.", "state_patch": {"last_room": room}}
        self.answer(200, booked[key])

    def answer(self, status, value):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Rooms)
print(f"listening on port {server.server_port}", flush=True)
server.serve_forever()
