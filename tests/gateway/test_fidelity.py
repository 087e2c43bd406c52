"""What an upstream server offers and answers reaches the client unchanged, for each pair of eras."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, get_args

import pytest

from callgate import inbox
from mcp import Client, StdioServerParameters
from tests.gateway.odd_server import ERRORS, RESULTS, TOOLS
from tests.gateway.raw_client import Era, RawClient, program, raw_client, served

pytestmark = [pytest.mark.process]

ERAS = get_args(Era)
pairs = pytest.mark.parametrize(("front", "upstream"), [(front, upstream) for front in ERAS for upstream in ERAS])
_ODD = str(Path(__file__).with_name("odd_server.py"))
OLDER_CLIENT: tuple[Era, Era] = ("handshake", "stateless")
_OF_THE_ERA = frozenset({"resultType", "ttlMs", "cacheScope"})


def gateway(front: Era, upstream: Era) -> AbstractAsyncContextManager[RawClient]:
    """Return a client of one era, through the gateway, in front of a server of the same or the other era."""
    return raw_client(served(servers=[[sys.executable, _ODD, upstream]]), front)


@pairs
async def test_definitions_are_unchanged_with_their_unknown_fields_and_the_order_of_their_keys(front: Era, upstream: Era) -> None:
    async with gateway(front, upstream) as client:
        listed = {tool["name"]: tool for tool in (await client.request("tools/list", {}))["result"]["tools"]}
    for tool in TOOLS:
        left_out = "outputSchema" if (front, upstream) == OLDER_CLIENT and tool["name"] == "with_output" else ""
        given = {key: value for key, value in tool.items() if key != left_out}
        assert json.dumps(listed[tool["name"]]) == json.dumps(given)


def _sent_to(front: Era, upstream: Era, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a server's result as a client gets it: one of an older era than the server takes only objects as structured content."""
    if (front, upstream) != OLDER_CLIENT or isinstance(result.get("structuredContent", {}), dict):
        return result
    return {**result, "structuredContent": {"result": result["structuredContent"]}}


@pairs
async def test_results_and_errors_are_unchanged(front: Era, upstream: Era) -> None:
    async with gateway(front, upstream) as client:
        results = {name: _without_hop((await client.call("odd", {"a": name}))["result"]) for name in RESULTS}
        errors = {name: (await client.call("odd", {"a": name}))["error"] for name in ERRORS}
    changed = [name for name in RESULTS if json.dumps(results[name]) != json.dumps(_sent_to(front, upstream, RESULTS[name]))]
    assert changed == []
    assert json.dumps(errors) == json.dumps(ERRORS)


async def test_an_sdk_client_with_a_handshake_reads_all_that_a_stateless_server_may_send() -> None:
    """Output schemas and structured content of any type."""
    command, *arguments = program(servers=[[sys.executable, _ODD, "stateless"]])
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    async with Client(StdioServerParameters(command=command, args=arguments, env=env), mode="legacy") as client:
        listed = await client.list_tools()
        results = {name: await client.call_tool("odd", {"a": name}) for name in RESULTS if name.startswith("structured ")}
    assert {tool["name"] for tool in TOOLS} <= {tool.name for tool in listed.tools}
    assert {name: result.structured_content for name, result in results.items()} == {
        name: _sent_to(*OLDER_CLIENT, RESULTS[name])["structuredContent"] for name in results
    }


@pairs
async def test_a_stored_result_has_the_values_of_the_first_one_with_the_order_of_their_keys(front: Era, upstream: Era) -> None:
    keyed = {"options": {"odd": {"key": "odd:{a}"}}}
    async with raw_client(served(servers=[[sys.executable, _ODD, upstream]], options=keyed), front) as client:
        first, stored = [{name: (await client.call("odd", {"a": name}))["result"] for name in RESULTS} for _ in range(2)]
    untold = [name for name in RESULTS if not _is_note(stored[name]["content"][-1])]
    assert untold == []
    succeeded = [name for name in RESULTS if "isError" not in RESULTS[name] and "content" in RESULTS[name]]
    changed = [name for name in succeeded if _values(_without_hop(first[name])) != _values(_without_hop(stored[name]))]
    assert changed == []


