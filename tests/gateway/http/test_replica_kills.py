"""Replicas of a gateway that are killed: what they did is told truly by the others, and what waits for a human is not lost."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from callgate.inbox import approve
from tests.cli.shell import environment
from tests.forked_python import ForkedProcess
from tests.gateway.http.gateway_process import ACCEPT, call
from tests.gateway.http.test_replicas import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills")]

TOKEN, OPERATOR = "token-of-the-client-1", "token-of-the-operator"
TOOLS = '''
import time
from pathlib import Path
from callgate import ToolContext, tool

LEDGER = Path(__file__).with_name("ledger")

def noted(what):
    with LEDGER.open("a") as ledger:
        ledger.write(what + "\\n")

@tool(effect="once", key="act:{what}")
def act(what: str) -> str:
    """Act."""
    time.sleep(0.01)
    noted(what)
    time.sleep(0.01)
    return "done"

@tool(effect="once")
def rest(seconds: float, ctx: ToolContext) -> str:
    """Say it, and return after a while."""
    ctx.progress("resting")
    time.sleep(seconds)
    return "rested"

@tool(effect="once", requires_approval=True)
def pay(what: str) -> str:
    """Pay."""
    noted(what)
    return "paid"
'''


class Replica:
    """One gateway as a process, which can be killed and started again."""

    def __init__(self, folder: Path, name: str, database: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder, self._file = folder, folder / f"{name}.toml"
        self._file.write_text(
            f'tools = "own.py"\njournal = "{database}"\n[http]\nlisten = "{self.url.removeprefix("http://")}"\n'
            f'[principals.ann]\ntoken_env = "TOKEN"\napproves = false\n[principals.olga]\ntoken_env = "OPERATOR"\nrole = "operator"\n'
            f'[replicas]\nname = "{name}"\nurl = "{self.url}"\nsecret_env = "SECRET"\n',
            encoding="utf-8",
        )
        self._process: ForkedProcess | None = None

    async def start(self) -> None:
        self._process = self._started()
        await until(self._answers)

    def _started(self) -> ForkedProcess:
        words = ["serve", "--config", str(self._file), "--http"]
        environ = environment(TOKEN=TOKEN, OPERATOR=OPERATOR, SECRET="s" * 32)
        with self._file.with_suffix(".log").open("ab") as log:
            return ForkedProcess("callgate", words, self._folder, environ, log.fileno())

    def _answers(self) -> bool:
        with suppress(httpx2.HTTPError):
            return httpx2.get(f"{self.url}/health", trust_env=False, verify=False).status_code == 200
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.close()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    async def request(self, method: str, params: dict[str, Any], session: str = "") -> httpx2.Response:
        """Send a request of the handshake era."""
        async with self._streamed(method, params, session) as response:
            await response.aread()
            return response

    async def events_of(self, method: str, params: dict[str, Any], session: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield the messages of the event stream that answers a request of the handshake era."""
        async with self._streamed(method, params, session) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    @asynccontextmanager
    async def _streamed(self, method: str, params: dict[str, Any], session: str) -> AsyncIterator[httpx2.Response]:
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": ACCEPT} | ({"Mcp-Session-Id": session} if session else {})
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S, trust_env=False, verify=False) as client,
            client.stream("POST", f"{self.url}/mcp", json=message) as response,
        ):
            yield response

    async def call(self, name: str, arguments: dict[str, Any], token: str = TOKEN) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False, verify=False) as client:
            result: dict[str, Any] = (await call(client, name, arguments))["result"]
            return result


@asynccontextmanager
async def replicas(folder: Path, database: str, names: str = "ab") -> AsyncIterator[tuple[Replica, ...]]:
    (folder / "own.py").write_text(TOOLS, encoding="utf-8")
    (folder / "ledger").touch()
    async with AsyncExitStack() as stack:
        started = tuple(Replica(folder, name, database) for name in names)
        for one in started:
            stack.callback(one.kill)
            await one.start()
        yield started


