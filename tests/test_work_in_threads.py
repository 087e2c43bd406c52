"""A thread is started for work on a large result, whatever the result is made of, and never for a small one."""

from __future__ import annotations

import pytest

from callgate import Engine, Image, Link, Resource, Text, tool
from callgate.content_parts import Part
from callgate.protocols import Execution, RunRequest
from tests.engine_calls import call, said

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(1_000)
PARTS: dict[str, tuple[Part, Part]] = {
    "text": (Text(text="sunny"), Text(text="s" * 100_000)),
    "image": (Image.from_bytes(PIXEL), Image.from_bytes(PIXEL * 100)),
    "text of a resource": (Resource.from_bytes(b"a: 1", name="a.yaml"), Resource.from_bytes(b"a: 1\n" * 20_000, name="a.yaml")),
    "link": (Link(uri="https://example.com/"), Link(uri="https://example.com/" + "a" * 100_000)),
}


class Elsewhere:
    """A runner that has read its results already, as those of other processes have."""

    def __init__(self, *parts: Part) -> None:
        self._ran = Execution(status="returned", value="", content=parts, read=True)

    async def run(self, request: RunRequest) -> Execution:
        return self._ran

    async def close(self) -> None:
        return


@tool(effect="none", runner="elsewhere")
async def look() -> None:
    """Look."""


@pytest.mark.parametrize("kind", PARTS)
async def test_a_small_part_costs_no_thread_and_a_large_one_does_not_block_the_event_loop(kind: str, started_threads: list[str]) -> None:
    """To start a thread takes a fifth of the time that a gateway needs for a call."""
    small, large = PARTS[kind]
    async with Engine([look], runners={"elsewhere": Elsewhere(small)}) as engine:
        assert (await said(engine, call("look"))).success
        assert started_threads == []
    async with Engine([look], runners={"elsewhere": Elsewhere(large)}) as engine:
        assert (await said(engine, call("look"))).success
        assert started_threads == ["callgate work"]


async def test_many_small_parts_are_a_large_result(started_threads: list[str]) -> None:
    """Each part takes time, even if it is empty."""
    async with Engine([look], runners={"elsewhere": Elsewhere(*[Text(text="")] * 100_000)}) as engine:
        assert (await said(engine, call("look"))).success
        assert started_threads == ["callgate work"]
