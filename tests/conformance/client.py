"""A client for the conformance suite of MCP, made of what callgate offers to every host. Runs as a program: `client.py URL`.

The suite starts it once for each scenario, whose name is in the environment, against a server that watches it. It ends with 0 if the
scenario went as a user of callgate would expect; whether the client kept to the protocol, the suite decides.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx2

from callgate import Answered, Engine, RawCall, ToolResult
from callgate.mcp import OAuth, mcp

Play = Callable[[Engine, Mapping[str, Any]], Awaitable[None]]


async def accept_defaults(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer a question to the user as one does who accepts the defaults and agrees to everything else."""
    fields: Mapping[str, Mapping[str, Any]] = params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: field.get("default", True) for name, field in fields.items()}}


async def call(engine: Engine, name: str, **arguments: object) -> ToolResult:
    """Return the result of a call, which must succeed."""
    outcome = await engine.call(RawCall(name=name, arguments=json.dumps(arguments)))
    assert isinstance(outcome, Answered), outcome
    assert outcome.result.success, outcome.result
    return outcome.result


async def only_start(engine: Engine, _: Mapping[str, Any]) -> None:
    """Do nothing more: the engine has negotiated with the server and listed its tools."""


async def add_numbers(engine: Engine, _: Mapping[str, Any]) -> None:
    assert "5" in (await call(engine, "add_numbers", a=2, b=3)).text


async def elicit_defaults(engine: Engine, _: Mapping[str, Any]) -> None:
    await call(engine, "test_client_elicitation_defaults")


async def reconnect(engine: Engine, _: Mapping[str, Any]) -> None:
    assert "completed" in (await call(engine, "test_reconnection")).text


async def continue_calls(engine: Engine, _: Mapping[str, Any]) -> None:
    """Make calls that the server continues with a question, while others run that have none."""
    names = ("echo_state", "unrelated", "no_state", "no_result_type")
    await asyncio.gather(*(call(engine, f"test_mrtr_{name}") for name in names))


async def call_all(engine: Engine, _: Mapping[str, Any]) -> None:
    for name in engine.tools.names():
        await call(engine, name)


async def use_everything(engine: Engine, _: Mapping[str, Any]) -> None:
    await call_all(engine, _)
    content = engine.server("suite")
    for resource in await content.list_resources():
        await content.read_resource(resource["uri"])
    for prompt in await content.list_prompts():
        await content.get_prompt(prompt["name"])


async def call_as_told(engine: Engine, context: Mapping[str, Any]) -> None:
    for one in context["toolCalls"]:
        given = {name: value for name, value in one["arguments"].items() if value is not None}  # null is no boolean: its schema refuses it
        await call(engine, one["name"], **given)


async def call_what_is_accepted(engine: Engine, _: Mapping[str, Any]) -> None:
    """Call every tool that the engine has, which is not every tool that the server lists."""
    for tool in engine.tools:
        await call(engine, tool.name, **dict.fromkeys(tool.schema.source["required"], "x"))


async def return_schema(engine: Engine, _: Mapping[str, Any]) -> None:
    """Send the schema of a tool back to the server as the engine has it."""
    tool = engine.tools.get("json_schema_2020_12_tool")
    assert tool is not None
    await call(engine, "json_schema_echo", schema=tool.schema.source)


PLAYS: Final[Mapping[str, Play]] = {
    "initialize": only_start,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": elicit_defaults,
    "sse-retry": reconnect,
    "request-metadata": only_start,
    "sep-2322-client-request-state": continue_calls,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_what_is_accepted,
    "json-schema-ref-no-deref": only_start,
    "json-schema-2020-12-preservation": return_schema,
}
"""What is done in a scenario. The others are about authorization: the client starts, and calls the tool."""


async def open_page(address: str) -> str:
    """Return where the authorization server sends a user who agrees at once, as the suite's does."""
    async with httpx2.AsyncClient(timeout=30) as browser:
        return str((await browser.get(address)).headers["location"])


def authorization(scenario: str, context: Mapping[str, Any]) -> OAuth | None:
    if not scenario.startswith("auth/"):
        return None
    registered = {name: context[name] for name in ("client_id", "client_secret", "issuer") if name in context}
    if scenario == "auth/basic-cimd":
        registered["client_metadata_url"] = "https://conformance-test.local/client-metadata.json"
    return OAuth(open_page=open_page, redirect_uri="http://127.0.0.1:8400/callback", **registered)


async def play(url: str, scenario: str, context: Mapping[str, Any]) -> None:
    server = mcp(url, name="suite", elicitation=accept_defaults, required=True, auth=authorization(scenario, context))
    async with Engine(servers=[server]) as engine:
        await PLAYS.get(scenario, call_all)(engine, context)


if __name__ == "__main__":
    told = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    asyncio.run(play(sys.argv[1], os.environ["MCP_CONFORMANCE_SCENARIO"], told))
