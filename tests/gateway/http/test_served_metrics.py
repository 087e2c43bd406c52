"""The metrics of `callgate serve --http` count what HTTP refuses."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.shell import environment
from tests.forked_python import ForkedProcess
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process]

CONFIG = 'journal = ":memory:"\ntools = ["builtin"]\n[http]\nlisten = "127.0.0.1:0"\nanonymous = true\n'


def test_refused_requests_are_counted_by_reason(tmp_path: Path) -> None:
    with served(tmp_path, CONFIG) as client:
        assert client.get("/mcp", headers={"Host": "other.example"}).status_code == 421
        assert client.get("/mcp", headers={"Origin": "https://other.example"}).status_code == 403
        with socket.create_connection(("127.0.0.1", client.base_url.port or 80), timeout=PATIENCE_S) as raw:
            raw.sendall(b"no HTTP\r\n\r\n")
            assert raw.recv(1024).startswith(b"HTTP/1.1 400 ")
        assert refused(client) == {"host": 1, "origin": 1, "http": 1}


def test_a_refusal_is_not_counted_as_one_of_the_headers_if_something_else_is_wrong(tmp_path: Path) -> None:
    limits = "[http.limits]\nsessions_per_principal = 1\nbody_bytes = 1000\nbody_timeout_s = 0.2\n"
    post: dict[str, Any] = {"url": "/mcp", "headers": {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}}
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    with served(tmp_path, CONFIG + limits) as client:
        assert client.get("/elsewhere").status_code == 404
        assert client.put("/mcp").status_code == 405
        assert client.post(**post, content=b"{").status_code == 400
        assert client.post(**post, json=[]).status_code == 400
        assert client.post(**post, json={"jsonrpc": "2.0"}).status_code == 400
        assert client.post(**post, content=b" " * 1001).status_code == 413
        assert client.post(**post, content=begun_only()).status_code == 408
        assert client.get("/mcp", headers={"Mcp-Session-Id": "none", "Accept": "text/event-stream"}).status_code == 404
        assert [client.post(**post, json=begin).status_code for _ in range(2)] == [200, 429]
        assert client.post("/mcp", content=b"{}").status_code == 415
        assert refused(client) == {"path": 2, "body": 3, "size": 1, "time": 1, "session": 1, "too_many_sessions": 1, "headers": 1}


def begun_only() -> Iterator[bytes]:
    """Yield the beginning of a body, and the end too late."""
    yield b"{"
    time.sleep(0.5)
    yield b"}"


def refused(client: httpx2.Client) -> dict[str, int]:
    """Return how many requests were refused, by reason."""
    found = re.findall(r'^callgate_requests_refused_total\{reason="(\w+)"\} (\d+)', client.get("/metrics").text, re.MULTILINE)
    return {reason: int(count) for reason, count in found}


@contextmanager
def served(folder: Path, config: str) -> Iterator[httpx2.Client]:
    """Run a gateway over HTTP, and provide a client of it."""
    (folder / "gate.toml").write_text(config, encoding="utf-8")
    process = ForkedProcess("callgate", ["serve", "--http"], folder, environment(), stderr=None)
    try:
        url = next(match[1] for line in process.stdout if (match := re.search(r"(http://127.0.0.1:\d+)/mcp", line)))
        with httpx2.Client(base_url=url, trust_env=False, verify=False) as client:
            yield client
    finally:
        process.close()