def faults(told: dict[str, str], done: Counter[str]) -> Iterator[str]:
    for what, status in told.items():
        if done[what] > 1 or (status == "ok" and done[what] != 1):
            yield f"{what} was done {done[what]} times, and told as {status}"


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_effect_happens_twice_however_replicas_are_killed(database: str, tmp_path: Path, seed: int) -> None:
    """A client repeats each call, at either replica, until it is told what became of it."""
    chance, told = random.Random(seed), dict[str, str]()
    async with replicas(tmp_path, database) as pair:

        async def ask(what: str) -> None:
            while what not in told:
                with suppress(httpx2.HTTPError):
                    result = await chance.choice(pair).call("act", {"what": what})
                    status = result["_meta"]["callgate/outcome"]["status"] if result.get("isError") else "ok"
                    told.update({what: status} if status in ("ok", "unknown") else {})
                await asyncio.sleep(0.02)

        for kills in range(3):
            asking = asyncio.gather(*(ask(f"{kills}-{number}") for number in range(8)))
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            victim = chance.choice(pair)
            victim.kill()
            await victim.start()
            async with asyncio.timeout(PATIENCE_S):
                await asking
    assert list(faults(told, Counter((tmp_path / "ledger").read_text(encoding="utf-8").split()))) == []


async def test_a_call_that_waits_at_a_killed_replica_is_approved_and_runs_once_at_another(database: str, tmp_path: Path) -> None:
    async with replicas(tmp_path, database) as (one, other):
        waiting = (await one.call("pay", {"what": "rent"}))["_meta"]["callgate/outcome"]
        assert waiting["status"] == "waiting"
        one.kill()
        listed = await other.call("callgate_approvals", {}, OPERATOR)
        assert [entry["approval"] for entry in listed["structuredContent"]["approvals"]] == [waiting["approval"]]
        decided = await other.call("callgate_approve", {"approval": waiting["approval"]}, OPERATOR)
        assert not decided.get("isError"), json.dumps(decided)
        assert (await other.call("pay", {"what": "rent"}))["content"][0]["text"] == "paid"
        assert (await other.call("pay", {"what": "rent"}))["_meta"]["callgate/outcome"]["status"] == "waiting"
    assert (tmp_path / "ledger").read_text(encoding="utf-8").split() == ["rent"]


async def test_an_approval_is_the_success_of_one_request_however_many_make_the_call_at_all_replicas_at_once(
    database: str, tmp_path: Path
) -> None:
    told: list[str] = []
    async with replicas(tmp_path, database, "abc") as all_of_them:
        one, other, _ = all_of_them
        for what in "12345":
            waiting = (await one.call("pay", {"what": what}))["_meta"]["callgate/outcome"]
            await other.call("callgate_approve", {"approval": waiting["approval"]}, OPERATOR)
            results = await asyncio.gather(*(replica.call("pay", {"what": what}) for replica in all_of_them * 3))
            told += [result["content"][0]["text"] for result in results]
    paid = (tmp_path / "ledger").read_text(encoding="utf-8").split()
    assert told.count("paid") == len(paid) == len(set(paid)) > 1


async def test_an_approved_call_whose_run_a_frozen_replica_holds_is_told_as_held(database: str, tmp_path: Path) -> None:
    async with replicas(tmp_path, database) as (one, other):
        waiting = (await one.call("pay", {"what": "rent"}))["_meta"]["callgate/outcome"]
        one.freeze()
        await asyncio.to_thread(approve, database, waiting["approval"], by="an operator")
        told = await other.call("pay", {"what": "rent"})
    assert told["_meta"]["callgate/outcome"]["code"] == "run_held"
    assert "another process works on a call of the same run" in told["content"][0]["text"]
    assert "again in a moment" in told["content"][0]["text"]


async def test_requests_to_a_frozen_replica_end_with_an_error_and_a_slow_call_of_a_living_one_does_not(
    database: str, tmp_path: Path
) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    async with replicas(tmp_path, database) as (one, other):
        session = (await one.request("initialize", about)).headers["mcp-session-id"]
        rested = await other.request("tools/call", {"name": "rest", "arguments": {"seconds": 12}}, session)
        assert rested.json()["result"]["content"][0]["text"] == "rested"
        with_progress = {"name": "rest", "arguments": {"seconds": 120}, "_meta": {"progressToken": "p"}}
        events = other.events_of("tools/call", with_progress, session)
        assert (await anext(events))["method"] == "notifications/progress"
        one.freeze()
        called, listed, begun = await asyncio.gather(
            other.request("tools/call", {"name": "act", "arguments": {"what": "walk"}}, session),
            other.request("tools/list", {}, session),
            anext(events),
        )
        await events.aclose()
    assert (called.status_code, listed.status_code) == (502, 502)
    for told in (called.json(), begun):
        assert "The call may have taken effect: its outcome is in the journal." in told["error"]["message"]
    assert "This request has called no tool." in listed.json()["error"]["message"]
    assert [told["id"] for told in (called.json(), listed.json(), begun)] == [7, 7, 7]
