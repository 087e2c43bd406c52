"""Work that grows with the size of a value is bounded, or does not run on the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Limits, RawCall, Scope, SqliteJournal, ToolContext, tool
from callgate._blob_store import MemoryBlobs
from callgate._json import read_object
from callgate._pipeline import parse
from callgate._runners.process import process_runner
from callgate._runners.process.worker_protocol import read_execution
from callgate.calls import Outcome
from callgate.protocols import Execution
from tests.engine_calls import bodies, call, result_of, said
from tests.waiting import PATIENCE_S, until

LARGE = 6_000_000


@tool(effect="none")
async def echo(a: object = "") -> str:
    """Echo."""
    return "ok"


class Where:
    """Records the threads in which something is done."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def note(self) -> None:
        self.threads.add(threading.get_ident())

    @property
    def on_loop(self) -> bool:
        return threading.get_ident() in self.threads


class Blobs(MemoryBlobs):
    def __init__(self, where: Where) -> None:
        super().__init__()
        self._where = where

    def put(self, data: bytes) -> str:
        self._where.note()
        return super().put(data)


class Redacts:
    """A redactor that records the threads in which it gets large values."""

    def __init__(self, where: Where) -> None:
        self._where = where

    def redact(self, body: bytes) -> bytes:
        if len(body) > 2_000_000:
            self._where.note()
        return body


@tool(effect="none")
async def rows(n: int) -> list[str]:
    """Return rows."""
    return ["x" * 100] * n


@tool(effect="none")
def rows_in_a_thread(n: int) -> list[str]:
    """Return rows."""
    return ["x" * 100] * n


@tool(effect="none", runner="process")
def rows_in_a_process(n: int) -> list[str]:
    """Return rows."""
    return ["x" * 100] * n


@pytest.mark.parametrize("one", [rows, rows_in_a_thread, rows_in_a_process], ids=lambda one: one.name)
async def test_a_large_result_is_stored_and_redacted_off_the_event_loop(one: Any) -> None:
    kept, redacted = Where(), Where()
    async with Engine([one], blobs=Blobs(kept), redactor=Redacts(redacted)) as engine:
        given = await said(engine, call(one.name, n=30_000))
        assert given.metadata.truncated
        assert engine.blobs.get(str(given.metadata.blob)) is not None
    assert kept.threads
    assert redacted.threads
    assert not kept.on_loop
    assert not redacted.on_loop


async def test_a_large_result_is_validated_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    where = Where()
    async with Engine([rows]) as engine:
        output = engine.tools.get("rows").output  # type: ignore[union-attr]
        assert output is not None
        is_valid = output.is_valid

        def noted(value: object) -> bool:
            where.note()
            return is_valid(value)

        monkeypatch.setattr(output, "is_valid", noted)
        assert (await said(engine, call("rows", n=30_000))).status == "ok"
        assert where.threads
        assert not where.on_loop
        assert (await said(engine, call("rows", n=3))).status == "ok"
        assert where.on_loop


class Endless(Mapping[str, object]):
    """A mapping without end, which counts the items that are read."""

    def __init__(self) -> None:
        self.taken = 0

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        while True:
            self.taken += 1
            yield str(self.taken)

    def __getitem__(self, key: str) -> object:
        return "x"


async def test_an_endless_arguments_mapping_is_read_only_up_to_the_limit() -> None:
    endless = Endless()
    async with Engine([echo]) as engine:
        given = await said(engine, RawCall(name="echo", arguments=endless))
    assert given.code == "too_large"
    assert endless.taken <= engine.limits.arguments_keys + 1