def _values(result: Mapping[str, Any]) -> Any:
    """Return the values of a result and of its items as JSON, without the note that it is a stored one."""
    items = [item for item in result.get("content", []) if not _is_note(item)]
    beside = {key: json.dumps(value) for key, value in result.items() if key != "content"}
    return [{key: json.dumps(value) for key, value in item.items()} for item in items], beside


def _is_note(item: Mapping[str, Any]) -> bool:
    return str(item.get("text", "")).startswith("Note: Nothing was run for this call: ")


async def _answers_to_edited_calls(front: Era, upstream: Era, folder: Path, edits: Iterable[str]) -> dict[str, Any]:
    """Return the responses to calls that ran with the arguments of a human, by what these were."""
    journal = str(folder / "journal.db")
    command = served(servers=[[sys.executable, _ODD, upstream]], options={"options": {"odd": {"requires_approval": True}}}, journal=journal)
    found: dict[str, Any] = {}
    async with raw_client(command, front) as client:
        for edited in edits:
            await client.call("odd", {"a": "empty"})
            (asked,) = inbox.waiting(journal)
            sent = inbox.approve(journal, asked.approval, by="bob", reason="that one", arguments={"a": edited})
            await asyncio.to_thread(inbox.outcome, journal, sent.id, wait_s=30.0)
            found[edited] = await client.call("odd", {"a": "empty"})
    return found


def _note_about(edited: str) -> str:
    return f'Note: The arguments were changed (a): bob approved it with {{"a":"{edited}"}}: that one.'


@pairs
async def test_a_call_that_ran_with_the_arguments_of_a_human_says_so_behind_the_servers_content(
    front: Era, upstream: Era, tmp_path: Path
) -> None:
    edits = ("fields", "annotations", "no content", "structured error")
    for edited, response in (await _answers_to_edited_calls(front, upstream, tmp_path, edits)).items():
        content = [*RESULTS[edited].get("content", []), {"type": "text", "text": _note_about(edited)}]
        assert _without_hop(response["result"]) == {**RESULTS[edited], "content": content}


@pairs
async def test_an_error_of_a_call_that_ran_with_the_arguments_of_a_human_says_so_behind_its_message(
    front: Era, upstream: Era, tmp_path: Path
) -> None:
    for edited, response in (await _answers_to_edited_calls(front, upstream, tmp_path, ERRORS)).items():
        message = f"{ERRORS[edited]['message']} {_note_about(edited)}".lstrip()
        assert response["error"] == {**ERRORS[edited], "message": message}


@pytest.mark.parametrize("front", ERAS)
async def test_a_cursor_that_the_gateway_has_not_given_is_refused(front: Era) -> None:
    async with gateway(front, "stateless") as client:
        refused = await client.request("tools/list", {"cursor": "second page"})
    assert refused["error"]["code"] == -32602
    assert "cursor" in refused["error"]["message"]


@pairs
async def test_a_text_that_a_server_has_cut_in_the_middle_of_a_character_ends_with_a_replacement_character(
    front: Era, upstream: Era
) -> None:
    async with gateway(front, upstream) as client:
        result = (await client.call("odd", {"a": "cut text"}))["result"]
    assert result["content"] == [{"type": "text", "text": "cut \ufffd"}]
    assert "isError" not in result


@pairs
async def test_a_number_that_is_out_of_range_is_its_text(front: Era, upstream: Era) -> None:
    async with gateway(front, upstream) as client:
        result = (await client.call("odd", {"a": "large number"}))["result"]
    assert result["structuredContent"] == {"x": "1e400", "y": 1e300}
    assert "isError" not in result


@pairs
async def test_arguments_and_fields_of_meta_reach_the_server_unchanged(front: Era, upstream: Era) -> None:
    arguments = {"z": 1.0, "a": [None, {"b": 9223372036854775807, "a": ""}], "ü": "\u2028", "": 0, "deep": {"k": {"k": {}}}}
    async with gateway(front, upstream) as client:
        result = (await client.call("echo", arguments, _meta={"example/trace": {"b": 1, "a": 2}}))["result"]
    got = json.loads(result["content"][0]["text"])
    assert json.dumps(got["arguments"]) == json.dumps(arguments)
    assert got["meta"] == {"example/trace": {"b": 1, "a": 2}}


def _without_hop(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result without what its era adds for one hop."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    kept = {key: value for key, value in result.items() if key not in _OF_THE_ERA and (key != "_meta" or meta)}
    return {**kept, "_meta": meta} if meta else kept
