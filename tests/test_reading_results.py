"""Results are read as part of the call: within its timeout, until a kill, up to a size limit, and never on the event loop."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest

from callgate import Engine, Limits, RetryPolicy, Scope, Tool, after_call, tool
from callgate.protocols import Execution, RunRequest
from callgate.tools import Verified
from tests.engine_calls import call, said
from tests.waiting import PATIENCE_S, soon

RUNNERS: list[Literal["inline", "thread"]] = ["inline", "thread"]


class BlockedCode:
    """Code that blocks until the event loop releases it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()
        self.threads: list[int] = []

    def wait(self) -> str:
        self.threads.append(threading.get_ident())
        self.entered.set()
        if not self.released.wait(PATIENCE_S / 4):
            raise RuntimeError("the event loop was held")
        return "read"

    async def release(self) -> None:
        assert await soon(self.entered.is_set)
        self.released.set()


class Dumps:
    """A value that is read like a pydantic model."""

    __pydantic_serializer__ = None

    def __init__(self, held: BlockedCode) -> None:
        self._held = held

    def model_dump(self, mode: str) -> object:
        return {"said": self._held.wait()}


@dataclass
class WithProperty:
    held: BlockedCode

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name).wait() if name == "held" else object.__getattribute__(self, name)


class Iterates(list[object]):
    def __init__(self, held: BlockedCode) -> None:
        super().__init__([1])
        self._held = held

    def __iter__(self) -> Iterator[object]:
        yield self._held.wait()


class Maps(dict[str, object]):
    def __init__(self, held: BlockedCode) -> None:
        super().__init__(a=1)
        self._held = held

    def items(self) -> Any:
        yield "said", self._held.wait()


class Zone(datetime.tzinfo):
    def __init__(self, held: BlockedCode) -> None:
        self._held = held

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        self._held.wait()
        return datetime.timedelta(0)

    def dst(self, when: datetime.datetime | None) -> None: ...

    def tzname(self, when: datetime.datetime | None) -> None: ...


class StructWithProperty(msgspec.Struct):
    held: BlockedCode

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name).wait() if name == "held" else object.__getattribute__(self, name)


VALUES: dict[str, Callable[[BlockedCode], object]] = {
    "model_dump": Dumps,
    "nested in plain data": lambda held: {"rows": [1, {"row": Dumps(held)}]},
    "dataclass": WithProperty,
    "Struct": StructWithProperty,
    "__iter__": Iterates,
    "items": Maps,
    "tzinfo": lambda held: datetime.datetime(2026, 1, 1, tzinfo=Zone(held)),
}


def giving(value: Callable[[], object], runner: Literal["inline", "thread"], **settings: Any) -> Tool:
    async def inline() -> object:
        """Return the value."""
        return value()

    def threaded() -> object:
        """Return the value."""
        return value()

    return tool(name="give", runner=runner, **{"effect": "none", **settings})(inline if runner == "inline" else threaded)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_code_that_runs_while_reading_a_result_does_not_block_the_event_loop(
    value: Callable[[BlockedCode], object], runner: Literal["inline", "thread"]
) -> None:
    """The event loop releases the code that is read, so it must run during the read."""
    held = BlockedCode()
    async with Engine([giving(lambda: value(held), runner)]) as engine:
        given, _ = await asyncio.gather(said(engine, call("give")), held.release())
    assert given.status == "ok", given
    assert threading.get_ident() not in held.threads


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("effect", ["none", "once"])
async def test_reading_a_result_counts_towards_the_timeout_of_the_call(
    runner: Literal["inline", "thread"], effect: Literal["none", "once"]
) -> None:
    held = BlockedCode()
    async with Engine([giving(lambda: Dumps(held), runner, timeout_s=0.05, effect=effect, retry=RetryPolicy(attempts=1))]) as engine:
        given = await said(engine, call("give"))
        assert (given.status, given.code) == ("error" if effect == "none" else "unknown", "timeout")
        await held.release()


@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_kill_ends_the_reading_of_a_result(runner: Literal["inline", "thread"]) -> None:
    held = BlockedCode()
    async with Engine([giving(lambda: Dumps(held), runner)]) as engine:
        running = asyncio.create_task(engine.call(call("give"), Scope(conversation="c")))
        assert await soon(held.entered.is_set)
        engine.control.kill("c", "enough")
        outcome = await running
        assert not held.released.is_set()
        assert "enough" in str(outcome)
        await held.release()


class Endless(list[object]):
    """A list without end, which counts the items that are read."""

    taken = 0

    def __iter__(self) -> Iterator[object]:
        while True:
            self.taken += 1
            yield 1


class EndlessItems(dict[str, object]):
    taken = 0

    def items(self) -> Any:
        while True:
            self.taken += 1
            yield str(self.taken), 1


class EndlessSet(set[object]):
    taken = 0

    def __iter__(self) -> Iterator[object]:
        while True:
            self.taken += 1
            yield self.taken


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", [Endless, EndlessItems, EndlessSet])
async def test_an_endless_result_is_read_only_up_to_the_limit(kind: Any, runner: Literal["inline", "thread"]) -> None:
    value = kind()
    async with Engine([giving(lambda: {"rows": value}, runner)]) as engine:
        given = await said(engine, call("give"))
    assert (given.status, given.code) == ("error", "output_too_large")
    assert value.taken <= 250_001


