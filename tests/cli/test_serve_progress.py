"""What tools of `callgate serve` report while they run reaches the client that wants progress."""

from __future__ import annotations

from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_process import start_command
from tests.gateway.raw_client import Era, RawClient, raw_session

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
_TOOLS = '''
from callgate import ToolContext, tool

@tool(effect="none")
async def inline(ctx: ToolContext) -> str:
    """Report within the event loop."""
    ctx.progress("one")
    ctx.progress("two\\n")
    ctx.progress(" ")
    return "done"

@tool(effect="none")
def thread(ctx: ToolContext) -> str:
    """Report from a thread."""
    ctx.progress("one")
    ctx.progress("two")
    return "done"

@tool(runner="process", effect="none")
def process(ctx: ToolContext) -> str:
    """Report from a process, and print."""
    ctx.progress("one")
    print("two", flush=True)
    return "done"
'''


async def progress_of(client: RawClient, tool: str, **more: Any) -> list[Any]:
    """Call a tool; return the params of all notifications that came before its result."""
    assert (await client.call(tool, {}, **more))["result"]["content"][0]["text"] == "done"
    told = [client.messages.get_nowait() for _ in range(client.messages.qsize())]
    assert {message["method"] for message in told} <= {"notifications/progress"}
    return [message["params"] for message in told]


@ERAS
@pytest.mark.parametrize("tool", ["inline", "thread", "process"])
async def test_a_client_that_wants_progress_reads_what_the_tool_reports(tmp_path: Path, era: Era, tool: str) -> None:
    (tmp_path / "own.py").write_text(_TOOLS, encoding="utf-8")
    serve = await start_command(tmp_path, "serve", "--tools", "own.py", "--journal", ":memory:", stdin=PIPE)
    async with raw_session(serve, era) as client:
        told = await progress_of(client, tool, _meta={"progressToken": "mine"})
        assert told == [
            {"progressToken": "mine", "progress": 1, "message": "one"},
            {"progressToken": "mine", "progress": 2, "message": "two"},
        ]
        assert await progress_of(client, tool) == []
