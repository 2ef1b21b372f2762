"""A proxy that adds a credential to every request: the conformance suite sends none. Everything else passes unchanged, also Host and Origin."""
import http.client
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Proxy:
    def __init__(self, url, headers):
        target = urllib.parse.urlsplit(url)

        class Endpoint(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def forward(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                server = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
                try:
                    server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in HOP_BY_HOP:
                            server.putheader(name, value)
                    for name, value in headers.items():
                        server.putheader(name, value)
                    server.putheader("content-length", str(len(body)))
                    server.endheaders(body)
                    answer = server.getresponse()
                    self.send_response(answer.status)
                    for name, value in answer.getheaders():
                        if name.lower() not in HOP_BY_HOP:
                            self.send_header(name, value)
                    self.send_header("connection", "close")
                    self.end_headers()
                    while piece := answer.read1(65536):
                        self.wfile.write(piece)
                        self.wfile.flush()
                except OSError:
                    pass
                finally:
                    server.close()
                    self.close_connection = True

            do_GET = do_POST = do_DELETE = do_OPTIONS = forward

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
