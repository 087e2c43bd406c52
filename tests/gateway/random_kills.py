"""Kill a gateway and the servers behind it at random moments while a client makes calls, and compare what it was told with the ledgers.

`python -m tests.gateway.random_kills [KILLS] [SEED]` does this until the given number of kills, and prints the violations. A client repeats
a call until it gets a result or is told that the outcome is unknown. All calls have a key of their effect.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tests.cli.shell import shell
from tests.gateway.ledger_gateway import ledger_gateway, mark_of, upstream
from tests.gateway.raw_client import RawClient
from tests.recovery.ledger_server import noted
from tests.recovery.mcp_kills import http_server
from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S, soon

__all__ = ["Trial", "kill_at_random"]

SERVERS: Final = ("paper", "cloud")
"""`paper` is a child process of the gateway; `cloud` is reached over HTTP."""
_CLIENTS: Final = 6
_CALLS: Final = 4
"""The number of calls of each client between two kills."""
_LONGEST_S: Final = 0.25
"""The longest time between the start of the calls and the kill."""
_RETRY_S: Final = 0.02
_OUTCOME: Final = "callgate/outcome"


class Trial:
    """One client, its gateway, and what has happened.

    Args:
        folder: The folder of the journal, and of the ledgers of the servers in their own folders.
        servers: The targets of the servers.
    """

    def __init__(self, folder: Path, servers: dict[str, object], seed: int) -> None:
        self._folder = folder
        self._servers = servers
        self._chance = random.Random(seed)
        self._gateway = AsyncExitStack()
        self._client: RawClient | None = None
        self._starting = asyncio.Lock()
        self.kills: Counter[str] = Counter()
        self.told: dict[tuple[str, str], str] = {}
        """What the client was told of each call, by server and argument."""
        self.asked = 0

    async def run(self, kills: int) -> None:
        """Make calls and this number of kills, then calls until each server has answered one."""
        try:
            while self.kills.total() < kills:
                calls = asyncio.gather(*(self._clients_calls() for _ in range(_CLIENTS)))
                await asyncio.sleep(self._chance.uniform(0, _LONGEST_S))
                self._kill(self._chance.choice(("gateway", *SERVERS)))
                await calls
            for server in SERVERS:
                while await self._call(server) == "unknown":  # the last kill was not noticed before
                    pass
        finally:
            await self._gateway.aclose()

    async def _clients_calls(self) -> None:
        for server in self._chance.choices(SERVERS, k=_CALLS):
            await self._call(server)

    async def _call(self, server: str) -> str:
        self.asked += 1
        what = f"{server}-{self.asked}"
        status = self.told[server, what] = await self._told(server, what)
        return status

    async def _told(self, server: str, what: str) -> str:
        """Make a call until it is known what became of it."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with suppress(ConnectionError):
                client = await self._connected()
                response = await client.call(f"{server}.act", {"what": what})
                status = _status(response)
                if status in ("ok", "unknown"):
                    return status
            await asyncio.sleep(_RETRY_S)
        return "nothing"

    async def _connected(self) -> RawClient:
        """Return the client of the gateway, which is started if it does not run."""
        async with self._starting:
            if self._client is None or self._client.closed:
                await self._gateway.aclose()
                client = ledger_gateway(self._folder, self._servers, keyed=True)
                self._client = await self._gateway.enter_async_context(client)
            return self._client

    def _kill(self, victim: str) -> None:
        """Kill the gateway or the latest process of a server, if it still runs."""
        if victim == "gateway":
            pid = self._client.process.pid if self._client is not None and not self._client.closed else 0
        else:
            pid = int((noted(self._folder / victim, "server.pids") or ["0"])[-1])
        if pid and str(self._folder).encode() in _command_line(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills[victim] += 1

    async def faults(self) -> list[str]:
        """Return what was violated, once everything has ended."""
        found = list(self._of_calls())
        if not await soon(lambda: not marked(mark_of(self._folder))):
            found.append(f"processes that did not end: {marked(mark_of(self._folder))}")
        return found

    def _of_calls(self) -> Iterator[str]:
        done = Counter((server, what) for server in SERVERS for what in noted(self._folder / server, "ledger.txt"))
        listed = set(_unsettled(self._folder))
        for call, status in self.told.items():
            if done[call] > 1:
                yield f"{call} was done {done[call]} times, and told as {status}"
            if status == "nothing" or (status == "ok" and not done[call]):
                yield f"{call} was done {done[call]} times, and told as {status}"
            if (status == "unknown") != (call[1] in listed):
                yield f"{call} was told as {status}, and is {'' if call[1] in listed else 'not '}in the list of unknown calls"
        if unasked := set(done) - set(self.told):
            yield f"done, and not asked for: {unasked}"


def _status(response: dict[str, Any]) -> str:
    result = response.get("result", {})
    return str(result["_meta"][_OUTCOME]["status"]) if result.get("isError") else "ok" if "content" in result else "error"


def _unsettled(folder: Path) -> list[str]:
    """Return the arguments of the calls that somebody has to settle."""
    listed = shell(folder, "settle", "--json", "--journal", str(folder / "journal.db")).out
    return [json.loads(json.loads(line)["arguments"])["what"] for line in listed.splitlines()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def kill_at_random(folder: Path, kills: int, seed: int) -> Trial:
    with ExitStack() as running:
        command = upstream(folder / "paper")
        (folder / "cloud").mkdir()
        servers: dict[str, object] = {"paper": command, "cloud": running.enter_context(http_server(folder / "cloud", {}))}
        trial = Trial(folder, servers, seed)
        await trial.run(kills)
        return trial


async def main(kills: int, seed: int) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trial = await kill_at_random(Path(folder), kills, seed)
        faults = await trial.faults()
    told = ", ".join(f"{count} {status}" for status, count in sorted(Counter(trial.told.values()).items()))
    killed = ", ".join(f"{count} of {victim}" for victim, count in sorted(trial.kills.items()))
    print(f"seed {seed}: kills: {killed}; calls told: {told}; {time.monotonic() - began:.0f} s; {len(faults)} not as promised")  # noqa: T201
    print(*faults, sep="\n")  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(asyncio.run(main(given[0] if given else 100, given[1] if len(given) > 1 else int.from_bytes(os.urandom(4)))))
