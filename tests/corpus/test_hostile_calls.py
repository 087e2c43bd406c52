"""Hostile calls, schemas and tool definitions in the stages before policies and execution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from callgate import Limits
from callgate._pipeline.parse import parse
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import validate
from callgate._schema import CompiledSchema, compile_schema
from callgate.calls import RawCall, Scope
from callgate.errors import CallAborted, CallFailed, UsageError
from callgate.models.wire.tool_names import WireNames
from callgate.stage_types import ValidatedCall
from callgate.tools import Tool, ToolRegistry
from tests.canonical_json import canonical
from tests.corpus.input_files import build, rows, same

FINISHED = ("stop", "tool_calls")
MEANS = {"call_aborted": {"unknown_tool"}}
"""A truncated text is not JSON either, and a call without a name names no tool."""


class SchemaTool(Tool):
    """A tool that consists only of a schema."""

    description = "Checks arguments."
    category = "safe_chain"
    requires_actor = False

    def __init__(self, parameters: Mapping[str, Any], name: str) -> None:
        self.parameters = parameters
        self.name = name


def registry() -> ToolRegistry:
    found = ToolRegistry()
    for parameter in rows("hostile/tools.jsonl"):
        row = parameter.values[0]
        found.register(SchemaTool(row["inputSchema"], row["name"]))
    return found


def checked(row: dict[str, Any]) -> ValidatedCall:
    cut = "finish" in row and row["finish"] not in FINISHED
    name = build(row["tool"])
    assert isinstance(name, str)
    raw = RawCall(name=name, arguments=build(row["args"]), closed="cut" if cut else "finished")
    parsed = parse(raw, "u", Limits(), repair=False)
    return validate(resolve(parsed, registry(), Scope()), Scope(), coerce=True)


def refusal_of(row: dict[str, Any]) -> tuple[ValidatedCall | None, CallFailed | CallAborted | None]:
    try:
        return checked(row), None
    except (CallFailed, CallAborted) as error:
        return None, error


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="call"))
def test_a_hostile_call_is_accepted_or_refused_as_expected(row: dict[str, Any]) -> None:
    """Only the listed outcomes are correct; a refusal has a code and a short, valid text."""
    expect = row["expect"]
    call, refusal = refusal_of(row)
    if refusal is not None:
        assert "reject" in expect["outcome"]
        assert MEANS.get(refusal.code, {refusal.code}) & set(expect["code"]), refusal.code
        assert len(str(refusal).encode()) <= 4096
        assert canonical(getattr(refusal, "details", None))
    elif expect["outcome"] == ["reject"]:
        assert "policy_denied" in expect["code"]
    else:
        assert call is not None
        assert "accept" in expect["outcome"] or call.notes
        assert same(call.arguments, expect.get("args", call.arguments))


def compiled(row: dict[str, Any]) -> tuple[CompiledSchema | None, UsageError | None]:
    try:
        return compile_schema(build(row["schema"]), "tool 'hostile' (test)"), None
    except UsageError as error:
        return None, error


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="schema"))
def test_a_hostile_schema_is_refused_or_validates_correctly(row: dict[str, Any]) -> None:
    """A registered schema validates correctly; one that cannot be checked safely is refused with a reason."""
    expect = row["expect"]
    schema, refusal = compiled(row)
    if refusal is not None:
        assert "refuse" in expect["outcome"]
        assert refusal.code in expect.get("code", [refusal.code])
        assert "tool 'hostile' (test)" in str(refusal)
        assert len(str(refusal)) <= 1024
    else:
        assert schema is not None
        assert "register" in expect["outcome"]
        if "instance" in row:
            instance = json.loads(build(row["instance"]))
            assert schema.is_valid(instance) is expect["validate"]
            assert bool(schema.problems(instance)) is not expect["validate"]


def registered(row: dict[str, Any], tools: ToolRegistry) -> UsageError | None:
    offered = row["tool_def"]
    try:
        for name in (offered["name"], *([offered["with"]["name"]] if "with" in offered else [])):
            tool = SchemaTool(offered["inputSchema"], name)
            tool.description = str(build(offered["description"]))
            tools.register(tool)
    except UsageError as error:
        return error
    return None


def namespaced(tools: ToolRegistry) -> set[str]:
    """Return the word for tools of which a provider gets other names, if these are distinct and lead back to the tools."""
    names = WireNames(tools.names())
    sent = {name: names.to_wire(name) for name in tools.names()}
    leads_back = all(names.original(wire) == name for name, wire in sent.items())
    return {"namespaced"} if leads_back and any(name != wire and name.isascii() for name, wire in sent.items()) else set()


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="register"))
def test_a_hostile_tool_definition_never_replaces_a_tool(row: dict[str, Any]) -> None:
    """Checks the part about schemas and names: the tool is registered next to the others, or refused."""
    tools = registry()
    before = {tool.name: tool.identity for tool in tools}
    refusal = registered(row, tools)
    expected = ({"register"} | namespaced(tools)) if refusal is None else {"refuse", "namespaced"}
    assert set(row["expect"]["outcome"]) & expected
    assert len(str(refusal)) <= 1024
    assert {one.name: one.identity for one in tools if one.name in before} == before
