"""Tool servers are added and removed while the engine runs, MCP servers and plugins alike."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Literal

import pytest

from callgate import Engine, Scope, Tool, UsageError, tool
from callgate.mcp import mcp
from callgate.policy import Rules
from callgate.protocols import ToolCatalogue
from tests.engine_calls import call, result_of, said
from tests.test_tool_servers import Family, family, mcp_server
from tests.waiting import until

__all__ = ["family"]

pytestmark = pytest.mark.process

_ABOUT_WORK = '[[rule]]\nid = "no-work"\nverdict = "deny"\ntool = "work"\nreason = "it is off"\n'


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_tools_of_an_added_server_can_be_called_and_those_of_a_removed_one_cannot(family: Family, tmp_path: Path) -> None:
    first, second = family.make(tmp_path, "answers", name="first"), family.make(tmp_path, "answers", name="second")
    async with Engine(servers=[first.config]) as engine:
        await engine.change_servers(add=[second.config])
        assert set(engine.tools.names()) == {"work", "echo", "second.work", "second.echo"}
        assert (await said(engine, call("second.work"))).text == "done"
        assert (await said(engine, call("work"))).text == "done"
        (gone,) = first.pids()
        await engine.change_servers(remove=["first"])
        assert not is_running(gone)
        assert set(engine.tools.names()) == {"work", "echo"}
        assert (await said(engine, call("work"))).text == "done"
        assert [one.name for one in engine.servers_status()] == ["second"]
        await engine.change_servers(remove=["second"])
        assert (await said(engine, call("work"))).code == "unknown_tool"
        assert engine.tools.names() == []
    assert [len(first.calls()), len(second.calls())] == [1, 2]


async def test_a_running_call_of_a_removed_server_may_end_before_the_server_does(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "hangs")
    async with Engine(servers=[served.config]) as engine:
        running = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(served.calls)
        removing = asyncio.ensure_future(engine.change_servers(remove=["fake"], wait_s=300))
        await until(lambda: not engine.tools.names())
        assert (await said(engine, call("work"))).code == "unknown_tool"
        assert is_running(served.pids()[0])
        assert not removing.done()
        engine.control.kill("c")
        await running
        await removing
    assert not is_running(served.pids()[0])


async def test_a_call_that_goes_on_too_long_is_ended_with_its_removed_server(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "hangs")
    async with Engine(servers=[served.config]) as engine:
        running = asyncio.ensure_future(engine.call(call("work")))
        await until(served.calls)
        await engine.change_servers(remove=["fake"], wait_s=0)
        lost = result_of(await running)
        assert not is_running(served.pids()[0])
    assert lost.status == "unknown"


async def test_a_server_is_replaced_by_one_of_the_same_name(family: Family, tmp_path: Path) -> None:
    served = family.make(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        await said(engine, call("work"))
        await engine.change_servers(add=[served.config], remove=["fake"])
        assert (await said(engine, call("work"))).text == "done"
    first, second = served.pids()
    assert first != second


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"remove": ["other"]}, "The engine has no server 'other'. It has: fake."),
        ({"remove": "fake"}, "change_servers(remove=...) was given a str; it must be a list of them."),
        ({"add": [print]}, "change_servers was given a builtin_function_or_method. Write add=[mcp(...)]"),
        ({"remove": [1]}, "change_servers was given a int."),
        ({"wait_s": -1}, "engine.change_servers(wait_s=-1)"),
        ({"adds": []}, "did you mean 'add'"),
    ],
)
async def test_a_wrong_change_is_refused_and_changes_nothing(tmp_path: Path, change: dict[str, object], told: str) -> None:
    served = mcp_server(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        with pytest.raises(UsageError) as caught:
            await engine.change_servers(**change)  # type: ignore[arg-type]
        assert told in str(caught.value)
        assert (await said(engine, call("work"))).text == "done"


async def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    served = mcp_server(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        with pytest.raises(UsageError, match="has a server 'fake' already"):
            await engine.change_servers(add=[served.config])
    assert len(served.pids()) == 1


async def test_a_server_that_is_required_and_does_not_start_is_not_kept(tmp_path: Path) -> None:
    served = mcp_server(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        with pytest.raises(UsageError, match="there is no program"):
            await engine.change_servers(add=[mcp("no-such-program-here", name="dead", required=True)])
        assert [one.name for one in engine.servers_status()] == ["fake"]
        assert (await said(engine, call("work"))).text == "done"


async def test_a_rule_about_the_tools_of_a_removed_server_refuses_the_change_that_removes_them(tmp_path: Path) -> None:
    """And the policies go on being asked, also about a tool that is registered later."""
    served = mcp_server(tmp_path, "answers")

    @tool(name="work", effect="none")
    def own() -> str:
        """Work."""
        return "own"

    async with Engine(servers=[served.config], policies=[Rules.parse(_ABOUT_WORK)]) as engine:
        with pytest.raises(UsageError, match="rule 'no-work' is about 'work'"):
            await engine.change_servers(remove=["fake"])
        engine.register(own)
        assert "it is off" in (await said(engine, call("work"))).text


async def test_an_engine_that_is_closed_during_a_change_leaves_no_process(tmp_path: Path) -> None:
    served, other = mcp_server(tmp_path, "hangs"), mcp_server(tmp_path, "answers", name="other")
    async with Engine(servers=[served.config]) as engine:
        running = asyncio.ensure_future(engine.call(call("work")))
        await until(served.calls)
        changing = asyncio.ensure_future(engine.change_servers(add=[other.config], remove=["fake"], wait_s=300))
        await until(other.pids)
    await asyncio.gather(running, changing, return_exceptions=True)
    assert not any(map(is_running, (*served.pids(), *other.pids())))


async def test_a_change_that_is_cancelled_leaves_no_added_server(tmp_path: Path) -> None:
    served, other = mcp_server(tmp_path, "hangs"), mcp_server(tmp_path, "answers", name="other")
    async with Engine(servers=[served.config]) as engine:
        running = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(served.calls)
        changing = asyncio.ensure_future(engine.change_servers(remove=["fake"], wait_s=300))
        await until(lambda: not engine.tools.names())
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        engine.control.kill("c")
        await running
        await until(lambda: not is_running(served.pids()[0]))
        await engine.change_servers(add=[other.config])
        assert (await said(engine, call("echo", text="hello"))).success


async def test_a_change_that_is_refused_leaves_the_server_that_it_would_have_replaced(family: Family, tmp_path: Path) -> None:
    """Here a rule is about a tool that only another server has, which would be removed."""
    (tmp_path / "other").mkdir()
    served, other = family.make(tmp_path, "answers"), family.make(tmp_path / "other", "answers", name="other")
    rule = Rules.parse(_ABOUT_WORK.replace('"work"', '"other.work"'))
    async with Engine(servers=[served.config, other.config], policies=[rule]) as engine:
        assert (await said(engine, call("work"))).text == "done"
        before = served.pids()
        with pytest.raises(UsageError, match="rule 'no-work' is about"):
            await engine.change_servers(add=[served.config], remove=["fake", "other"])
        assert set(engine.tools.names()) == {"work", "echo", "other.work", "other.echo"}
        assert (await said(engine, call("work"))).text == "done"
        assert all(map(is_running, before))
        assert not any(map(is_running, [pid for pid in served.pids() if pid not in before]))
    assert len(served.calls()) == 2


async def test_the_tools_of_a_server_whose_successor_does_not_start_answer_with_the_reason(tmp_path: Path) -> None:
    served = mcp_server(tmp_path, "answers")
    async with Engine(servers=[served.config]) as engine:
        await engine.change_servers(add=[mcp("no-such-program-here", name="fake")], remove=["fake"])
        refused = await said(engine, call("work"))
        assert refused.code == "tool_unavailable"
        assert "there is no program" in refused.text
        await engine.change_servers(add=[served.config], remove=["fake"])
        assert (await said(engine, call("work"))).text == "done"


class Replaced:
    """A tool server that offers what it is told to."""

    layer: Literal["mcp"] = "mcp"

    def __init__(self, *tools: Tool) -> None:
        self.name = "fake"
        self._tools = tools

    async def start(self, catalogue: ToolCatalogue) -> None:
        self.catalogue = catalogue
        self.catalogue.offer(self.name, self._tools)

    async def close(self) -> None:
        pass


async def test_a_replaced_server_that_offers_tools_while_it_ends_does_not_change_those_of_its_successor() -> None:
    @tool(effect="none")
    def old() -> str:
        """Work."""
        return "old"

    @tool(effect="none")
    def new() -> str:
        """Work."""
        return "new"

    before, after = Replaced(old), Replaced(new)
    async with Engine(servers=[before]) as engine:
        await engine.change_servers(add=[after], remove=["fake"])
        before.catalogue.offer("fake", [old])
        before.catalogue.withdraw("fake", {"new": "It is gone."})
        assert engine.tools.names() == ["new"]
        assert (await said(engine, call("new"))).text == "new"


async def test_rules_are_checked_when_the_last_server_has_listed_its_tools(caplog: pytest.LogCaptureFixture) -> None:
    """It is too late to refuse anything, so the error is logged."""

    @tool(effect="none")
    def other() -> str:
        """Work."""
        return "other"

    class Late(Replaced):
        async def start(self, catalogue: ToolCatalogue) -> None:
            self.catalogue = catalogue

    late = Late()
    async with Engine(servers=[late], policies=[Rules.parse(_ABOUT_WORK)]):
        assert "The rules about tools of fake are not checked" in caplog.text
        assert "rule 'no-work' is about 'work'" not in caplog.text
        late.catalogue.offer("fake", [other])
        assert "rule 'no-work' is about 'work'" in caplog.text
