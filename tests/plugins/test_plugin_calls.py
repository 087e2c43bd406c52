"""Calls of a plugin's tools: answers of all forms, progress, context, cancelling, and the plugin's end in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, tool
from tests.engine_calls import call, result_of, said
from tests.plugins.fakes import ANSWER, FakeFolder, table
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


def fail(**fields: Any) -> dict[str, Any]:
    return {"answer": {"kind": "error", "message": "the printer is off", **fields}}


@pytest.mark.parametrize("value", ["text", 7, 2.5, True, None, [], [1, {"a": None}], {"b": {"c": [1]}}, "ü\u2028 \U0001f600"])
async def test_a_value_of_any_json_type_arrives_as_it_is(tmp_path: Path, value: object) -> None:
    fake = FakeFolder(tmp_path, {"answer": {"kind": "result", "value": value}})
    async with Engine(servers=[fake.plugin()]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.data) == ("ok", value)


async def test_a_result_has_the_same_form_as_that_of_a_tool_in_this_process(tmp_path: Path) -> None:
    @tool(name="near", effect="none")
    def near() -> dict[str, object]:
        """Return the same as the plugin."""
        return {"a": 1, "b": [None]}

    fake = FakeFolder(tmp_path, {"answer": {"kind": "result", "value": {"a": 1, "b": [None]}}}, tools=table("work", effect="none"))
    async with Engine([near], servers=[fake.plugin()]) as engine:
        mine, theirs = await said(engine, call("near")), await said(engine, call("work"))
    assert type(mine) is type(theirs)
    for field in ("status", "code", "data", "text", "content", "error"):
        assert getattr(mine, field) == getattr(theirs, field)


async def test_content_arrives_as_parts(tmp_path: Path) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    fake = FakeFolder(tmp_path, {"answer": {"kind": "result", "content": [{"type": "text", "text": "look"}, image]}})
    async with Engine(servers=[fake.plugin()]) as engine:
        result = await said(engine, call("work"))
    assert [type(part).__name__ for part in result.content] == ["Text", "Image"]


async def test_a_plugin_is_told_the_scope_and_the_idempotency_key_of_a_call(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    async with Engine(servers=[fake.plugin(timeout_s=50)]) as engine:
        await said(engine, call("work", order=7), Scope(conversation="c", actor="mo", principal="p", locale="de"))
    (sent,) = fake.seen("call")
    context = sent["context"]
    assert (sent["tool"], sent["arguments"]) == ("work", {"order": 7})
    assert (context["conversation"], context["actor"], context["principal"], context["locale"]) == ("c", "mo", "p", "de")
    assert context["attempt"] == 1
    assert len(context["idempotency_key"]) >= 16
    assert 0 < context["deadline_s"] <= 50


async def test_an_error_that_proves_that_nothing_was_done_is_an_error_and_any_other_is_unknown(tmp_path: Path) -> None:
    one, two = FakeFolder(tmp_path, fail(not_done=True), name="one"), FakeFolder(tmp_path, fail(), name="two", tools=table("print"))
    two.write_manifest(table("work2"))
    async with Engine(servers=[one.plugin()]) as engine:
        refused = await said(engine, call("work"))
    two.write_manifest(table("work"))
    async with Engine(servers=[two.plugin()]) as engine:
        doubtful = await said(engine, call("work"))
    assert refused.status == "error"
    assert "the printer is off" in refused.text
    assert doubtful.status == "unknown"


async def test_the_author_of_a_plugin_is_told_how_it_says_that_nothing_was_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeFolder(tmp_path, fail())
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).status == "unknown"
    told = next(record.getMessage() for record in caplog.records if "said once" in record.getMessage())
    assert "Tool work (plugin fake) failed, and its effect is `once`" in told
    assert 'the plugin answers by an error with "not_done": true' in told
    assert "not_done=(" not in told


async def test_a_failure_of_a_tool_that_has_come_to_its_end_is_an_error(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, fail(done=True))
    async with Engine(servers=[fake.plugin()]) as engine:
        failed = await said(engine, call("work"))
    assert failed.status == "error"
    assert "the printer is off" in failed.text
    assert len(fake.seen("call")) == 1


async def test_a_call_of_a_plugin_that_is_killed_is_unknown_and_is_not_sent_again(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.plugin()]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work", order=7)))
        await until(lambda: fake.seen("call"))
        os.kill(fake.pids[0], signal.SIGKILL)
        lost = result_of(await calling)
        assert (lost.status, lost.code) == ("unknown", "tool_crashed")
        assert "killed by SIGKILL" in str(lost.error)
        assert (await said(engine, call("echo", text="again"))).data == {"text": "again"}
    assert [sent["tool"] for sent in fake.seen("call")] == ["work", "echo"]
    assert len(fake.pids) == 2


async def test_a_reading_call_of_a_plugin_that_ends_is_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.plugins._supervised_plugin._WAITS_S", (0.01,) * 4)
    fake = FakeFolder(tmp_path, {"exit": 1}, tools=table("work", effect="none"))
    async with Engine(servers=[fake.plugin()]) as engine:
        calling = asyncio.ensure_future(said(engine, call("work")))
        await until(lambda: fake.pids)
        fake.write(steps=[ANSWER])
        assert (await calling).data == "done"
    assert len(fake.seen("call")) >= 2


async def killed_call(engine: Engine, fake: FakeFolder) -> None:
    """Make a call of `work`, and kill it once the plugin has it."""
    calling = asyncio.ensure_future(engine.call(call("work"), Scope(conversation="c")))
    await until(lambda: fake.seen("call"))
    engine.control.kill("c")
    await calling


async def test_a_killed_call_is_cancelled_in_the_plugin_which_goes_on(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"until_cancelled": True}, fail(code="cancelled"), head="parallel = 2")
    async with Engine(servers=[fake.plugin()]) as engine:
        await killed_call(engine, fake)
        await until(lambda: fake.seen("cancel"))
        assert fake.seen("cancel")[0]["id"] == fake.seen("call")[0]["id"]
        assert (await said(engine, call("echo", text="alive"))).data == {"text": "alive"}
    assert len(fake.pids) == 1


async def test_a_call_that_takes_too_long_is_cancelled_in_the_plugin(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"until_cancelled": True}, fail(code="cancelled"))
    async with Engine(servers=[fake.plugin(options={"work": {"timeout_s": 0.2}})]) as engine:
        await said(engine, call("echo"))  # starts the process
        ended = await said(engine, call("work"))
        assert (ended.status, ended.code) == ("unknown", "timeout")
        await until(lambda: fake.seen("cancel"))


async def test_a_plugin_that_does_not_end_a_cancelled_call_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.plugins._plugin_session.CANCEL_S", 0.05)
    fake = FakeFolder(tmp_path, {"until_cancelled": True}, deaf_to=["cancel"])
    async with Engine(servers=[fake.plugin()]) as engine:
        await killed_call(engine, fake)
        await until(lambda: len(fake.pids) == 2)
        with pytest.raises(ProcessLookupError):
            os.kill(fake.pids[0], 0)
        assert (await said(engine, call("echo", text="new"))).data == {"text": "new"}


async def test_an_engine_is_closed_when_the_last_call_of_a_plugin_that_is_to_be_replaced_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python 3.11, `asyncio.wait_for` loses a cancellation that comes at the same time as what it waits for."""
    monkeypatch.setattr("callgate.plugins._plugin_session.CANCEL_S", 0.0)
    fake = FakeFolder(tmp_path, {"until_cancelled": True}, deaf_to=["cancel"], head="parallel = 2")
    async with asyncio.timeout(PATIENCE_S):
        async with Engine(servers=[fake.plugin(options={"work": {"timeout_s": 1}})]) as engine:
            lasting = asyncio.ensure_future(engine.call(call("work", n=1), Scope(conversation="d")))
            await until(lambda: fake.seen("call"))
            await killed_call(engine, fake)
            await lasting


