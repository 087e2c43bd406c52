"""`callgate serve` ends with exit code 1 when its connection to PostgreSQL is lost, so that a service manager can start it again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.journals.conftest import database, server
from tests.waiting import PATIENCE_S

__all__ = ["database", "server"]

pytestmark = [pytest.mark.process]

CONFIG = 'journal = "%s"\ntools = ["builtin"]\n[http]\nlisten = "127.0.0.1:0"\nanonymous = true\n'
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_file", "arguments": {"path": "gate.toml"}}}
ERA = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "read_file"}


def test_a_gateway_whose_connection_to_the_journal_is_cut_ends_with_1_and_no_client_is_told_the_address(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "gate.toml").write_text(CONFIG % database, encoding="utf-8")
    command = [sys.executable, "-m", "callgate.cli", "serve", "--config", str(tmp_path / "gate.toml"), "--http"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        try:
            url = next(match[1] for line in process.stderr if (match := re.search(r"(http://127.0.0.1:\d+)/mcp", line)))
            with httpx2.Client(base_url=url, trust_env=False) as client:
                assert client.get("/health").json()["status"] == "ok"
                assert "callgate_journal_up 1.0" in client.get("/metrics").text
                cut(database)
                told = called(client)
            said = process.stderr.read()
            assert process.wait(PATIENCE_S) == 1
        finally:
            process.kill()
    assert "postgres" not in told.lower()
    assert "The journal takes nothing more: The connection to postgresql://" in said
    assert "the gateway has ended. Start it again" in said


def cut(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
        )


def called(client: httpx2.Client) -> str:
    """Make a call; return the answer, or how the connection ended."""
    params = {**CALL["params"], "_meta": ERA}  # type: ignore[dict-item]
    headers = {**HEADERS, "Accept": "application/json, text/event-stream"}
    try:
        return client.post("/mcp", json={**CALL, "params": params}, headers=headers).text
    except httpx2.HTTPError as error:
        return str(error)
