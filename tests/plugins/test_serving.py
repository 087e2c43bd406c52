"""`serve`: plugins in Python, with all that a tool in the engine's process may do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callgate import Engine, Scope
from callgate.content_parts import Image
from callgate.plugins import Plugin, plugin
from tests.engine_calls import call, said
from tests.waiting import until

pytestmark = pytest.mark.process

MANIFEST = """
[plugin]
name = "py"
version = "1"
protocol = 1
command = ["{python}", "main.py"]
env = ["PYTHONPATH"]
parallel = 4
trust_effects = true
"""
PROGRAM = '''
import asyncio, pathlib, socket, sys, time
from typing import Annotated, Literal
from callgate import NotDone, Retryable, ToolContext, tool
from callgate.content_parts import part_from_bytes
from callgate.plugins.serving import serve

tried = []

@tool
async def waits(ctx: ToolContext) -> str:
    """Wait until it is cancelled, and write that down."""
    ctx.progress("begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        pathlib.Path("cancelled").write_text("async")
        raise

@tool
def watches(ctx: ToolContext) -> str:
    """Watch the signal in a thread."""
    ctx.progress("read the file \\udc80")
    while not ctx.signal.aborted:
        time.sleep(0.01)
    pathlib.Path("cancelled").write_text("thread")
    return "stopped"

@tool(effect="none")
def scope(ctx: ToolContext) -> dict[str, object]:
    """Say where and for whom it runs."""
    return {"actor": ctx.actor, "conversation": ctx.conversation, "attempt": ctx.attempt, "key": bool(ctx.idempotency_key)}

@tool(effect="none")
def noisy() -> str:
    """Print, and read an input that is empty."""
    print("hello from the tool")
    return sys.stdin.read()

@tool(effect="none")
def picture() -> object:
    """Return an image."""
    return b"\\x89PNG\\r\\n\\x1a\\n" + b"0" * 32

@tool
def declines() -> dict[str, object]:
    """Pass on an error that an MCP server has sent."""
    return {"content": [{"type": "text", "text": "too dark"}], "isError": True}

@tool
def raises() -> None:
    """Fail after who knows what."""
    raise ValueError("halfway")

@tool(effect="idempotent")
def dials(ctx: ToolContext) -> None:
    """Lose the answer, and then the network."""
    raise TimeoutError("lost") if ctx.attempt == 1 else socket.gaierror("no such host")

@tool
def unreachable() -> None:
    """Find no host."""
    raise socket.gaierror("no such host")

@tool
def odd() -> object:
    """Return what is no JSON."""
    return object()

@tool
def leaves() -> None:
    """End the thread."""
    sys.exit(3)

@tool(effect="none")
def second_time() -> str:
    """Succeed at the second attempt."""
    tried.append(1)
    if len(tried) == 1:
        raise Retryable("busy", retry_after_s=0.01)
    return "at last"

def even(arguments):
    return [] if arguments["n"] % 2 == 0 else ["n must be even"]

@tool(validate=even)
def halves(n: int) -> int:
    """Halve an even number."""
    return n // 2

@tool(requires_approval=lambda arguments: arguments["cents"] > 100)
def pays(cents: int) -> str:
    """Pay."""
    return "paid"

serve([waits, watches, scope, noisy, picture, declines, raises, odd, leaves, second_time, halves, pays, dials, unreachable])
'''


@pytest.fixture
def served(tmp_path: Path) -> Plugin:
    folder = tmp_path / "py"
    folder.mkdir()
    (folder / "callgate-plugin.toml").write_text(MANIFEST, encoding="utf-8")
    (folder / "main.py").write_text(PROGRAM, encoding="utf-8")
    return plugin(folder)


@pytest.mark.parametrize(("name", "kind"), [("waits", "async"), ("watches", "thread")])
async def test_a_kill_reaches_the_code_of_the_tool(served: Plugin, name: str, kind: str) -> None:
    shown: list[object] = []
    async with Engine(servers=[served]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(item), "call.progress")
        calling = asyncio.ensure_future(engine.call(call(name), Scope(conversation="c")))
        await until(lambda: shown)
        engine.control.kill("c")
        await calling
        mark = served.path / "cancelled"
        await until(lambda: mark.exists() and mark.read_text(encoding="utf-8") == kind)


async def test_a_tool_sees_its_scope(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call("scope"), Scope(conversation="c", actor="mo"))
    assert found.data == {"actor": "mo", "conversation": "c", "attempt": 1, "key": True}


async def test_what_a_tool_prints_does_not_disturb_the_protocol(served: Plugin, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call("noisy"))
    assert (found.status, found.data) == ("ok", "")
    assert "it is ignored" not in caplog.text


async def test_an_image_arrives_as_an_image(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call("picture"))
    assert [part.mime_type for part in found.content if isinstance(part, Image)] == ["image/png"]


async def test_an_error_that_a_tool_returns_in_the_form_of_mcp_is_a_failure(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call("declines"))
    assert (found.status, found.failure_class, found.error) == ("error", "tool_declared", "too dark")


@pytest.mark.parametrize(("name", "text"), [("raises", "halfway"), ("leaves", "sys.exit(3)")])
async def test_an_exception_leaves_a_call_with_an_effect_unknown(served: Plugin, name: str, text: str) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call(name))
        assert found.status == "unknown"
        assert text in found.text
        assert (await said(engine, call("scope"))).success


async def test_a_request_that_was_not_sent_proves_nothing_of_an_earlier_attempt(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        lost, never = await said(engine, call("dials")), await said(engine, call("unreachable"))
    assert (never.status, never.code) == ("error", "not_done")
    assert (lost.status, lost.metadata.attempts) == ("unknown", 2)
    assert "It may have taken effect" in lost.text


async def test_a_result_that_cannot_be_written_as_json_is_an_error_as_in_the_engines_process(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        found = await said(engine, call("odd"))
    assert found.status == "error"
    assert len(found.text) > 20


async def test_a_temporary_failure_of_a_reading_tool_is_tried_again(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        assert (await said(engine, call("second_time"))).data == "at last"


async def test_the_tools_own_validator_refuses_arguments_before_anything_happens(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        assert (await said(engine, call("halves", n=4))).data == 2
        refused = await said(engine, call("halves", n=3))
    assert refused.status == "error"
    assert "n must be even" in refused.text


async def test_a_tool_whose_approval_depends_on_its_arguments_always_needs_one(served: Plugin) -> None:
    async with Engine(servers=[served]) as engine:
        assert await engine.asks_human(call("pays", cents=1))
