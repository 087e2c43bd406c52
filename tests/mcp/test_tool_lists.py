"""The tools of servers in the engine: their names, their changes while the engine runs, and rules about them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Engine, Rules, tool
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.mcp import mcp
from callgate.mcp.mcp_tool import McpTool
from callgate.testing import Call, ScriptedModel
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake
from tests.mcp.fakes import tool as listed
from tests.waiting import until

pytestmark = pytest.mark.process


@tool(effect="none")
async def look() -> str:
    """Look."""
    return "built-in"


class AcceptsAll:
    """An operator who accepts every definition."""

    def refusals(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
        return {}

    def effects(self, server: str) -> Mapping[str, Effect]:
        return {}


def rules(text: str) -> Rules:
    return Rules.parse(f'[[rule]]\nid = "one"\nverdict = "deny"\n{text}\n')


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_tools_that_a_server_adds_can_be_called_and_removed_ones_are_refused_with_the_reason(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, {"tools_now": [listed("work"), listed("fresh")]}, ANSWER, era=era)
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.names() == ["work", "echo"]
        await said(engine, call("work", count=1))
        await until(lambda: engine.tools.names() == ["work", "fresh"])
        gone = await said(engine, call("echo"))
        assert (await said(engine, call("fresh"))).success
    assert (gone.status, gone.code) == ("error", "tool_unavailable")
    assert "no longer has this tool" in gone.text


async def test_a_tool_that_comes_back_can_be_called_again(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"tools_now": [listed("work")]}, ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        await said(engine, call("work", count=1))
        await until(lambda: "echo" not in engine.tools)
        fake.write(frames=[{"tools_now": [listed("work"), listed("echo")]}, ANSWER], tools=[listed("work"), listed("echo")])
        os.kill(fake.pids[0], signal.SIGKILL)
        await until(lambda: "echo" in engine.tools)
        assert (await said(engine, call("echo", text="back"))).text == "back"


async def test_all_pages_of_a_list_are_read(tmp_path: Path) -> None:
    async with Engine(servers=[Fake(tmp_path, pages=4).server()]) as engine:
        assert engine.tools.names() == ["work", "echo", "page_0", "page_1", "page_2", "page_3"]


async def test_a_configuration_can_choose_tools(tmp_path: Path) -> None:
    async with Engine(servers=[Fake(tmp_path).server(tools=("echo",))]) as engine:
        assert engine.tools.names() == ["echo"]


async def test_unusual_names_and_schemas_register_and_are_passed_on_unchanged(tmp_path: Path) -> None:
    long, twin = "n" * 127 + "1", "n" * 127 + "2"
    odd: dict[str, Any] = {
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}, "a": {"type": "string"}},
        "required": ["a", "a"],
    }
    definitions = [listed("_private"), listed(long), listed(twin), listed("a.b-c/d"), listed("odd", inputSchema=odd, vendor={"x": 1})]
    fake = Fake(tmp_path, ANSWER, tools=definitions)
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.names() == ["_private", long, twin, "a.b-c/d", "odd"]
        bound = engine.tools.visible["odd"].tool
        assert isinstance(bound, McpTool)
        assert (bound.definition, bound.parameters) == (definitions[-1], odd)
        wire = [one["function"]["name"] for one in engine.schemas("openai")]
        assert len(set(wire)) == 5
        assert all(len(name) <= 64 for name in wire)
        for definition in definitions:
            assert (await said(engine, call(definition["name"], a="x"))).success
    assert [params["name"] for params in fake.calls()] == [one["name"] for one in definitions]


@pytest.mark.parametrize(
    "schema", ['{"type": "object"}', [{"type": "object"}], 5, 0, True, False], ids=["text", "list", "number", "zero", "true", "false"]
)
async def test_a_tool_whose_schema_is_no_object_is_left_out(schema: object, tmp_path: Path) -> None:
    """Its arguments could not be checked, and the model would be told that it takes none."""
    usable = [listed("bare", inputSchema=None), listed("empty", inputSchema=[])]
    fake = Fake(tmp_path, ANSWER, tools=[listed("odd", inputSchema=schema), *usable])
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.names() == ["bare", "empty"]
        result = await said(engine, call("odd"))
    assert result.code == "tool_unavailable"
    assert "it must be a JSON Schema" in result.text


async def test_a_tool_that_cannot_be_registered_is_refused_and_the_others_work(tmp_path: Path) -> None:
    wrong = [listed("a b"), listed("huge", description="x" * 3_000_000), listed("bad", inputSchema={"type": "string"})]
    fake = Fake(tmp_path, ANSWER, tools=[*wrong, listed("work"), {"description": "nameless"}, listed("work", title="Again")])
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.names() == ["work"]
        result = await said(engine, call("huge"))
    assert result.code == "tool_unavailable"
    assert "65536 is the limit" in result.text


_ODD_INTEGERS = {
    "type": "object",
    "properties": {
        "wei": {"type": "integer", "minimum": 0, "maximum": 2**256 - 1, "default": -(2**63) - 1},
        "text": {"type": "string", "maxLength": 2**70},
        "maxItems": {"type": "array", "minItems": -(2**70), "items": {"enum": [1, 2**64]}},
        "huge": {"exclusiveMaximum": 10**400, "minimum": -(10**400)},
    },
}


async def test_a_schema_with_integers_that_no_argument_can_be_still_checks_the_others(tmp_path: Path) -> None:
    definition = listed("pay", description="x" * 65_536, inputSchema=_ODD_INTEGERS)
    answers = listed("answers", outputSchema={"type": "object", "maxProperties": 2**65})
    fake = Fake(tmp_path, ANSWER, tools=[definition, answers])
    async with Engine(servers=[fake.server()]) as engine:
        bound = engine.tools.visible["pay"].tool
        assert isinstance(bound, McpTool)
        assert bound.definition == definition
        assert engine.tools.names() == ["pay", "answers"]
        assert (await said(engine, call("pay", wei=2**64 - 1, text="x", maxItems=[1], huge=1e300))).success
        for arguments in ({"wei": -1}, {"text": 1}, {"maxItems": [2]}, {"wei": 2**64}):
            assert (await said(engine, call("pay", **arguments))).status == "error"
    assert len(fake.calls()) == 1


async def test_names_that_are_taken_get_the_name_of_their_server(tmp_path: Path) -> None:
    one = Fake(tmp_path, name="one", tools=[listed("look"), listed("echo")])
    two = Fake(tmp_path, name="two", tools=[listed("echo"), listed("other")])
    async with Engine([look], servers=[one.server(), two.server()]) as engine:
        assert sorted(engine.tools.names()) == ["echo", "look", "one.look", "other", "two.echo"]
        assert (await said(engine, call("look"))).text == "built-in"
        assert (await said(engine, call("two.echo", text="second"))).text == "second"
        assert (await said(engine, call("echo", text="first"))).text == "first"
    assert [params["name"] for params in two.calls()] == ["echo"]


async def test_a_prefix_can_be_required(tmp_path: Path) -> None:
    async with Engine(servers=[Fake(tmp_path).server(prefix=True)]) as engine:
        assert engine.tools.names() == ["fake.work", "fake.echo"]


async def test_rules_about_tools_of_servers_are_checked_when_all_servers_have_listed_them(tmp_path: Path) -> None:
    async with Engine(servers=[Fake(tmp_path).server()], policies=[rules('tool = "echo"')]) as engine:
        assert (await said(engine, call("echo"))).code == "policy_denied"
    with pytest.raises(UsageError, match="is about 'ecko'"):
        await Engine(servers=[Fake(tmp_path).server()], policies=[rules('tool = "ecko"')]).__aenter__()


async def test_a_rule_does_not_prevent_the_start_of_an_engine_whose_server_is_down(tmp_path: Path) -> None:
    async with Engine([look], servers=[mcp("no-such-program")], policies=[rules('tool = "echo"')]) as engine:
        assert (await said(engine, call("look"))).success


async def test_a_changed_tool_that_no_longer_fits_a_rule_is_not_offered(tmp_path: Path) -> None:
    takes_path = listed("echo", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})
    renamed = listed("echo", inputSchema={"type": "object", "properties": {"file": {"type": "string"}}})
    fake = Fake(tmp_path, {"tools_now": [listed("work"), renamed]}, ANSWER, tools=[listed("work"), takes_path])
    policy = rules('tool = "echo"\nwhen = { "arguments.path" = "/etc/passwd" }')
    async with Engine(servers=[fake.server(accepted=AcceptsAll())], policies=[policy]) as engine:
        await said(engine, call("work"))
        await until(lambda: engine.tools.names() == ["work"])
        result = await said(engine, call("echo", file="/etc/passwd"))
    assert result.code == "tool_unavailable"
    assert "arguments.path" in result.text
    assert [params["name"] for params in fake.calls()] == ["work"]


def test_two_servers_with_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two servers with the name 'fake'"):
        Engine(servers=[Fake(tmp_path).server(), Fake(tmp_path).server()])


async def test_an_agent_uses_the_tools_of_a_server_among_its_tools(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    model = ScriptedModel([Call("work"), "all done"])
    async with Agent(model, tools=[look, fake.server()]) as agent:
        result = await agent.run("work")
    assert (result.status, result.text) == ("completed", "all done")
    assert [params["name"] for params in fake.calls()] == ["work"]


async def test_the_listing_of_tools_without_a_start_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"await engine\.start"):
        Engine(servers=[Fake(tmp_path).server()]).schemas("openai")


@pytest.mark.parametrize("prefix", [None, True])
async def test_two_servers_with_a_tool_of_the_longest_name_offer_both(tmp_path: Path, prefix: bool | None) -> None:
    name = "x" * 128
    fakes = [Fake(tmp_path, ANSWER, name=server, tools=[listed(name), listed("echo")]) for server in ("one", "two")]
    servers = [fake.server(prefix=None if index == 0 else prefix) for index, fake in enumerate(fakes)]
    async with Engine(servers=servers) as engine:
        first, second = (one for one in engine.tools.names() if "xxx" in one)
        assert first == name
        assert second.startswith("two.xxx")
        assert len(second) == 128
        await said(engine, call(second))
    assert [params["name"] for params in fakes[1].calls()] == [name]
