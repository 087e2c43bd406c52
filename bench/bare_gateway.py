"""The floor of a gateway: `python -m bench.bare_gateway JOURNAL http PORT SERVER_PORT`, or `... JOURNAL stdio COMMAND...`.

Passes each request on to the server and the response back, byte for byte, over pipes or connections that stay open. Decodes both as JSON,
as a gateway must, to decide about them and record them. A request has two commits: its intent is in the file JOURNAL before it is passed
on, and its result before the response is; requests that wait at the same time share them. Checks, limits and errors are left out.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec

from bench.bare_record import BareRecord
from callgate import Engine, RawCall, SqliteJournal, tool
from callgate.events import Event

_INTENT = 2
"""How many of a call's events are in its first commit."""


class GroupedCommits:
    """Makes commits in a thread. Those who wait at the same time share one."""

    def __init__(self, record: BareRecord, sample: Sequence[Event]) -> None:
        self._record = record
        self._sample = sample
        self._guard = threading.Condition()
        self._waiting: list[tuple[asyncio.Future[None], str, Sequence[Event]]] = []
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._write_forever, daemon=True).start()

    def intent(self, call: str) -> asyncio.Future[None]:
        return self._wait(call, self._sample[:_INTENT])

    def result(self, call: str) -> asyncio.Future[None]:
        return self._wait(call, self._sample[_INTENT:])

    def _wait(self, call: str, events: Sequence[Event]) -> asyncio.Future[None]:
        future = self._loop.create_future()
        with self._guard:
            self._waiting.append((future, call, events))
            self._guard.notify()
        return future

    def _write_forever(self) -> None:
        while True:
            with self._guard:
                self._guard.wait_for(lambda: self._waiting)
                batch, self._waiting = self._waiting, []
            self._record.commit((call, event) for _, call, events in batch for event in events)
            self._loop.call_soon_threadsafe(self._wake, [future for future, _, _ in batch])

    @staticmethod
    def _wake(futures: Sequence[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head and the body of the next message, which has a `Content-Length`."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return head, await reader.readexactly(int(length))


async def over_http(commits: GroupedCommits, port: int, server_port: int) -> None:
    calls = count()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", server_port)
        try:
            while True:
                request, call = await _message(reader), f"bare/0/{next(calls)}"
                msgspec.json.decode(request[1])
                await commits.intent(call)
                requests.write(b"".join(request))
                response = await _message(answers)
                msgspec.json.decode(response[1] or b"null")
                await commits.result(call)
                writer.write(b"".join(response))
        except (asyncio.IncompleteReadError, ConnectionError):
            requests.close()
            writer.close()

    async with await asyncio.start_server(passed_on, "127.0.0.1", port) as listening:
        await listening.serve_forever()


async def over_stdio(commits: GroupedCommits, command: Sequence[str]) -> None:
    server = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    tasks: set[asyncio.Task[None]] = set()

    async def passed_on(lines: asyncio.StreamReader, write: Callable[[bytes], None], commit: Callable[[str], asyncio.Future[None]]) -> None:
        """Pass lines on, each when its commit is made. Messages without an id have none."""

        async def one(line: bytes, call: str) -> None:
            await commit(call)
            write(line)

        while line := await lines.readline():
            number = msgspec.json.decode(line).get("id")
            if number is None:
                write(line)
                continue
            task = loop.create_task(one(line, f"bare/0/{number}"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    answering = asyncio.create_task(passed_on(server.stdout, writing.write, commits.result))
    await passed_on(reader, server.stdin.write, commits.intent)
    server.stdin.close()
    await answering


async def main(journal: Path, transport: str, given: Sequence[str]) -> None:
    sample = await _events_of_a_call(journal.with_suffix(".sample.db"))
    commits = GroupedCommits(BareRecord(journal, sample), sample)
    if transport == "stdio":
        await over_stdio(commits, given)
    else:
        await over_http(commits, *map(int, given))


async def _events_of_a_call(path: Path) -> list[Event]:
    """Return the events that the engine records for a call such as those that are measured."""

    @tool
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    async with Engine([echo], journal=SqliteJournal(path)) as engine:
        await engine.call(RawCall(name="echo", arguments={"text": "hello"}, id="1"))
        return [event for event in engine.journal.read() if event.call]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
