"""An MCP server whose tool writes to a ledger, and which kills processes at a given step of its first call.

Runs as a program, `ledger_server.py SETTINGS`, over standard input and output, or over HTTP if the settings have `http`. Over HTTP, a
parent process prints the port, and starts the server again when it ends. Needs the standard library only, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # most servers are started without HTTP, whose modules take as long to import as all others
    import socket
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler

__all__ = ["kill_once", "note", "noted"]

Message = dict[str, Any]
TOOL = {
    "name": "act",
    "description": "Act once. With `until`, answer when this file exists.",
    "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}, "until": {"type": "string"}}, "required": ["what"]},
}
STATELESS = "2026-07-28"
_POLL_S = 0.005


def note(folder: Path, file: str, line: str) -> None:
    """Append a line to a file of the folder, in one write."""
    descriptor = os.open(folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def noted(folder: Path, file: str) -> list[str]:
    path = folder / file
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def kill_once(folder: Path, victims: list[str]) -> None:
    """Kill the latest process of each kind, this process last, unless that was done before. The file `killed` has the time of it."""
    try:
        (folder / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    pids = [int(noted(folder, f"{kind}.pids")[-1]) for kind in victims]
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        os.kill(pid, signal.SIGKILL)


class LedgerServer:
    """The server, of any transport.

    Args:
        settings: `folder`; `era`; `step`: `read`, `acted`, `answered` or another text for none; `victims`: the kinds of processes to kill.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.folder = Path(settings["folder"])
        self.era = settings.get("era", "stateless")
        self._step = settings.get("step", "")
        self._victims = settings.get("victims", [])
        note(self.folder, "server.pids", str(os.getpid()))

    def reached(self, step: str) -> None:
        if step == self._step:
            kill_once(self.folder, self._victims)

    def answer(self, message: Message) -> Message:
        """Return the response to a request. A call that was answered must then be reported with `reached("answered")`."""
        response: Message = {"jsonrpc": "2.0", "id": message["id"]}
        method, params = message["method"], message.get("params", {})
        capabilities: Message = {"tools": {}}
        if method == "initialize":
            about = {"name": "ledger", "version": "1"}
            return response | {"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": about}}
        if method == "server/discover" and self.era == "stateless":
            return response | {"result": {"resultType": "complete", "supportedVersions": [STATELESS], "capabilities": capabilities}}
        if method == "tools/list":
            return response | {"result": {"resultType": "complete", "tools": [TOOL]}}
        if method == "ping":
            return response | {"result": {}}
        if method == "tools/call":
            return response | {"result": self._act(**params["arguments"])}
        return response | {"error": {"code": -32601, "message": "Method not found"}}

    def _act(self, what: str, until: str = "") -> Message:
        note(self.folder, "received.txt", what)
        self.reached("read")
        note(self.folder, "ledger.txt", what)
        self.reached("acted")
        while until and not os.path.exists(until):
            time.sleep(_POLL_S)
        return {"resultType": "complete", "content": [{"type": "text", "text": f"did {what}"}]}


# Standard input and output


def serve_stdio(server: LedgerServer) -> None:
    guard = threading.Lock()

    def respond(message: Message) -> None:
        data = json.dumps(server.answer(message)).encode() + b"\n"
        with guard:
            os.write(sys.stdout.fileno(), data)
        if message["method"] == "tools/call":
            server.reached("answered")

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


# HTTP


def serve_http(server: LedgerServer, listening: socket.socket) -> None:
    from http.server import ThreadingHTTPServer

    class Http(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Write nothing: clients are killed, too."""

    http = Http(("127.0.0.1", 0), _handler(server), bind_and_activate=False)
    http.socket.close()
    http.socket = listening
    http.serve_forever()


def _handler(server: LedgerServer) -> Callable[..., BaseHTTPRequestHandler]:
    from http.server import BaseHTTPRequestHandler

    session = f"session-{os.getpid()}"

    class Handler(BaseHTTPRequestHandler):
        """Answers with JSON in the stateless era. In the other, there are sessions, and calls are answered by event streams."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            method = message.get("method", "")
            if server.era == "handshake" and method == "server/discover":
                self._send(400, b"")
            elif server.era == "handshake" and method != "initialize" and self.headers["mcp-session-id"] != session:
                self._send(404, b"")
            elif "id" not in message:
                self._send(202, b"")
            elif server.era == "handshake" and method == "tools/call":
                self._stream(message)
            else:
                self._send(200, json.dumps(server.answer(message)).encode())
            if method == "tools/call":
                server.reached("answered")

        def do_GET(self) -> None:
            self._send(405, b"")

        def do_DELETE(self) -> None:
            self._send(200, b"")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("mcp-session-id", session)
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, message: Message) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"event: message\ndata: " + json.dumps(server.answer(message)).encode() + b"\n\n")

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    return Handler


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that happens."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_serving(settings: dict[str, Any]) -> None:
    """Start the server, and start it again whenever it ends, at the same port, which is printed."""
    import socket

    end_with(os.getppid())
    keeper = os.getpid()
    listening = socket.create_server(("127.0.0.1", settings.get("port", 0)))
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    while True:
        child = os.fork()
        if child == 0:
            end_with(keeper)
            serve_http(LedgerServer(settings), listening)
        os.waitpid(child, 0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.get("http"):
        keep_serving(given)
    else:
        serve_stdio(LedgerServer(given))
