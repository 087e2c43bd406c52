"""Numbers of servers that no Python value can hold: they cost nothing but themselves. Also over HTTP."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake, tool
from tests.mcp.http.clients import connected
from tests.mcp.http.fake_server import FakeServer, Reply, Sent

pytestmark = pytest.mark.process

_NUMBERS = ["1e400", "-1e400", "1" * 5_000, "-" + "9" * 5_000, "1" * 400 + ".5"]
_IDS = ["too large", "too small", "many digits", "many negative digits", "a long fraction"]


def frame(number: str) -> str:
    return (
        '{"jsonrpc":"2.0","id":{ID},"result":{"content":[{"type":"text","text":"\\"done\\" 1e400"}],"structuredContent":{"x":'
        + number
        + ',"y":[2,1e-400]}}}\n'
    )


@pytest.mark.parametrize("number", _NUMBERS, ids=_IDS)
async def test_a_result_with_such_a_number_has_its_digits(tmp_path: Path, number: str) -> None:
    async with Engine(servers=[Fake(tmp_path, frame(number)).server()]) as engine:
        result = await said(engine, call("work"))
    assert result.status == "ok"
    assert result.structured == {"x": number, "y": [2, 0.0]}


async def test_a_result_whose_schema_wants_a_number_is_an_error_that_names_it_and_not_unknown(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    fake = Fake(tmp_path, frame("1e400"), tools=[tool("work", outputSchema=schema)])
    async with Engine(servers=[fake.server()]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("error", "output_schema")
    assert "1e400" in result.text
    assert "did run" in result.text


async def test_a_tool_whose_schema_has_such_a_number_is_left_out_and_the_others_work(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "number", "maximum": math.inf}}}
    fake = Fake(tmp_path, ANSWER, tools=[tool("work"), tool("odd", inputSchema=odd)])  # which writes 1e400
    async with Engine(servers=[fake.server()]) as engine:
        assert engine.tools.names() == ["work"]
        assert (await said(engine, call("work"))).text == "done"
        refused = await said(engine, call("odd"))
    assert refused.code == "tool_unavailable"
    assert "/properties/x/maximum" in refused.text
    assert "1e400" in refused.text


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_such_a_number_is_read_over_http_too(content_type: str) -> None:
    async def answer(sent: Sent, reply: Reply) -> None:
        body = f'{{"jsonrpc":"2.0","id":{sent.message["id"]},"result":{{"content":[],"structuredContent":{{"x":1e400}}}}}}'
        shown = body if content_type == "application/json" else f"data: {body}\n\n"
        await reply.send(200, content_type, shown.encode())

    async with FakeServer(answer) as server, connected(server.url) as client:
        found = await client.ask("tools/call", {"name": "work", "arguments": {}})
    assert found["result"]["structuredContent"] == {"x": "1e400"}


async def test_a_line_of_half_a_text_with_many_quotation_marks_is_read_once(tmp_path: Path) -> None:
    """Each quotation mark was taken for the begin of another text, so that 100 kB took minutes, in which nobody else was served."""
    line = {"cat": ['{"jsonrpc":"2.0","id":{ID},"result":"', {"rep": ['\\"', 500_000]}, "}\n"]}
    async with Engine(servers=[Fake(tmp_path, line).server()]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("unknown", "protocol_error")


@pytest.mark.parametrize("number", ["1e300", "1e0000000300", "1E+300"])
async def test_a_message_with_very_many_large_numbers_is_refused_at_once(tmp_path: Path, number: str) -> None:
    frame = f'{{"jsonrpc":"2.0","id":{{ID}},"result":{{"content":[],"structuredContent":[{",".join([number] * 100_000)}]}}}}\n'
    async with Engine(servers=[Fake(tmp_path, frame).server()]) as engine:
        result = await said(engine, call("work"))
    assert (result.status, result.code) == ("unknown", "protocol_error")
    assert "more than 10,000 numbers from 1e100 on" in (result.error or "")
