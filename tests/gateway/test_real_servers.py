"""`callgate serve` in front of servers that others have written: a client of the official SDK sees what it sees without the gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types
import pytest

from mcp import Client, MCPError, StdioServerParameters
from tests.cli.shell import command, environment
from tests.mcp.npm_servers import npm_server

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

_VERSION = "2026.8.31"
_HOP = ("resultType", "ttlMs", "cacheScope", "_meta")
_DOCUMENT = "demo://resource/static/document/features.md"
ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
Servers = Mapping[str, list[str]]


@pytest.fixture(scope="session")
def npm() -> Mapping[str, Path]:
    names = ("filesystem", "everything")
    return {name: npm_server(f"@modelcontextprotocol/server-{name}@{_VERSION}") for name in names}


@pytest.fixture
def servers(npm: Mapping[str, Path], tmp_path: Path) -> Servers:
    """Return the commands of two servers of the older era, and of one of the newer."""
    pytest.importorskip("mcp_server_time", reason="mcp-server-time is not installed")
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    return {
        "filesystem": ["node", str(npm["filesystem"]), str(tmp_path)],
        "everything": ["node", str(npm["everything"]), "stdio"],
        "time": [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"],
    }


async def elicited(context: Any, params: Any) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="decline")


async def sampled(context: Any, params: Any) -> mcp_types.CreateMessageResult:
    return mcp_types.CreateMessageResult(role="assistant", content=mcp_types.TextContent(type="text", text="said"), model="m")


async def folders(context: Any) -> mcp_types.ListRootsResult:
    return mcp_types.ListRootsResult(roots=[])


@asynccontextmanager
async def started(words: list[str], mode: str = "legacy", *, asked: bool = False) -> AsyncIterator[Client]:
    """Start a server; `asked`: the client answers what a server asks."""
    parameters = StdioServerParameters(command=words[0], args=words[1:], env=environment())
    answers: dict[str, Any] = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": folders}
    async with Client(parameters, mode=mode, **(answers if asked else {})) as client:
        yield client


@asynccontextmanager
async def gateway(servers: Servers, folder: Path, mode: str, *, asked: bool = False) -> AsyncIterator[Client]:
    """Start a gateway with the configuration file of another client; `asked`: with one server, whose tools ask the client."""
    configured = {name: {"command": words[0], "args": words[1:]} for name, words in servers.items()}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": configured}), encoding="utf-8")
    asking = f"[servers.asking]\ncommand = {json.dumps(servers['everything'])}\nclient_tools = true\n"
    text = 'journal = ":memory:"\n' + (asking if asked else 'mcp_files = ["mcp.json"]\n')
    (folder / "gate.toml").write_text(text, encoding="utf-8")
    async with started(command(("serve", "--config", str(folder / "gate.toml"))), mode, asked=asked) as client:
        yield client


def plain(model: Any) -> Any:
    """Return a result without what belongs to one hop."""
    found = model.model_dump(by_alias=True, exclude_none=True, mode="json")
    return {key: value for key, value in found.items() if key not in _HOP}


async def outcome(client: Client, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call a tool; return the result, and the progress before it."""
    told: list[Any] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    return plain(await client.call_tool(name, dict(arguments), progress_callback=progressed)), told


def calls(folder: Path) -> Mapping[str, list[tuple[str, Mapping[str, Any]]]]:
    """Return calls with the same result every time, by server: content of all kinds, structured content, errors and progress."""
    return {
        "filesystem": [
            ("list_directory", {"path": str(folder / "inside")}),
            ("read_text_file", {"path": str(folder / "a.txt")}),
            ("read_text_file", {"path": "/etc/hostname"}),
        ],
        "everything": [
            ("get-sum", {"a": 2, "b": 3}),
            ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 2}),
            ("get-structured-content", {"location": "Chicago"}),
            ("trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
        ],
        "time": [
            ("get_current_time", {"timezone": "Nowhere/None"}),
        ],
    }


async def seen(client: Client) -> Any:
    """Return resources and prompts as a client sees them."""
    return {
        "templates": plain(await client.list_resource_templates()),
        "prompts": plain(await client.list_prompts()),
        "read": plain(await client.read_resource(_DOCUMENT)),
        "prompt": plain(await client.get_prompt("args-prompt", {"city": "Zürich"})),
        "completed": plain(
            await client.complete(mcp_types.PromptReference(name="completable-prompt"), {"name": "department", "value": "E"})
        ),
    }


@ERAS
async def test_a_client_sees_and_gets_what_it_would_without_the_gateway(servers: Servers, tmp_path: Path, mode: str) -> None:
    (tmp_path / "inside").mkdir()
    tools: dict[str, Any] = {}
    results: list[Any] = []
    for name, words in servers.items():
        async with started(words, "auto") as direct:
            tools |= {tool.name: plain(tool) for tool in (await direct.list_tools()).tools}
            results += [await outcome(direct, *call) for call in calls(tmp_path)[name]]
            if name == "everything":
                content = await seen(direct)
    async with gateway(servers, tmp_path, mode) as client:
        assert {tool.name: plain(tool) for tool in (await client.list_tools()).tools} == tools
        assert [await outcome(client, *call) for name in servers for call in calls(tmp_path)[name]] == results
        assert await seen(client) == content
        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        with pytest.raises(MCPError):
            await client.read_resource("demo://nowhere")
    assert _DOCUMENT in uris


@ERAS
async def test_tools_that_a_server_has_only_for_clients_that_can_be_asked_work(servers: Servers, tmp_path: Path, mode: str) -> None:
    async with started(servers["everything"], asked=True) as direct:
        expected = {tool.name for tool in (await direct.list_tools()).tools}
        declined = await outcome(direct, "trigger-elicitation-request", {})
        answered = await outcome(direct, "trigger-sampling-request", {"prompt": "p", "maxTokens": 5})
    async with gateway(servers, tmp_path, mode, asked=True) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == expected
        assert await outcome(client, "trigger-elicitation-request", {}) == declined
        assert await outcome(client, "trigger-sampling-request", {"prompt": "p", "maxTokens": 5}) == answered