ARGUMENTS: dict[str, Any] = {
    "text": "x" * LARGE,
    "text of two bytes each": "é" * LARGE,
    "bytes": b"x" * LARGE,
    "mapping": {"a": "x" * LARGE},
    "mapping of many": {str(n): "x" * 100 for n in range(LARGE // 100)},
    "nested": {"a": [["x" * 1000] * 1000] * 10},
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("on_disk", [False, True])
async def test_oversized_arguments_are_recorded_only_in_part_and_without_a_hash(arguments: Any, on_disk: bool, tmp_path: Path) -> None:
    """At most the first 64 KiB and the size are recorded."""
    journal = SqliteJournal(tmp_path / "journal.db") if on_disk else None
    async with Engine([echo], journal=journal) as engine:
        given = await said(engine, RawCall(name="echo", arguments=arguments))
        [received] = bodies(engine, "call.received")
    assert given.code == "too_large"
    assert len(str(received["arguments"]).encode()) <= 65_536
    assert "arguments_sha256" not in received
    assert received["arguments_bytes"] in (LARGE, 4_194_304)


async def test_arguments_up_to_4_mib_are_recorded_with_their_hash() -> None:
    text = '{"a": "%s"}' % ("x" * 100_000)
    async with Engine([echo]) as engine:
        assert (await said(engine, RawCall(name="echo", arguments=text))).status == "ok"
        [received] = bodies(engine, "call.received")
    assert received["arguments_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert received["arguments_bytes"] == len(text)


@pytest.mark.parametrize("mark", ["x", "é", "\ud800"])
async def test_a_huge_call_id_name_or_reasoning_is_truncated_in_the_journal(mark: str) -> None:
    endless = mark * LARGE
    async with Engine([echo]) as engine:
        by_id = await said(engine, RawCall(name="echo", arguments="{}", id=endless))
        by_name = await said(engine, RawCall(name=endless, arguments="{}", id="1"))
        reasoned = await said(engine, RawCall(name="echo", arguments="{}", id="2", reasoning=endless))
        lengths = [len(event.body) for event in engine.journal.read()]
    assert (by_id.code, by_name.code, reasoned.status) == ("bad_call_id", "unknown_tool", "ok")
    assert len(by_id.id) <= 6 * 4_096
    assert max(lengths) < 60_000


async def test_oversized_arguments_of_a_nested_call_are_refused() -> None:
    @tool(effect="none")
    async def outer(context: ToolContext) -> str:
        """Call a tool with oversized arguments."""
        first = await context.call("echo", {"a": "x" * LARGE})
        return str(first.code)

    async with Engine([outer, echo]) as engine:
        assert (await said(engine, call("outer"))).structured == "too_large"


async def one_call(engine: Engine, raw: RawCall) -> list[Outcome]:
    return [await engine.call(raw)]


async def of_a_message(engine: Engine, raw: RawCall) -> list[Outcome]:
    return await engine.call_many([raw])


async def of_a_stream(engine: Engine, raw: RawCall) -> list[Outcome]:
    begun = engine.emission(Scope())
    begun.add(raw)
    begun.add(call("echo", a="small", id="behind"))
    return await begun.seal()


async def of_a_tool(engine: Engine, raw: RawCall) -> list[Outcome]:
    @tool(effect="none")
    async def outer(context: ToolContext) -> str:
        """Call another tool."""
        given = raw.arguments if isinstance(raw.arguments, dict) else json.loads(raw.arguments)  # type: ignore[arg-type]
        return (await context.call("echo", given)).status

    engine.register(outer)
    return [await engine.call(call("outer"))]


NESTED = '{"a": [' + ",".join(["[]"] * 40_000) + "]}"


@pytest.mark.parametrize("hand_in", [one_call, of_a_message, of_a_stream, of_a_tool])
@pytest.mark.parametrize("arguments", [NESTED, NESTED.encode(), json.loads(NESTED), {"a": tuple(json.loads(NESTED)["a"])}])
async def test_large_arguments_are_parsed_off_the_event_loop(hand_in: Any, arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arguments are parsed on the event loop, which is faster."""
    where = Where()

    def noted(given: Any, limits: Limits) -> Any:
        if len(given) > 1_000 or (isinstance(given, dict) and len(given.get("a", "")) > 1_000):
            where.note()
        return read_object(given, limits)

    monkeypatch.setattr(parse, "read_object", noted)
    async with Engine([echo]) as engine:
        outcomes = await hand_in(engine, RawCall(name="echo", arguments=arguments, id="large"))
    assert {result_of(outcome).status for outcome in outcomes} == {"ok"}
    assert where.threads
    assert not where.on_loop


@pytest.mark.parametrize("hand_in", [one_call, of_a_message, of_a_stream])
async def test_large_arguments_of_invalid_json_are_refused_off_the_event_loop(hand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    where = Where()

    def noted(given: Any, limits: Limits) -> Any:
        if len(given) > 1_000:
            where.note()
        return read_object(given, limits)

    monkeypatch.setattr(parse, "read_object", noted)
    async with Engine([echo]) as engine:
        outcomes = await hand_in(engine, RawCall(name="echo", arguments=NESTED[:-2], id="large"))
    assert result_of(outcomes[0]).code == "invalid_json"
    assert where.threads
    assert not where.on_loop


async def test_a_message_cancelled_while_large_arguments_are_parsed_runs_no_call() -> None:
    ran: list[object] = []

    @tool(name="write")
    async def write(a: object) -> str:
        """Write."""
        ran.append(a)
        return "written"

    async with Engine([write]) as engine:
        sealing = asyncio.create_task(engine.call_many([RawCall(name="write", arguments=NESTED, id="large")]))
        await asyncio.sleep(0)
        sealing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sealing
    assert not ran


class Slow(Mapping[str, object]):
    """A mapping whose iteration waits for `go_on`."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        self.begun.set()
        self.go_on.wait(PATIENCE_S)
        yield "a"

    def __getitem__(self, key: str) -> object:
        return "x"


async def test_a_call_whose_arguments_are_still_parsed_when_the_engine_closes_is_not_run() -> None:
    ran: list[object] = []

    @tool(name="write")
    async def write(a: object) -> str:
        """Write."""
        ran.append(a)
        return "written"

    slow = Slow()
    engine = Engine([write])
    calls = asyncio.create_task(engine.call_many([RawCall(name="write", arguments=slow, id="1")]))
    await until(slow.begun.is_set)
    await engine.close()
    slow.go_on.set()
    [outcome] = await calls
    assert result_of(outcome).failure_class == "not_started"
    assert not ran


async def test_a_large_result_of_a_process_tool_is_decoded_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    where = Where()

    def noted(body: bytes) -> Execution:
        if len(body) > 1_000:
            where.note()
        return read_execution(body)

    monkeypatch.setattr(process_runner, "read_execution", noted)
    async with Engine([rows_in_a_process]) as engine:
        assert (await said(engine, call("rows_in_a_process", n=30_000))).status == "ok"
        assert (await said(engine, call("rows_in_a_process", n=1, id="small"))).status == "ok"
    assert where.threads
    assert not where.on_loop
