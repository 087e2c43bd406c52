"""How many calls of one principal run at the same time, also after a change of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from callgate import Engine, tool
from callgate.gateway import Gateway, Principal
from tests.waiting import until

_META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class NoStream:
    """Takes what is sent beside the response, and drops it."""

    def send(self, message: Mapping[str, Any]) -> bool:
        return True


class Held:
    """A gateway with a tool that waits until it is let go; `begun` has the names of its calls in the order of their starts."""

    def __init__(self, gateway: Gateway, begun: list[str], going: dict[str, asyncio.Event]) -> None:
        self.begun = begun
        self._gateway = gateway
        self._going = going

    def start(self, name: str, *, parallel: int, principal: str = "ann", queued: int = 256) -> asyncio.Task[Any]:
        self._going[name] = asyncio.Event()
        sent = {"id": name, "method": "tools/call", "params": {"name": "hold", "arguments": {"name": name}, "_meta": _META}}
        who = Principal(name=principal, parallel=parallel, queued=queued)
        return asyncio.ensure_future(self._gateway.stateless(who).request(sent, NoStream()))

    async def ended(self, name: str, call: asyncio.Task[Any]) -> None:
        self._going[name].set()
        assert not (await call)["result"].get("isError")

    async def answers_others(self) -> None:
        """Make a call of another principal, so that everything that may start has started."""
        name = f"other {len(self._going)}"
        await self.ended(name, self.start(name, parallel=1, principal="bob"))
        self.begun.remove(name)


@pytest.fixture
async def held() -> Any:
    begun: list[str] = []
    going: dict[str, asyncio.Event] = {}

    @tool(effect="none")
    async def hold(name: str) -> str:
        """Wait."""
        begun.append(name)
        await going[name].wait()
        return "done"

    async with Gateway(Engine([hold])) as gateway:
        yield Held(gateway, begun, going)


async def test_a_lower_limit_counts_for_the_next_calls_of_a_principal_whose_calls_never_end_all_at_once(held: Held) -> None:
    running = {name: held.start(name, parallel=2) for name in "ab"}
    await until(lambda: held.begun == ["a", "b"])
    waiting = {name: held.start(name, parallel=1) for name in "cd"}
    await held.ended("a", running["a"])
    await held.answers_others()
    assert held.begun == ["a", "b"]
    await held.ended("b", running["b"])
    await until(lambda: held.begun[-1] == "c")
    await held.ended("c", waiting["c"])
    await until(lambda: held.begun[-1] == "d")
    await held.ended("d", waiting["d"])


async def test_a_higher_limit_starts_calls_that_wait(held: Held) -> None:
    first, second = held.start("a", parallel=1), held.start("b", parallel=1)
    await until(lambda: held.begun == ["a"])
    third = held.start("c", parallel=3)
    await until(lambda: sorted(held.begun) == ["a", "b", "c"])
    for name, call in (("a", first), ("b", second), ("c", third)):
        await held.ended(name, call)


async def test_a_call_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next(held: Held) -> None:
    first = held.start("a", parallel=1, queued=2)
    await until(lambda: held.begun == ["a"])
    second, third = held.start("b", parallel=1, queued=2), held.start("c", parallel=1, queued=2)
    await held.answers_others()
    refused = await held.start("d", parallel=1, queued=2)
    assert refused["result"]["_meta"]["callgate/outcome"]["code"] == "too_many_calls"
    second.cancel()
    await asyncio.wait((second,))
    await held.ended("a", first)
    await until(lambda: held.begun == ["a", "c"])
    await held.ended("c", third)
