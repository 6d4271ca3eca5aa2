"""
Python's http.server, which speaks HTTP/1.0, as an upstream.  Prints C{listening PORT}.

    GET /file…     a file of the working directory
    GET /stream    a body without a length: it ends when the connection does
    POST /…        the body back, with a length
"""

from __future__ import annotations

from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    """What the module's docstring says."""

    def do_GET(self) -> None:
        """A file, or the stream."""
        if self.path != "/stream":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        for index in range(1000):
            self.wfile.write(b"line %d\n" % index)

    def do_POST(self) -> None:
        """Echo."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing: only the port is for the reader."""


with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    print(f"listening {server.server_address[1]}", flush=True)
    server.serve_forever()
