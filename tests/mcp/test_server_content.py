"""Resources and prompts of a server, which a host reads beside the calls of tools."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, UsageError
from callgate.mcp import McpError, NotSent, ProtocolError, RequestRejected, mcp
from tests.engine_calls import call, said
from tests.mcp.fakes import Fake, tool
from tests.waiting import until

pytestmark = pytest.mark.process

ALL: dict[str, Any] = {"resources": {}, "prompts": {}, "completions": {}}
RESOURCES: list[dict[str, Any]] = [
    {"result": {"resources": [{"uri": "a://1", "name": "one", "x-vendor": {"b": 1, "a": 2}, "_meta": {"k": 1}}], "nextCursor": "1"}},
    {"result": {"resources": [{"uri": "a://2", "name": "two", "icons": [{"src": "data:,"}]}]}},
]
READ = {"contents": [{"uri": "a://1", "text": "one", "annotations": {"priority": 1}, "x-part": None}], "_meta": {"k": 1}, "x-vendor": [1]}
PROMPT = {"description": "p", "messages": [{"role": "user", "content": {"type": "vendor/new", "body": 1}}], "x-vendor": {}}
REFUSED = {"error": {"code": -32002, "message": "Resource not found", "data": {"uri": "a://9"}}}


def fake(folder: Path, *frames: Any, **answers: Any) -> Fake:
    return Fake(folder, *frames, capabilities=ALL, answers={method.replace("_", "/"): given for method, given in answers.items()})


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_all_pages_and_all_fields_reach_the_host(tmp_path: Path, era: str) -> None:
    answers = {"resources/list": RESOURCES, "resources/read": {"result": READ}, "prompts/get": {"result": PROMPT}}
    scripted = Fake(tmp_path, era=era, capabilities=ALL, answers=answers)
    async with Engine(servers=[scripted.server()]) as engine:
        content = engine.server("fake")
        assert await content.list_resources() == [one for page in RESOURCES for one in page["result"]["resources"]]
        assert await content.read_resource("a://1") == READ
        assert await content.get_prompt("p", {"language": "C"}) == PROMPT
    asked = scripted.seen("prompts/get")[0]["params"]
    assert (asked["name"], asked["arguments"]) == ("p", {"language": "C"})


async def test_a_list_whose_cursors_repeat_ends_and_the_warning_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    page = {"result": {"prompts": [{"name": "p"}], "nextCursor": "0"}}
    async with Engine(servers=[fake(tmp_path, prompts_list=page).server()]) as engine:
        assert [one["name"] for one in await engine.server("fake").list_prompts()] == ["p", "p"]
    assert "gives the same cursor twice in its list of prompts" in caplog.text


@pytest.mark.parametrize("cursor", [5, ["1"], False])
async def test_a_list_whose_cursor_is_no_text_keeps_what_was_read_and_the_warning_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cursor: object
) -> None:
    page = {"tools": [tool("work")], "nextCursor": cursor}
    async with Engine(servers=[Fake(tmp_path, live=page).server()]) as engine:
        assert engine.tools.names() == ["work"]
    assert f"has {cursor!r} as nextCursor in its list of tools, which must be a text" in caplog.text


async def test_an_error_of_the_server_has_its_code_and_data(tmp_path: Path) -> None:
    async with Engine(servers=[fake(tmp_path, resources_read=REFUSED).server()]) as engine:
        with pytest.raises(RequestRejected, match="'fake' answered resources/read with an error: Resource not found") as refused:
            await engine.server("fake").read_resource("a://9")
    assert (refused.value.code, refused.value.rpc_code, refused.value.data) == ("request_rejected", -32002, {"uri": "a://9"})


async def test_an_answer_without_the_form_of_a_resource_is_a_protocol_error(tmp_path: Path) -> None:
    wrong = {"result": {"contents": "text"}}
    async with Engine(servers=[fake(tmp_path, resources_read=wrong).server()]) as engine:
        with pytest.raises(ProtocolError, match="resources/read without valid contents"):
            await engine.server("fake").read_resource("a://1")


async def test_a_server_without_resources_is_not_asked_for_them(tmp_path: Path) -> None:
    scripted = Fake(tmp_path)
    async with Engine(servers=[scripted.server()]) as engine:
        for request in (engine.server("fake").list_resources, engine.server("fake").list_prompts):
            with pytest.raises(UsageError, match=r"'fake' has no (resources|prompts)\. Its capabilities are: tools\."):
                await request()
    assert scripted.seen("resources/list") == scripted.seen("prompts/list") == []


async def test_a_request_that_is_not_answered_in_time_is_cancelled(tmp_path: Path) -> None:
    scripted = Fake(tmp_path, capabilities=ALL, hang_on="resources/read", answers={"prompts/get": {"result": PROMPT}})
    async with Engine(servers=[scripted.server()]) as engine:
        with pytest.raises(McpError, match=r"did not answer resources/read within 0\.2 s") as late:
            await engine.server("fake").read_resource("a://1", timeout_s=0.2)
        assert late.value.code == "timeout"
        await until(lambda: scripted.seen("notifications/cancelled"))
        assert await engine.server("fake").get_prompt("p") == PROMPT


async def test_resources_are_read_while_a_call_runs(tmp_path: Path) -> None:
    scripted = fake(tmp_path, {"until_cancelled": True}, resources_read={"result": READ})
    async with Engine(servers=[scripted.server(parallel=1)]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work")))
        await until(scripted.calls)
        assert await engine.server("fake").read_resource("a://1") == READ
        assert not calling.done()
        calling.cancel()
        await asyncio.wait([calling])


async def test_a_server_that_is_down_is_named_with_the_reason() -> None:
    down = mcp([sys.executable, "-c", "raise SystemExit(3)"], name="docs")
    async with Engine(servers=[down]) as engine:
        with pytest.raises(NotSent, match=r"The MCP server 'docs' .*exited with code 3"):
            await engine.server("docs").list_resources()


async def test_the_first_request_starts_the_servers(tmp_path: Path) -> None:
    engine = Engine(servers=[fake(tmp_path, resources_read={"result": READ}).server()])
    try:
        assert await engine.server("fake").read_resource("a://1") == READ
        assert (await said(engine, call("echo", text="hello"))).text == "hello"
    finally:
        await engine.close()


async def test_a_name_that_no_server_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no server 'dosc'\. It has: fake\."):
        Engine(servers=[Fake(tmp_path).server()]).server("dosc")


async def test_arguments_of_a_prompt_must_be_texts(tmp_path: Path) -> None:
    async with Engine(servers=[fake(tmp_path).server()]) as engine:
        with pytest.raises(UsageError, match=r"get_prompt.*dict of texts"):
            await engine.server("fake").get_prompt("p", {"count": 3})  # type: ignore[dict-item]
