"""Servers that others have written: from npm, from PyPI, and with the official SDK, in both eras of the protocol."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall
from callgate.calls import Image, Resource
from callgate.mcp import McpServer, mcp
from tests.engine_calls import call, result_of, said
from tests.forked_programs import forked_program
from tests.mcp.npm_servers import npm_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

NPM = ("filesystem", "everything", "memory", "sequential-thinking")
VERSION = "2026.8.31"
PYPI = {"git": "mcp_server_git", "time": "mcp_server_time", "fetch": "mcp_server_fetch"}
Servers = Mapping[str, Path]


@pytest.fixture(scope="session")
def npm_servers() -> Servers:
    """The programs of the reference servers of npm, which speak the older era only."""
    return {name: npm_server(f"@modelcontextprotocol/server-{name}@{VERSION}") for name in NPM}


def node(programs: Servers, name: str, *arguments: str, **options: Any) -> McpServer:
    return mcp(["node", str(programs[name]), *arguments], name=name, **options)


def module(name: str, *arguments: str) -> McpServer:
    pytest.importorskip(PYPI[name], reason=f"mcp-server-{name} is not installed")
    return mcp([sys.executable, "-m", PYPI[name], *arguments], name=name)


async def test_the_filesystem_server_writes_and_reads_a_file(npm_servers: Servers, tmp_path: Path) -> None:
    async with Engine(servers=[node(npm_servers, "filesystem", str(tmp_path))]) as engine:
        path = str(tmp_path / "a.txt")
        assert (await said(engine, call("write_file", path=path, content="one\n"))).success
        read = await said(engine, call("read_text_file", path=path))
        outside = await said(engine, call("read_text_file", path="/etc/hostname"))
        invalid = await said(engine, call("read_text_file", path=7))
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one\n"
    assert read.structured == {"content": "one\n"}
    assert (outside.status, outside.code) == ("error", "tool_declared")
    assert (invalid.status, invalid.code) == ("error", "schema_invalid")


async def test_the_everything_server_sends_images_resources_and_structured_content(npm_servers: Servers) -> None:
    async with Engine(servers=[node(npm_servers, "everything", "stdio")]) as engine:
        assert (await said(engine, call("get-sum", a=2, b=3))).text.count("5") == 1
        image = await said(engine, call("get-tiny-image"))
        structured = await said(engine, call("get-structured-content", location="Chicago"))
        resource = await said(engine, call("get-resource-reference", resourceType="Text", resourceId=1))
    assert any(isinstance(part, Image) for part in image.content)
    assert isinstance(structured.structured, dict)
    assert any(isinstance(part, Resource) for part in resource.content)


async def test_the_everything_server_gives_resources_templates_prompts_and_completions(npm_servers: Servers) -> None:
    async with Engine(servers=[node(npm_servers, "everything", "stdio")]) as engine:
        everything = engine.server("everything")
        resources = await everything.list_resources()
        read = await everything.read_resource(resources[0]["uri"])
        templates = await everything.list_resource_templates()
        dynamic = await everything.read_resource(templates[0]["uriTemplate"].replace("{resourceId}", "7"))
        prompts = [one["name"] for one in await everything.list_prompts()]
        prompt = await everything.get_prompt("args-prompt", {"city": "Zürich"})
        completed = await everything.complete({"type": "ref/prompt", "name": "completable-prompt"}, "department", "E")
    assert read["contents"][0]["uri"] == resources[0]["uri"]
    assert dynamic["contents"][0]["uri"].endswith("7")
    assert "args-prompt" in prompts
    assert "Zürich" in prompt["messages"][0]["content"]["text"]
    assert "Engineering" in completed["completion"]["values"]


async def test_the_memory_and_thinking_servers_keep_their_state_between_calls(npm_servers: Servers, tmp_path: Path) -> None:
    memory = node(npm_servers, "memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    async with Engine(servers=[memory, node(npm_servers, "sequential-thinking")]) as engine:
        assert (await said(engine, call("create_entities", entities=[entity]))).success
        found = await said(engine, call("search_nodes", query="programs"))
        thought = await said(engine, call("sequentialthinking", thought="one", nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1))
    assert "Ada" in found.text
    assert thought.success


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, value in (("user.email", "a@example.org"), ("user.name", "A")):
        subprocess.run(["git", "-C", str(folder), "config", name, value], check=True)
    (folder / "a.txt").write_text("one\n", encoding="utf-8")


async def test_the_git_server_reads_a_repository_and_commits_to_it(tmp_path: Path) -> None:
    make_repository(tmp_path)
    async with Engine(servers=[module("git", "--repository", str(tmp_path))]) as engine:
        assert (await said(engine, call("git_add", repo_path=str(tmp_path), files=["a.txt"]))).success
        assert (await said(engine, call("git_commit", repo_path=str(tmp_path), message="first"))).success
        log = await said(engine, call("git_log", repo_path=str(tmp_path)))
    assert "first" in log.text


async def test_the_time_and_fetch_servers_answer(tmp_path: Path) -> None:
    async with Engine(servers=[module("time", "--local-timezone", "UTC"), module("fetch", "--ignore-robots-txt")]) as engine:
        time = await said(engine, call("get_current_time", timezone="UTC"))
        refused = await said(engine, call("fetch", url="http://127.0.0.1:9/"))
    assert time.success
    assert "UTC" in time.text
    assert refused.status == "error"


SDK_SERVER = textwrap.dedent("""
    import os, sys
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("sdk")

    @server.tool()
    async def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    @server.tool()
    async def steps(ctx: Context) -> str:
        "Report progress."
        await ctx.report_progress(1, 2, "first")
        return "done"

    @server.tool()
    async def fails() -> str:
        "Fail."
        raise ValueError("broken")

    @server.resource("note://today")
    async def today() -> str:
        "Return the note of today."
        return "nothing"

    @server.prompt()
    async def review(language: str) -> str:
        "Ask for a review."
        return f"Review this {language} code."

    if sys.argv[1] == "handshake":  # refuse the first request, as servers of the older era do
        while os.read(0, 1) != b"\\n":
            pass
        os.write(1, b\'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}\\n\')
    server.run("stdio")
""")


@pytest.fixture(params=["stateless", "handshake"])
def sdk(request: pytest.FixtureRequest, tmp_path: Path) -> McpServer:
    """A server made with the official SDK, in one era of the protocol."""
    pytest.importorskip("mcp.server.mcpserver", reason="the SDK of MCP is not installed")
    program = tmp_path / "sdk_server.py"
    program.write_text(SDK_SERVER, encoding="utf-8")
    return mcp(forked_program(str(program), request.param), name="sdk")


async def test_a_server_of_the_sdk_answers_reports_progress_and_fails(sdk: McpServer) -> None:
    shown: list[str] = []
    async with Engine(servers=[sdk]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(getattr(item, "text", "")), "call.progress")
        added = await said(engine, call("add", a="2", b=3))
        assert result_of(await engine.call(RawCall(name="steps", arguments="{}"))).success
        failed = await said(engine, call("fails"))
    assert added.structured == {"result": 5}
    assert shown == ["1/2: first"]
    assert (failed.status, failed.code) == ("error", "tool_declared")


async def test_a_server_of_the_sdk_gives_resources_and_prompts(sdk: McpServer) -> None:
    async with Engine(servers=[sdk]) as engine:
        content = engine.server("sdk")
        assert [one["uri"] for one in await content.list_resources()] == ["note://today"]
        assert (await content.read_resource("note://today"))["contents"][0]["text"] == "nothing"
        assert [one["arguments"][0]["name"] for one in await content.list_prompts()] == ["language"]
        prompt = await content.get_prompt("review", {"language": "C"})
    assert prompt["messages"][0]["content"] == {"type": "text", "text": "Review this C code."}
