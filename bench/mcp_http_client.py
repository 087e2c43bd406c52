"""A client of MCP over HTTP that does nothing but write requests to sockets and read responses, and counts the server side's CPU time."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bench.mcp_client import ECHO, HANDSHAKE, INITIALIZED, ROOT, Era, Took, cpu_s, message, tree
from bench.measure import Unavailable

if TYPE_CHECKING:
    import h11

__all__ = ["HttpClient", "free_port"]

_START_S = 30.0
_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_REVISIONS: Mapping[Era, str] = {"stateless": "2026-07-28", "handshake": "2025-11-25"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class HttpClient:
    """Implements `Client` over HTTP: starts the programs of the server side.

    Args:
        commands: The programs, which are started in this order. Each listens when the next is started.
        ports: The port of each program; requests go to the last.
    """

    def __init__(self, commands: Sequence[Sequence[str]], ports: Sequence[int], era: Era) -> None:
        self._commands = commands
        self._ports = ports
        self._era = era
        self._numbers = 0
        self._session = ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._sockets: list[_Socket] = []

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        for command, port in zip(self._commands, self._ports, strict=True):
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._processes.append(process)
            self._wait_for(process, port)
        if self._era == "handshake":
            self._session = self._ask(HANDSHAKE, "initialize").get("mcp-session-id", "")
            self._first().send(self._request("notifications/initialized", INITIALIZED))
            self._first().response()
        self._ask({}, "tools/list")

    def calls(self, count: int, at_once: int = 1) -> Took:
        processes = [one for process in self._processes for one in tree(process.pid)]
        self._connect(at_once)
        cpu, began = cpu_s(processes), time.perf_counter()
        self._exchange(count)
        wall_s = time.perf_counter() - began
        return Took(wall_s / count, (cpu_s(processes) - cpu) / count)

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        for process in reversed(self._processes):
            process.terminate()
            process.wait(_START_S)

    def _wait_for(self, process: subprocess.Popen[bytes], port: int) -> None:
        """Wait until a program listens."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.close()
        raise Unavailable("the server does not listen")

    def _connect(self, count: int) -> None:
        """Open connections, and make a call on each, because a server closes connections that have been idle."""
        for one in self._sockets:
            one.close()
        self._sockets = [_Socket(self._ports[-1]) for _ in range(count)]
        self._exchange(count)

    def _exchange(self, count: int) -> None:
        sent = received = 0
        with selectors.DefaultSelector() as selector:
            for one in self._sockets:
                selector.register(one.socket, selectors.EVENT_READ, one)
                if sent < count:
                    one.send(self._call())
                    sent += 1
            while received < count:
                for key, _ in selector.select():
                    ready: _Socket = key.data
                    if (answer := ready.read_available()) is None:
                        continue
                    if json.loads(answer)["result"].get("isError"):
                        raise RuntimeError(f"a call failed: {answer!r}")
                    received += 1
                    if sent < count:
                        ready.send(self._call())
                        sent += 1

    def _ask(self, params: Mapping[str, object], method: str) -> dict[str, str]:
        """Send a request, and return the headers of its response.

        Raises:
            Unavailable: There is no result.
        """
        self._numbers += 1
        self._first().send(self._request(method, message(self._numbers, method, params, self._era)))
        headers, body = self._first().response()
        if b'"result"' not in body:
            self.close()
            raise Unavailable(f"{method} failed: {body[:200]!r}")
        return headers

    def _first(self) -> _Socket:
        if not self._sockets:
            self._sockets.append(_Socket(self._ports[-1]))
        return self._sockets[0]

    def _call(self) -> bytes:
        self._numbers += 1
        return self._request("tools/call", message(self._numbers, "tools/call", ECHO, self._era))

    def _request(self, method: str, sent: Mapping[str, object]) -> bytes:
        body = json.dumps(sent).encode()
        headers = {**_HEADERS, "host": f"127.0.0.1:{self._ports[-1]}", "content-length": str(len(body))}
        if method != "initialize":
            headers["mcp-protocol-version"] = _REVISIONS[self._era]
        if self._era == "stateless":
            headers |= {"mcp-method": method} | ({"mcp-name": "echo"} if method == "tools/call" else {})
        if self._session:
            headers["mcp-session-id"] = self._session
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


class _Socket:
    """One connection, which has one request at a time."""

    def __init__(self, port: int) -> None:
        import h11

        self.socket = socket.create_connection(("127.0.0.1", port))
        self._client: Callable[[], h11.Connection] = lambda: h11.Connection(h11.CLIENT)
        self._http = self._client()

    def send(self, request: bytes) -> None:
        import h11

        self._http = self._client()  # only reads: the request is written without it
        self._http.send(h11.Request(method="POST", target="/mcp", headers=[("host", "bench")]))
        self._http.send(h11.EndOfMessage())
        self._headers: dict[str, str] = {}
        self._body = b""
        self.socket.sendall(request)

    def response(self) -> tuple[dict[str, str], bytes]:
        """Wait for the response, and return its headers and its body."""
        while (body := self.read_available()) is None:
            pass
        return self._headers, body

    def read_available(self) -> bytes | None:
        """Read what has come, and return the body if the response is complete."""
        import h11

        self._http.receive_data(self.socket.recv(65_536))
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                self._headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return self._body
        return None

    def close(self) -> None:
        self.socket.close()