@pytest.mark.parametrize(("parallel", "at_once"), [(1, 1), (3, 3)])
async def test_a_plugin_gets_as_many_calls_at_the_same_time_as_its_manifest_says(tmp_path: Path, parallel: int, at_once: int) -> None:
    fake = FakeFolder(tmp_path, {"until_cancelled": True}, head=f"parallel = {parallel}", tools=table("work", effect="none"))
    async with Engine(servers=[fake.plugin()]) as engine:
        calls = [asyncio.ensure_future(engine.call(call("work", n=n), Scope(run=f"r{n}"))) for n in range(3)]
        await until(lambda: len(fake.seen("call")) == at_once)
        await asyncio.sleep(0)
        assert len(fake.seen("call")) == at_once
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_arguments_that_do_not_match_the_schema_are_not_sent(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fake = FakeFolder(tmp_path, ANSWER, tools="")
    (fake.folder / "work.json").write_text(str(schema).replace("'", '"'), encoding="utf-8")
    fake.write_manifest('[[tools]]\nname = "work"\ndescription = "w"\ninput_schema = "work.json"\n')
    async with Engine(servers=[fake.plugin()]) as engine:
        refused = await said(engine, RawCall(name="work", arguments='{"n": "many"}'))
    assert refused.status == "error"
    assert fake.pids == []
