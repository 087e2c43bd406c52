"""The contract of tool servers, for MCP servers and plugins alike: real processes, the same calls, the same results."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from callgate import Engine, Scope, tool
from callgate.events import Progress
from callgate.policy import Rules
from tests.engine_calls import call, kinds, result_of, said
from tests.mcp import fakes as mcp_fakes
from tests.mcp.fakes import Fake
from tests.plugins import fakes as plugin_fakes
from tests.plugins.fakes import FakeFolder
from tests.waiting import until

pytestmark = pytest.mark.process

Behaviour = Literal["answers", "hangs", "progresses", "exits", "garbage", "not_done"]


class Served(NamedTuple):
    """A server with the tool `work`, which behaves as asked, and `echo`, and what the server has seen."""

    config: Any
    calls: Callable[[], list[Any]]
    cancels: Callable[[], list[Any]]
    pids: Callable[[], list[int]]


class Family(NamedTuple):
    layer: str
    make: Callable[..., Served]


def mcp_server(folder: Path, behaviour: Behaviour, *, name: str = "fake", effect: str = "once") -> Served:
    frames: Mapping[str, list[Any]] = {
        "answers": [mcp_fakes.ANSWER],
        "hangs": [{"until_cancelled": True}],
        "progresses": [{"progress": "halfway"}, {"until_cancelled": True}],
        "exits": [{"exit": 3}],
        "garbage": ["no JSON\n[1]\n", mcp_fakes.ANSWER],
        "not_done": ['{"jsonrpc":"2.0","id":{ID},"error":{"code":-32602,"message":"the printer is off"}}\n'],
    }
    fake = Fake(folder, *frames[behaviour], name=name)
    config = fake.server(effects={"work": effect})  # type: ignore[dict-item]
    return Served(config, fake.calls, lambda: fake.seen("notifications/cancelled"), lambda: fake.pids)


def plugin_server(folder: Path, behaviour: Behaviour, *, name: str = "fake", effect: str = "once") -> Served:
    steps: Mapping[str, list[Any]] = {
        "answers": [plugin_fakes.ANSWER],
        "hangs": [{"until_cancelled": True}],
        "progresses": [{"raw": '{"kind": "progress", "id": {ID}, "text": "halfway"}\n'}, {"until_cancelled": True}],
        "exits": [{"exit": 3}],
        "garbage": [{"raw": "no JSON\n[1]\n"}, plugin_fakes.ANSWER],
        "not_done": [{"answer": {"kind": "error", "message": "the printer is off", "not_done": True}}],
    }
    fake = FakeFolder(folder, *steps[behaviour], name=name)
    config = fake.plugin(effects={"work": effect})  # type: ignore[dict-item]
    return Served(config, lambda: fake.seen("call"), lambda: fake.seen("cancel"), lambda: fake.pids)


@pytest.fixture(params=[Family("mcp", mcp_server), Family("capability", plugin_server)], ids=["mcp", "plugin"])
def family(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Family:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found: Family = request.param
    return found


async def test_a_tool_is_called_in_the_servers_process_and_its_layer_is_known(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        result = await said(engine, call("work", n=1))
        assert {bound.layer for bound in engine.tools} == {family.layer}
        (pid,) = served.pids()
        assert pid != os.getpid()
        assert kinds(engine) == ["call.received", "call.started", "call.completed"]
    assert (result.status, result.text) == ("ok", "done")
    assert len(served.calls()) == 1


async def test_policies_apply_before_anything_is_sent(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "answers")
    rules = Rules.parse('[[rule]]\nid = "no-work"\nverdict = "deny"\ntool = "work"\nreason = "it is off"\n')
    async with Engine(servers=[served.config], policies=[rules]) as engine:
        assert "it is off" in (await said(engine, call("work"))).text
    assert served.calls() == []


async def test_progress_is_published_while_the_tool_runs_and_a_kill_cancels_it_in_the_server(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "progresses")
    shown: list[Progress] = []
    async with Engine(servers=[served.config]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(item) if isinstance(item, Progress) else None, "call.progress")
        calling = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(lambda: shown)
        assert not calling.done()
        engine.control.kill("c")
        await calling
        await until(served.cancels)
    assert "halfway" in shown[0].text


async def test_a_crash_in_mid_call_is_unknown_and_the_call_is_not_sent_again(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "hangs")
    async with Engine(servers=[served.config]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work")))
        await until(served.calls)
        os.kill(served.pids()[0], signal.SIGKILL)
        lost = result_of(await calling)
        assert (lost.status, lost.code) == ("unknown", "tool_crashed")
        assert (await said(engine, call("echo", text="again"))).success
    assert len(served.pids()) == 2
    assert len(served.calls()) == 2


async def test_an_exit_in_mid_call_names_the_exit_code(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "exits")
    async with Engine(servers=[served.config]) as engine:
        lost = await said(engine, call("work"))
    assert (lost.status, lost.code) == ("unknown", "tool_crashed")
    assert "it exited with code 3" in str(lost.error)


async def test_a_proof_that_nothing_happened_makes_the_call_an_error(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "not_done")
    async with Engine(servers=[served.config]) as engine:
        refused = await said(engine, call("work"))
    assert refused.status == "error"
    assert "the printer is off" in refused.text


async def test_noise_on_standard_output_is_skipped(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "garbage")
    async with Engine(servers=[served.config]) as engine:
        assert (await said(engine, call("work"))).text == "done"


async def test_concurrent_first_calls_start_one_process(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        await asyncio.gather(*(engine.call(call("echo", text=str(n)), Scope(run=f"r{n}")) for n in range(8)))
    assert len(served.pids()) == 1


async def test_a_closed_engine_leaves_no_process(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "hangs")
    async with Engine(servers=[served.config]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work")))
        await until(served.calls)
    await asyncio.gather(calling, return_exceptions=True)
    with pytest.raises(ProcessLookupError):
        os.kill(served.pids()[0], 0)


async def test_a_name_is_found_first_among_own_tools_then_in_plugins_then_on_mcp_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    @tool(name="echo", effect="none")
    def mine(text: str = "") -> str:
        """Answer for the engine."""
        return "mine"

    mcp, plugin = mcp_server(tmp_path, "answers", name="far"), plugin_server(tmp_path, "answers", name="near")
    async with Engine([mine], servers=[mcp.config, plugin.config]) as engine:
        assert (await said(engine, call("echo", text="x"))).text == "mine"
        assert (await said(engine, call("work"))).success
        assert (await said(engine, call("far.work"))).success
    assert [len(plugin.calls()), len(mcp.calls())] == [1, 1]
