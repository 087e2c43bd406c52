"""A server on the loopback interface that sends recorded bodies and keeps the requests, for the providers' own SDKs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["RecordedServer"]

Body = Sequence[bytes | threading.Event]
"""The pieces of a body; at an event, the server waits until it is set."""


class RecordedServer:
    """Answers each request with the next of `answers`: a content type and a body."""

    def __init__(self, *answers: tuple[str, Body]) -> None:
        self.requests: list[dict[str, Any]] = []
        """The JSON bodies of the requests, in order."""
        self._answers = iter(answers)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RecordedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                content_type, body = next(server._answers)
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("x-amzn-requestid", f"request-{len(server.requests)}")
                self.send_header("transfer-encoding", "chunked")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                with suppress(OSError):
                    _send(self.wfile, body)

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log."""

        return Handler


def _send(target: Any, pieces: Iterable[bytes | threading.Event]) -> None:
    for piece in pieces:
        if isinstance(piece, bytes):
            target.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            target.flush()
        elif not piece.wait(30):
            return  # the body has no end, so the client's stream breaks
    target.write(b"0\r\n\r\n")
    target.flush()
