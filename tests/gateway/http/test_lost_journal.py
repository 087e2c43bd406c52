"""`callgate serve` ends with exit code 1 when its connection to PostgreSQL is lost, so that a service manager can start it again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.cli.shell import environment
from tests.forked_python import ForkedProcess
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process]

CONFIG = 'journal = "%s"\ntools = "own.py"\n[http]\nlisten = "127.0.0.1:0"\nanonymous = true\n'
TOOLS = '''
import asyncio
import time
from pathlib import Path
from callgate import tool

HERE = Path(__file__).parent

def held():
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)

@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"

@tool(effect="none")
def watch() -> str:
    """Watch."""
    held()
    return "seen"

@tool(effect="once")
def pay() -> str:
    """Pay."""
    held()
    return "paid"

@tool(effect="once")
def fail() -> str:
    """Fail, for a reason of its own."""
    held()
    raise ValueError("the shop is closed")

@tool(effect="once")
async def transfer() -> str:
    """Transfer, which takes long."""
    (HERE / "began").touch()
    await asyncio.sleep(60)
    return "transferred"

@tool(effect="none")
async def listen() -> str:
    """Listen, which takes long."""
    (HERE / "began").touch()
    await asyncio.sleep(60)
    return "heard"
'''
ERA = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Gateway:
    """A gateway over HTTP with a journal in PostgreSQL."""

    def __init__(self, process: ForkedProcess, url: str) -> None:
        self.process, self.url = process, url

    def called(self, name: str) -> str:
        """Make a call; return the answer, or how the connection ended."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}, "_meta": ERA}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
        headers["Accept"] = "application/json, text/event-stream"
        try:
            return httpx2.post(f"{self.url}/mcp", json=message, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_S).text
        except httpx2.HTTPError as error:
            return str(error)

    def got(self, path: str) -> Any:
        return httpx2.get(self.url + path, trust_env=False, verify=False)

    def said(self) -> str:
        """Return what it writes until it ends, which it must do by itself."""
        said = self.process.stdout.read()
        assert self.process.wait(PATIENCE_S) == 1
        return said


@contextmanager
def gateway(database: str, folder: Path) -> Iterator[Gateway]:
    (folder / "gate.toml").write_text(CONFIG % database, encoding="utf-8")
    (folder / "own.py").write_text(TOOLS, encoding="utf-8")
    process = ForkedProcess("callgate", ["serve", "--http"], folder, environment(), stderr=None)
    try:
        url = next(match[1] for line in process.stdout if (match := re.search(r"(http://127.0.0.1:\d+)/mcp", line)))
        yield Gateway(process, url)
    finally:
        process.close()


def test_a_gateway_whose_connection_to_the_journal_is_cut_ends_with_1_and_no_client_is_told_the_address(
    database: str, tmp_path: Path
) -> None:
    with gateway(database, tmp_path) as one:
        assert one.got("/health").json()["status"] == "ok"
        assert "callgate_journal_up 1.0" in one.got("/metrics").text
        cut(database)
        told = one.called("look")
        said = one.said()
    assert "postgres" not in told.lower()
    assert "The journal takes nothing more: The connection to postgresql://" in said
    assert "the gateway has ended. Start it again" in said


@pytest.mark.parametrize(
    ("name", "told_too"),
    [
        ("pay", "The call may have taken effect, and the gateway could not record what came of it."),
        ("fail", "The call may have taken effect, and the gateway could not record what came of it."),
        ("watch", "Nothing has happened, because the gateway cannot record the call at the moment."),
    ],
)
def test_the_client_of_a_call_that_runs_while_the_connection_is_cut_is_told_its_outcome_and_not_the_address(
    database: str, tmp_path: Path, name: str, told_too: str
) -> None:
    with gateway(database, tmp_path) as one, ThreadPoolExecutor() as threads:
        told = threads.submit(one.called, name)
        asyncio.run(until(lambda: (tmp_path / "began").exists() or told.done()))
        cut(database)
        (tmp_path / "go").touch()
        assert "postgres" not in told.result().lower()
        assert "postgresql://" in one.said()
    assert told_too in told.result()


@pytest.mark.parametrize("name", ["transfer", "listen"])
def test_the_client_of_a_call_that_ends_because_the_database_is_gone_is_told_that_it_may_have_happened(
    database: str, tmp_path: Path, name: str
) -> None:
    with gateway(database, tmp_path) as one, ThreadPoolExecutor() as threads, refused_connections(database) as gone:
        told = threads.submit(one.called, name)
        asyncio.run(until(lambda: (tmp_path / "began").exists() or told.done()))
        gone()
        said = one.said()
        text = told.result()
    result = json.loads(text)["result"]
    assert result["_meta"]["callgate/outcome"]["status"] == "unknown"
    assert "may have taken effect" in result["content"][0]["text"]
    assert "postgres" not in text.lower()
    assert "a request failed inside of the gateway" not in said


@contextmanager
def refused_connections(database: str) -> Iterator[Callable[[], None]]:
    """Provide a function that ends every connection to the database and lets nobody connect, as if its server had stopped."""
    name = database.rpartition("@/")[2].partition("?")[0]
    with psycopg.connect(database.replace(f"/{name}?", "/postgres?"), autocommit=True) as connection:

        def gone() -> None:
            connection.execute(f"alter database {name} allow_connections false".encode())
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))

        yield gone
        connection.execute(f"alter database {name} allow_connections true".encode())


def cut(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
        )
