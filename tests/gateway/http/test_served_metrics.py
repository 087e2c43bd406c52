"""The metrics of `callgate serve --http` count what HTTP refuses."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process]

CONFIG = 'journal = ":memory:"\ntools = ["builtin"]\n[http]\nlisten = "127.0.0.1:0"\nanonymous = true\n'


def test_refused_requests_are_counted_by_reason(tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text(CONFIG, encoding="utf-8")
    command = [sys.executable, "-m", "callgate.cli", "serve", "--config", str(tmp_path / "gate.toml"), "--http"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = next(match[1] for line in process.stderr if (match := re.search(r"(http://127.0.0.1:\d+)/mcp", line)))
            with httpx2.Client(base_url=url, trust_env=False) as client:
                assert client.get("/mcp", headers={"Host": "other.example"}).status_code == 421
                assert client.get("/mcp", headers={"Origin": "https://other.example"}).status_code == 403
                with socket.create_connection(("127.0.0.1", client.base_url.port or 80), timeout=PATIENCE_S) as raw:
                    raw.sendall(b"no HTTP\r\n\r\n")
                    assert raw.recv(1024).startswith(b"HTTP/1.1 400 ")
                metrics = client.get("/metrics").text
        finally:
            process.terminate()
    assert 'callgate_requests_refused_total{reason="host"} 1.0' in metrics
    assert 'callgate_requests_refused_total{reason="origin"} 1.0' in metrics
    assert 'callgate_requests_refused_total{reason="http"} 1.0' in metrics
