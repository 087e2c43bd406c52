"""Hostile MCP servers, through the engine's public interface: what becomes of a call, of other calls, and of the server's process."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, RawCall, Scope, ToolResult, tool
from callgate.calls import Aborted, Outcome
from tests.corpus.input_files import most_ms, rows
from tests.corpus.test_engine_hostile_calls import assert_alive_and_clean, assert_bounded
from tests.engine_calls import call, kinds
from tests.mcp import fake_server
from tests.mcp.fakes import Fake
from tests.runners.runner_requests import marked
from tests.waiting import until

ANSWERS = "real"
SCRIPTED = {"hang_on": "hang_on", "tools_list_pages": "pages", "no_read": "no_read"}
"""What the rows put among the frames, and is a property of the server, with its name in the script."""
MOST_LISTS = 1_000
TALLY = "conversation"


@tool(effect="none")
async def ping() -> str:
    """Answer."""
    return "pong"


def fake_of(row: dict[str, Any], folder: Path, era: str) -> Fake:
    """The server that does what the row says."""
    script: dict[str, Any] = {"era": era}
    frames: list[Any] = []
    for frame in row["frames"]:
        key = next(iter(frame)) if isinstance(frame, dict) else ""
        if key in SCRIPTED:
            script[SCRIPTED[key]] = frame[key]
        elif key == "restart_between":
            script["restarts"] = True
        elif key != "spawn_count":
            frames.append(frame)
    if script.get("hang_on") == "server/discover":
        script["hangs"] = True
    if script.pop("restarts", False):
        frames.append({"exit_after_first": True})
    work = fake_server.tool("work", **({"outputSchema": row["output_schema"]} if "output_schema" in row else {}))
    tools = [work, fake_server.tool("echo")]
    if any(isinstance(frame, dict) and "tools_list_dup" in frame for frame in row["frames"]):
        tools.append(work | {"description": "Another."})
    frames = [frame for frame in frames if not (isinstance(frame, dict) and "tools_list_dup" in frame)]
    return Fake(folder, *(frames or [_answer()]), tools=tools, **script)


def _answer() -> str:
    return '{"jsonrpc":"2.0","id":{ID},"result":{"content":[{"type":"text","text":"real"}]}}\n'


def word_for(outcome: Outcome) -> tuple[str, set[str]]:
    """Return the outcome in the words of the rows, and its codes."""
    if isinstance(outcome, Aborted):
        return "cancelled", set()
    assert isinstance(outcome, Answered)
    result = outcome.result
    code = {"output_schema": "schema_invalid"}.get(str(result.code), str(result.code))
    codes = {code}
    unavailable = str((result.structured or {}).get("unavailable_servers", "")) if isinstance(result.structured, dict) else ""
    if "did not start within" in unavailable:
        codes.add("timeout")
    return {"ok": "ok", "error": "tool_error", "unknown": "unknown"}[result.status], codes


async def outcome_of(engine: Engine, row: dict[str, Any], fake: Fake) -> Outcome:
    raw, scope = call("work"), Scope(conversation=TALLY)
    if "cancel_at_s" not in row:
        return await engine.call(raw, scope)
    calling = asyncio.ensure_future(engine.call(raw, scope))
    await until(lambda: fake.calls())
    engine.control.kill(TALLY, "the user has cancelled it")
    return await calling


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024 * 1024)


@pytest.mark.process
@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="frame"))
async def test_a_hostile_server_ends_its_call_with_an_expected_outcome(
    row: dict[str, Any], era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "callgate")
    fake = fake_of(row, tmp_path, era)
    hangs = row.get("phase") == "start" and "code" in row["expect"]
    server = fake.server(start_timeout_s=2 if hangs else 30, env={"FAKE_MARK": str(tmp_path)}, timeout_s=row.get("timeout_s"))
    peak, began = peak_mb(), time.monotonic()
    async with Engine([ping], servers=[server]) as engine:
        outcome = await outcome_of(engine, row, fake)
        took_ms = (time.monotonic() - began) * 1_000
        await assert_expected(row, outcome, engine, fake, caplog)
        await assert_alive_and_clean(engine)
    assert took_ms <= most_ms(row)
    assert peak_mb() - peak <= row["expect"].get("max_rss_mb", 64)
    assert marked(str(tmp_path)) == []


async def assert_expected(row: dict[str, Any], outcome: Outcome, engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    expect = row["expect"]
    word, codes = word_for(outcome)
    told: ToolResult | None = outcome.result if isinstance(outcome, Answered) else None
    assert word in expect["outcome"], told
    if "code" in expect and word != "ok":
        assert codes & set(expect["code"]), codes
    if "value" in expect:
        assert told is not None
        assert told.text == expect["value"]
    if told is not None:
        assert_bounded(told)
    for name in expect.get("inv", ()):
        if name in ("error_le_4k_or_marked", "pairing_ok", "no_survivors"):
            continue  # asserted for every row
        await INVARIANTS[name](engine, fake, caplog)


async def _noise_counted(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: "it is ignored" in caplog.text)


async def _cancel_sent(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    (called,) = fake.seen("tools/call")
    await until(lambda: [note["params"]["requestId"] for note in fake.seen("notifications/cancelled")] == [called["id"]])


async def _other_calls_live(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await engine.call(call("echo", text="alive"))
    assert isinstance(outcome, Answered)
    assert outcome.result.text == "alive"


async def _late_recorded(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: "call.late" in kinds(engine))


async def _refresh_coalesced(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: len(fake.seen("tools/list")) > 1)
    assert len(fake.seen("tools/list")) <= 3


async def _no_blind_rerun(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    assert len(fake.calls()) == 1
    await until(lambda: len(fake.pids) == 2)
    outcome = await engine.call(RawCall(name="echo", arguments='{"text": "again"}'))
    assert isinstance(outcome, Answered)
    assert outcome.result.text == "again"
    assert [params["name"] for params in fake.calls()] == ["work", "echo"]


async def _bounded_rounds(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    assert len(fake.seen("tools/list")) <= MOST_LISTS


async def _one_process(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    assert len(fake.pids) == 1


async def _pin_checked(engine: Engine, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    await until(lambda: len(fake.seen("tools/list")) > 1)


INVARIANTS = {
    "noise_counted": _noise_counted,
    "cancel_sent": _cancel_sent,
    "other_calls_live": _other_calls_live,
    "late_recorded": _late_recorded,
    "refresh_coalesced": _refresh_coalesced,
    "no_blind_rerun": _no_blind_rerun,
    "bounded_rounds": _bounded_rounds,
    "one_process": _one_process,
    "pin_checked": _pin_checked,
}
