"""Calls of tools of MCP servers: what is sent, what comes back, and that they take the same route as all others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, Rules, Scope, SqliteJournal, Suspended, after_call, before_call
from callgate.calls import Image, Link, Text
from callgate.events import Progress
from callgate.mcp import AcceptedTools
from tests.engine_calls import call, kinds, result_of, said
from tests.mcp.fakes import ANSWER, Fake, tool
from tests.waiting import until

pytestmark = pytest.mark.process


def frame(result: dict[str, Any]) -> str:
    return '{"jsonrpc":"2.0","id":{ID},"result":' + json.dumps(result) + "}\n"


async def outcome(fake: Fake) -> Any:
    async with Engine(servers=[fake.server()]) as engine:
        return await said(engine, call("work"))


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_call_runs_in_the_process_of_the_server(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, ANSWER, era=era)
    async with Engine(servers=[fake.server()]) as engine:
        result = await said(engine, call("work", count=3))
    assert (result.status, result.text) == ("ok", "done")
    (params,) = fake.calls()
    assert (params["name"], params["arguments"]) == ("work", {"count": 3})


async def test_a_call_is_sent_without_async_with_when_it_is_made(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    engine = Engine([fake.server()])
    assert fake.pids == []
    assert (await said(engine, call("work"))).text == "done"
    await engine.close()


def test_synchronous_code_lists_and_calls_the_tools_of_a_server(tmp_path: Path) -> None:
    engine = Engine(servers=[Fake(tmp_path, ANSWER).server()])
    assert [one["function"]["name"] for one in engine.schemas("openai")] == ["work", "echo"]
    assert result_of(engine.call_sync(call("work"))).text == "done"
    engine.close_sync()


async def test_structured_content_images_and_links_are_returned_as_they_are(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "two"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "hologram", "depth": 3},
    ]
    result = await outcome(Fake(tmp_path, frame({"content": parts, "structuredContent": [1, {"two": None}]})))
    assert result.structured == [1, {"two": None}]
    assert result.content[0] == Text(text="two")
    assert isinstance(result.content[1], Image)
    assert isinstance(result.content[2], Link)
    assert json.loads(result.content[3].text) == {"type": "hologram", "depth": 3}


async def test_an_image_of_a_server_keeps_its_declared_type(tmp_path: Path) -> None:
    """A client of the gateway gets what the server has sent, also if the bytes show another type."""
    result = await outcome(Fake(tmp_path, frame({"content": [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/jpeg"}]})))
    assert result.content == (Image(data="iVBORw0KGgo=", mime_type="image/jpeg"),)


async def test_a_failure_that_the_tool_reports_is_an_error_and_its_output_schema_does_not_apply(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["n"]}
    failed = frame({"isError": True, "content": [{"type": "text", "text": "no such city"}]})
    result = await outcome(Fake(tmp_path, failed, tools=[tool("work", outputSchema=schema)]))
    assert (result.status, result.code, result.error) == ("error", "tool_declared", "no such city")


async def test_an_error_of_the_server_keeps_its_code_and_data(tmp_path: Path) -> None:
    failed = '{"jsonrpc":"2.0","id":{ID},"error":{"code":-32000,"message":"the disk is full","data":{"free":0}}}\n'
    result = await outcome(Fake(tmp_path, failed))
    assert result.status == "error"
    assert "the disk is full (-32000)" in result.error
    assert '"jsonrpc_data":{"free":0}' in result.text


async def test_a_call_that_the_server_refuses_for_its_arguments_did_not_happen(tmp_path: Path) -> None:
    refused = '{"jsonrpc":"2.0","id":{ID},"error":{"code":-32602,"message":"unknown tool"}}\n'
    result = await outcome(Fake(tmp_path, refused))
    assert (result.status, result.code) == ("error", "not_done")
    assert "Nothing happened" in result.text


async def test_progress_is_published_while_the_tool_runs(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"progress": "halfway"}, {"until_cancelled": True})
    shown: list[Progress] = []
    async with Engine(servers=[fake.server()]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(item) if isinstance(item, Progress) else None, "call.progress")
        calling = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(lambda: shown)
        assert not calling.done()
        engine.control.kill("c")
        await calling
    assert [(one.text, one.stream) for one in shown] == [("1/2: halfway", "progress")]


async def test_the_digits_of_progress_are_as_the_server_counts(tmp_path: Path) -> None:
    counted = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{ID},"progress":1000001,"total":2000000.5}}\n'
    fake = Fake(tmp_path, counted, ANSWER)
    shown: list[Progress] = []
    async with Engine(servers=[fake.server()]) as engine:
        engine.bus.subscribe(lambda _, item: shown.append(item) if isinstance(item, Progress) else None, "call.progress")
        await said(engine, call("work"))
        await until(lambda: shown)
    assert shown[0].text == "1000001/2000000.5"


async def test_a_kill_cancels_the_call_in_the_server(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server()]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(fake.calls)
        engine.control.kill("c")
        await calling
        (sent,) = fake.seen("tools/call")
        await until(lambda: [note["params"]["requestId"] for note in fake.seen("notifications/cancelled")] == [sent["id"]])


@pytest.mark.parametrize("answers", [1, 2])
async def test_an_answer_to_a_cancelled_call_is_expected_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, answers: int) -> None:
    fake = Fake(tmp_path, {"until_cancelled": True}, *[ANSWER] * answers)
    async with Engine(servers=[fake.server()]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
        await until(fake.calls)
        engine.control.kill("c")
        await calling
        await until(lambda: kinds(engine).count("call.late") == answers)
    warned = [record.getMessage() for record in caplog.records if "no request waits for" in record.getMessage()]
    assert len(warned) == answers - 1


async def test_policies_hooks_and_the_record_apply_to_a_tool_of_a_server(tmp_path: Path) -> None:
    seen: list[str] = []

    @before_call("work")
    def before(called: Any) -> None:
        seen.append("before")

    @after_call("work")
    def after(called: Any, result: Any) -> None:
        seen.append("after")

    fake = Fake(tmp_path, ANSWER)
    rules = Rules.parse('[[rule]]\nid = "no-echo"\nverdict = "deny"\ntool = "echo"\nreason = "echo is off"\n')
    async with Engine(servers=[fake.server()], policies=[rules], hooks=[before, after]) as engine:
        assert (await said(engine, call("work"))).success
        denied = await said(engine, call("echo"))
        assert kinds(engine)[:3] == ["call.received", "call.started", "call.completed"]
    assert (denied.status, denied.code) == ("error", "policy_denied")
    assert seen == ["before", "after"]
    assert [params["name"] for params in fake.calls()] == ["work"]


async def test_a_tool_of_a_server_can_require_approval(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    server = fake.server(options={"work": {"requires_approval": True}})
    async with Engine(servers=[server]) as engine:
        asked = await engine.call(call("work", id="1"))
        assert isinstance(asked, Suspended)
        assert fake.calls() == []
        await engine.approve(asked.approval_id)
        assert (await said(engine, call("work", id="1"))).text == "done"
    assert len(fake.calls()) == 1


async def test_a_tool_is_once_whatever_its_server_says_and_reads_only_if_the_operator_says_so(tmp_path: Path) -> None:
    hinted = tool("work", annotations={"readOnlyHint": True, "idempotentHint": True})
    fake = Fake(tmp_path, ANSWER, tools=[hinted])
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.visible["work"].effect == "once"
    async with Engine(
        servers=[fake.server(effects={"work": "none"}, options={"work": {"cacheable": True, "cache_scope": "session"}})]
    ) as engine:
        assert engine.tools.visible["work"].effect == "none"
        first, second = await said(engine, call("work")), await said(engine, call("work"))
    assert (first.metadata.cached, second.metadata.cached) == (None, "session")
    assert len(fake.calls()) == 1


async def test_a_recorded_call_is_replayed_after_a_restart_and_not_sent_again(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    for replayed in (False, True):
        async with Engine(servers=[fake.server()], journal=SqliteJournal(tmp_path / "j.db"), run="one") as engine:
            result = await said(engine, call("work", id="1", key="order-7"))
            assert (result.text, result.metadata.replayed) == ("done", replayed)
    assert len(fake.calls()) == 1


async def test_a_changed_definition_is_not_called_until_the_operator_accepts_it(tmp_path: Path) -> None:
    fake, accepted = Fake(tmp_path, ANSWER), AcceptedTools(tmp_path / "accepted.json")
    accepted.accept("fake", [tool("work"), tool("echo")], {"work": "idempotent"})
    async with Engine(servers=[fake.server(accepted=accepted)]) as engine:
        assert engine.tools.visible["work"].effect == "idempotent"
        assert (await said(engine, call("work"))).success
    changed = Fake(tmp_path, ANSWER, tools=[tool("work", title="New"), tool("echo")])
    async with Engine(servers=[changed.server(accepted=tmp_path / "accepted.json")]) as engine:
        result = await said(engine, call("work"))
        assert engine.tools.names() == ["echo"]
    assert (result.status, result.code, result.failure_class) == ("error", "tool_unavailable", "not_started")
    assert "accept" in result.text
    assert len(changed.calls()) == 1


async def test_more_calls_than_the_server_takes_at_once_wait(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server(parallel=1)]) as engine:
        first = asyncio.ensure_future(engine.call(call("work", n=1), Scope(conversation="first")))
        await until(fake.calls)
        second = asyncio.ensure_future(engine.call(call("work", n=2), Scope(conversation="second", run="other")))
        await until(lambda: "call.started" in kinds(engine)[3:])
        assert len(fake.calls()) == 1
        engine.control.kill("first")
        await first
        await until(lambda: len(fake.calls()) == 2)
        engine.control.kill("second")
        assert not isinstance(await second, Answered)
