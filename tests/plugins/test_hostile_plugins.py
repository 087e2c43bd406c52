"""Plugins that break the protocol, on purpose or not. Only their own calls may suffer."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from callgate import Engine
from tests.engine_calls import call, said
from tests.plugins.fakes import ANSWER, FakeFolder

pytestmark = pytest.mark.process

NOISE = 'Loading...\n[1, 2]\n"text"\n{"no": "kind"}\n{"kind": 7}\n{"kind": "result", "id": 99, "value": 1}\n\n\x00\x1b[31mred\n'


async def test_lines_that_are_no_messages_are_ignored_and_the_first_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeFolder(tmp_path, {"raw": NOISE}, ANSWER, first=NOISE)
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[fake.plugin()]) as engine:
            assert (await said(engine, call("work"))).data == "done"
    assert "a line that is not a message" in caplog.text
    assert caplog.text.count("it is ignored") == 5


async def test_messages_of_unknown_kinds_and_with_unknown_keys_are_ignored(tmp_path: Path) -> None:
    later = '{"kind": "telemetry", "spans": []}\n{"kind": "result", "id": {ID}, "value": "ok", "of_the_future": true}\n'
    fake = FakeFolder(tmp_path, {"raw": later})
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "ok"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"kind": "result", "id": {ID}, "value": NaN}', "protocol_error"),
        ('{"kind": "result", "id": {ID}, "value": ' + "[" * 300 + "]" * 300 + "}", "too_deep"),
        ('{"kind": "result", "id": {ID}}', "protocol_error"),
        ('{"kind": "result", "id": {ID}, "content": "text"}', "protocol_error"),
        ('{"kind": "error", "id": {ID}}', "protocol_error"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_call_unknown(tmp_path: Path, line: str, code: str) -> None:
    fake = FakeFolder(tmp_path, {"raw": line + "\n"})
    async with Engine(servers=[fake.plugin()]) as engine:
        result = await said(engine, call("work"))
        assert (result.status, result.code) == ("unknown", code)
        assert (await said(engine, call("echo", n=1))).data == {"n": 1}


async def test_a_second_answer_changes_nothing(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER, {"answer": {"kind": "result", "value": "other"}})
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        assert (await said(engine, call("echo", n=1))).data == {"n": 1}


@pytest.mark.parametrize("wrong", ["true", '"{ID}"', "{ID}.0", "null", "[{ID}]"])
async def test_an_answer_whose_id_is_no_integer_answers_no_call(tmp_path: Path, wrong: str) -> None:
    lines = "".join(f'{{"kind": "result", "id": {number}, "value": "{value}"}}\n' for number, value in ((wrong, "other"), ("{ID}", "own")))
    fake = FakeFolder(tmp_path, {"raw": lines})
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "own"


async def test_a_plugin_that_writes_a_line_without_end_is_cut_off(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, {"repeat": ["x" * 1_048_576, 12]})
    async with Engine(servers=[fake.plugin()]) as engine:
        result = await said(engine, call("work"))
        assert (result.status, result.code) == ("unknown", "output_too_large")
        assert (await said(engine, call("echo", n=1))).data == {"n": 1}


async def test_a_plugin_that_is_never_ready_is_given_up_and_its_call_was_not_started(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER, deaf_to=["hello"])
    async with Engine(servers=[fake.plugin(start_timeout_s=0.3, timeout_s=20, options={"work": {"retryable": False}})]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("error", "not_started")
    assert "it was not ready within 0.3 s" in result.text
    assert fake.seen("call") == []


@pytest.mark.parametrize("described", [None, "text", [{"name": "x"}], [{"name": 7, "input_schema": {}}]])
async def test_a_description_that_is_none_is_told_when_a_tool_is_called(tmp_path: Path, described: object) -> None:
    fake = FakeFolder(tmp_path, tools="", described=described)
    async with Engine(servers=[fake.plugin()]) as engine:
        result = await said(engine, call("work"))
    assert result.code == "unknown_tool"
    assert "describes" in result.text


async def test_a_tool_with_a_name_that_cannot_be_registered_does_not_hide_the_others(tmp_path: Path) -> None:
    good = {"name": "work", "description": "w", "input_schema": {"type": "object"}}
    bad = good | {"name": "no good name\n"}
    broken = good | {"name": "broken", "input_schema": {"type": "nonsense"}}
    fake = FakeFolder(tmp_path, ANSWER, tools="", described=[bad, broken, good])
    async with Engine(servers=[fake.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        assert {tool.name for tool in engine.tools} == {"work"}


async def test_the_name_of_a_tool_begins_no_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tool = {"name": "bad\nWARNING forged", "input_schema": {"type": "object"}}
    async with Engine(servers=[FakeFolder(tmp_path, ANSWER, tools="", described=[tool]).plugin()]):
        pass
    assert [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert not [line for line in caplog.text.splitlines() if line.startswith("WARNING forged")]


async def test_two_plugins_with_one_tool_name_both_work(tmp_path: Path) -> None:
    one, two = FakeFolder(tmp_path, ANSWER, name="one"), FakeFolder(tmp_path, ANSWER, name="two")
    async with Engine(servers=[one.plugin(), two.plugin()]) as engine:
        assert (await said(engine, call("work"))).data == "done"
        assert (await said(engine, call("two.work"))).data == "done"
    assert len(one.seen("call")) == len(two.seen("call")) == 1
