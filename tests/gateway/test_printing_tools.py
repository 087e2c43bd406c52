"""What a tool prints is not between the messages of a program that serves standard input and output."""

from __future__ import annotations

import pytest

from tests.gateway.raw_client import program, raw_client

pytestmark = pytest.mark.process


async def test_a_tool_that_prints_does_not_disturb_the_messages() -> None:
    async with raw_client(program(), "handshake") as client:
        result = (await client.call("price", {"item": "tea"}))["result"]
        assert result["structuredContent"] == {"item": "tea", "price": 5}
    assert client.messages.empty()
