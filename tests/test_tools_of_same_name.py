"""Two tool servers have a tool of the same name: what was allowed, cached or done for that of one does not count for that of the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack

import pytest

from callgate import Engine, Judge, Rules, Scope, SqliteCache, SqliteJournal, Suspended, Tool, UsageError, tool
from callgate.protocols import CallJudge, Policy, ToolCatalogue
from callgate.testing import ScriptedModel
from callgate.tools import ToolOptions
from tests.engine_calls import call, said
from tests.judged_calls import DENY, document_of

ASKS = Rules.parse("[[rule]]\nid = 'wipe'\nverdict = 'ask'\ntool = 'wipe'\nreason = 'Wipe?'\n")
WIPE = call("wipe", table="t")


class Server:
    """A tool server with the tool `wipe`, which says whose table it wiped."""

    layer: Literal["mcp"] = "mcp"

    def __init__(self, server: str, **options: Unpack[ToolOptions]) -> None:
        self.name = server

        @tool(**options)
        def wipe(table: str) -> str:
            """Wipe a table."""
            return f"{server} wiped {table}"

        self.tool: Tool = wipe

    async def start(self, catalogue: ToolCatalogue) -> None:
        catalogue.offer(self.name, [self.tool])

    async def close(self) -> None:
        pass


def opened(folder: Path, servers: Sequence[Server], policies: Sequence[Policy | CallJudge] = ()) -> Engine:
    cache = SqliteCache(str(folder / "cache.db"))
    return Engine(servers=servers, policies=policies, journal=SqliteJournal(str(folder / "j.db")), persistent_cache=cache)


async def test_an_approval_for_the_tool_of_one_server_does_not_allow_that_of_another(tmp_path: Path) -> None:
    async with opened(tmp_path, [Server("test"), Server("prod")], [ASKS]) as engine:
        asked = await engine.call(WIPE, Scope(run="r"))
        assert isinstance(asked, Suspended)
        await engine.approve(asked.approval_id, by="ann")
    async with opened(tmp_path, [Server("prod")], [ASKS]) as engine:
        assert isinstance(await engine.call(WIPE, Scope(run="r")), Suspended)
    async with opened(tmp_path, [Server("test")], [ASKS]) as engine:
        assert (await said(engine, WIPE, Scope(run="r"))).text == "test wiped t"


async def test_a_cached_result_of_one_server_does_not_answer_a_call_of_another(tmp_path: Path) -> None:
    def reading(name: str) -> Server:
        return Server(name, effect="none", cacheable=True, cache_scope="persistent")

    async with opened(tmp_path, [reading("test")]) as engine:
        assert (await said(engine, WIPE)).text == "test wiped t"
    async with opened(tmp_path, [reading("prod")]) as engine:
        assert (await said(engine, WIPE)).text == "prod wiped t"
    async with opened(tmp_path, [reading("test")]) as engine:
        assert (await said(engine, WIPE)).metadata.cached == "persistent"


async def test_an_effect_of_one_server_does_not_answer_a_call_of_another_with_the_same_key(tmp_path: Path) -> None:
    def keyed(name: str) -> Server:
        return Server(name, key="wipe:{table}")

    async with opened(tmp_path, [keyed("test"), keyed("prod")]) as engine:
        assert (await said(engine, WIPE)).text == "test wiped t"
        await engine.change_servers(remove=["test"])
        assert (await said(engine, WIPE)).text == "prod wiped t"
    async with opened(tmp_path, [keyed("test")]) as engine:
        assert (await said(engine, WIPE)).text.startswith("test wiped t\nNote: Nothing was run")
        assert [event.kind for event in engine.journal.read()].count("call.started") == 2


async def test_a_key_of_an_effect_counts_for_the_tool_of_a_server_under_each_of_its_names(tmp_path: Path) -> None:
    """The order of the servers decides which of them has the plain name."""
    test, prod = Server("test", key="wipe:{table}"), Server("prod", key="wipe:{table}")
    async with opened(tmp_path, [test, prod]) as engine:
        assert (await said(engine, WIPE)).text == "test wiped t"
    async with opened(tmp_path, [prod, test]) as engine:
        assert (await said(engine, call("test.wipe", table="t"))).text.startswith("test wiped t\nNote: Nothing was run")
        assert (await said(engine, WIPE)).text == "prod wiped t"


async def test_a_rule_may_be_about_the_tools_of_one_server(tmp_path: Path) -> None:
    allows = Rules.parse("default = 'deny'\n[[rule]]\nid = 'w'\nverdict = 'allow'\ntool = 'wipe'\nwhen = { server = 'test' }\n")
    async with opened(tmp_path, [Server("test"), Server("prod")], [allows]) as engine:
        assert (await said(engine, WIPE)).text == "test wiped t"
        with pytest.raises(UsageError, match="is about tools of the server 'test', and no tool that is registered is one"):
            await engine.change_servers(remove=["test"])
    optional = Rules.parse(
        "default = 'deny'\n[[rule]]\nid = 'w'\nverdict = 'allow'\ntool = 'wipe'\noptional = true\nwhen = { server = 'test' }\n"
    )
    async with opened(tmp_path, [Server("prod")], [optional]) as engine:
        assert (await said(engine, WIPE)).code == "policy_denied"


async def test_a_judge_is_told_the_server_of_the_tool(tmp_path: Path) -> None:
    model = ScriptedModel([DENY])
    async with opened(tmp_path, [Server("prod")], [Judge(model)]) as engine:
        assert (await said(engine, WIPE)).code == "judge_denied"
    assert document_of(model)["tool"]["server"] == "prod"
