"""A client over stdio that sends on without reading is held back, but never locked out."""

from __future__ import annotations

import asyncio
import fcntl
import json
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.raw_client import program
from tests.waiting import until

pytestmark = pytest.mark.process

CALLS = 60
_ROOT = Path(__file__).parents[2]
_SERVER = str(Path(__file__).with_name("large_server.py"))


class WritingClient:
    """A client of the handshake era that reads only when it is told to."""

    def __init__(self, process: subprocess.Popen[bytes], ledger: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self._ledger = ledger
        about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "w", "version": "1"}}
        self.send(id=0, method="initialize", params=about)
        self.read()
        self.send(method="notifications/initialized")

    def send(self, **message: Any) -> None:
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.stdin.flush()

    def call(self, number: int, tool: str = "large") -> None:
        self.send(id=number, method="tools/call", params={"name": tool, "arguments": {"n": number}})

    def read(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.stdout.readline())
        return message

    async def wait_for_unread(self) -> None:
        """Wait until the gateway has more to write than a pipe takes."""
        await until(lambda: int.from_bytes(fcntl.ioctl(self.stdout, termios.FIONREAD, bytes(4)), sys.byteorder) >= 4_096)

    def read_to_the_end(self) -> list[int]:
        """Return the ids of the answers that come until the gateway has ended. None says that a call was not made."""
        found = [json.loads(line) for line in self.stdout]
        assert [one for one in found if "callgate/outcome" in one.get("result", {}).get("_meta", {})] == []
        return [one["id"] for one in found]

    @property
    def called(self) -> list[str]:
        """What the server has written to its ledger."""
        return self._ledger.read_text().split() if self._ledger.exists() else []


@contextmanager
def writing_client(folder: Path) -> Iterator[WritingClient]:
    ledger = folder / "ledger"
    command = program(servers=[[sys.executable, _SERVER, str(ledger)]])
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield WritingClient(process, ledger)
        finally:
            process.kill()


async def test_a_client_that_writes_all_its_requests_and_closes_its_end_and_then_reads_gets_all_answers(tmp_path: Path) -> None:
    with writing_client(tmp_path) as client:
        for number in range(1, CALLS + 1):
            client.call(number)
        await until(lambda: len(client.called) >= 6)
        client.stdin.close()
        assert sorted(await asyncio.to_thread(client.read_to_the_end)) == list(range(1, CALLS + 1))


async def test_the_requests_of_a_client_that_does_not_read_wait_but_it_can_answer_a_question_and_cancel_one(tmp_path: Path) -> None:
    with writing_client(tmp_path) as client:
        client.call(1, "ask")
        question = await asyncio.to_thread(client.read)
        client.call(2)
        await client.wait_for_unread()
        for number in range(3, CALLS):
            client.call(number)
        await until(lambda: len(client.called) >= 6)
        client.send(method="notifications/cancelled", params={"requestId": CALLS - 1})
        client.send(id=question["id"], result={"action": "accept", "content": {"name": "Ann"}})
        await until(lambda: "Ann" in client.called)
        assert client.called.index("Ann") <= CALLS // 2
        client.stdin.close()
        answered = await asyncio.to_thread(client.read_to_the_end)
        assert (sorted(answered), str(CALLS - 1) in client.called) == (list(range(1, CALLS - 1)), False)


async def test_a_client_that_sends_more_than_is_held_goes_on_when_it_reads(tmp_path: Path) -> None:
    """Requests of 1 MB each: 16 MiB are held, and 20 MiB are read ahead."""
    with writing_client(tmp_path) as client:
        for number in range(1, 9):
            client.call(number)
        await until(lambda: len(client.called) >= 8)
        sent: list[int] = []

        def write_all() -> None:
            for number in range(9, CALLS):
                client.send(id=number, method="tools/call", params={"name": "none", "arguments": {"rest": "x" * 1_000_000}})
                sent.append(number)
            client.stdin.close()

        writing = asyncio.get_running_loop().run_in_executor(None, write_all)
        await until(lambda: len(sent) >= 34)
        answered = await asyncio.to_thread(client.read_to_the_end)
        await writing
        assert sorted(answered) == list(range(1, CALLS))


async def test_the_gateway_ends_when_a_client_is_gone_that_has_read_nothing_of_much(tmp_path: Path) -> None:
    """Of so many pings, more than is held are still unread when the client ends."""
    with writing_client(tmp_path) as client:
        for number in range(1, 9):
            client.call(number)
        await until(lambda: len(client.called) >= 8)
        await client.wait_for_unread()
        pings = b"".join(b'{"jsonrpc": "2.0", "id": %d, "method": "ping"}\n' % number for number in range(100, 90_100))
        await asyncio.to_thread(client.stdin.write, pings)
        client.stdin.close()
        client.stdout.close()
        await until(lambda: client.process.poll() is not None)