@pytest.mark.parametrize("runner", [*RUNNERS, "process"])
@pytest.mark.parametrize("text", ["x" * 70_000, "é" * 40_000], ids=["ascii", "two bytes each"])
async def test_the_result_size_limit_applies_to_every_runner(runner: Any, text: str) -> None:
    """The limit counts bytes of UTF-8."""
    made = large_ascii if text.isascii() else large_accents
    one = tool(name="give", effect="none", runner=runner)(made)
    async with Engine([one], limits=Limits(result_bytes=70_000 if not text.isascii() else 69_999)) as engine:
        given = await said(engine, call("give"))
    assert (given.status, given.code) == ("error", "output_too_large")
    assert "larger than a result may be (Limits.result_bytes). Return a part of it" in str(given.error)


def large_ascii() -> str:
    """Return a long text."""
    return "x" * 70_000


def large_accents() -> str:
    """Return a long text."""
    return "é" * 40_000


async def test_a_small_plain_result_is_read_without_a_thread() -> None:
    before = set(threading.enumerate())
    async with Engine([giving(lambda: {"rows": [1, "two", {"three": None}], "at": (1.5, True)}, "inline")]) as engine:
        given = await said(engine, call("give"))
        assert given.structured == {"rows": [1, "two", {"three": None}], "at": [1.5, True]}
        assert set(threading.enumerate()) <= before


class Elsewhere:
    """A custom runner that returns its value unchanged."""

    def __init__(self, value: object) -> None:
        self._value = value

    async def run(self, request: RunRequest) -> Execution:
        return Execution(status="returned", value=self._value)

    async def close(self) -> None: ...


async def test_a_result_of_a_custom_runner_is_read_off_the_event_loop() -> None:
    held = BlockedCode()

    @tool(effect="none", runner="elsewhere")
    async def give() -> object:
        """Give."""
        return ""

    async with Engine([give], runners={"elsewhere": Elsewhere(Dumps(held))}) as engine:
        given, _ = await asyncio.gather(said(engine, call("give")), held.release())
    assert given.structured == {"said": "read"}


async def test_a_result_replaced_by_a_hook_is_read_off_the_event_loop() -> None:
    held = BlockedCode()

    @after_call(kind="transform")
    def put(one: object, checked: object) -> object:
        return Dumps(held)

    async with Engine([giving(lambda: "plain", "inline")], hooks=[put]) as engine:
        given, _ = await asyncio.gather(said(engine, call("give")), held.release())
    assert given.structured == {"said": "read"}


class Speaks(Exception):
    def __init__(self, held: BlockedCode) -> None:
        super().__init__()
        self._held = held

    def __str__(self) -> str:
        return self._held.wait()


class SlowText:
    def __init__(self, held: BlockedCode) -> None:
        self._held = held

    def __str__(self) -> str:
        return self._held.wait()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [Speaks, lambda held: ValueError(SlowText(held))], ids=["own __str__", "own arguments"])
async def test_reading_the_text_of_an_error_does_not_block_the_event_loop(
    error: Callable[[BlockedCode], Exception], runner: Literal["inline", "thread"], waits: bool
) -> None:
    held = BlockedCode()

    async def inline() -> object:
        """Fail."""
        await asyncio.sleep(0 if waits else -1)
        raise error(held)

    def threaded() -> object:
        """Fail."""
        raise error(held)

    one = tool(name="give", runner=runner, effect="none")(inline if runner == "inline" else threaded)
    async with Engine([one]) as engine:
        given, _ = await asyncio.gather(said(engine, call("give")), held.release())
    assert given.code == "tool_raised"
    assert "read" in str(given.error)
    assert threading.get_ident() not in held.threads


async def test_a_result_returned_by_verify_is_read_off_the_event_loop() -> None:
    held, ran = BlockedCode(), []

    async def verify(arguments: object, key: str) -> Verified:
        return Verified(happened=True, result=Dumps(held))

    @tool(effect="once", timeout_s=0.01, verify=verify)
    async def act() -> object:
        """Act."""
        ran.append(1)
        await asyncio.Event().wait()
        return ""

    async with Engine([act], limits=Limits(grace_s=0.01)) as engine:
        assert (await said(engine, call("act"))).status == "unknown"
        given, _ = await asyncio.gather(said(engine, call("act")), held.release())
    assert (given.structured, ran) == ({"said": "read"}, [1])


@pytest.mark.parametrize("left_behind", [0, 1])
async def test_an_error_whose_text_is_not_read_in_time_still_fails_the_call(left_behind: int) -> None:
    held = BlockedCode()

    @tool(effect="none", timeout_s=0.05, retry=RetryPolicy(attempts=1))
    async def fail(read: bool) -> object:
        """Fail."""
        if read:
            return Dumps(held)
        raise Speaks(held)

    async with Engine([fail], limits=Limits(abandoned_threads=1)) as engine:
        for _ in range(left_behind):
            assert (await said(engine, call("fail", read=True))).code == "timeout"
            assert (await said(engine, call("fail", read=True))).code == "non_serializable"
        given = await said(engine, call("fail", read=False))
        await held.release()
    assert given.code == "tool_raised"
    assert "its message could not be read in time" in str(given.error)
