"""A message that is refused is answered under its id, so that its client does not wait for ever."""

from __future__ import annotations

import pytest

from tests.gateway.raw_client import Era, raw_client, served
from tests.gateway.refused_lines import REFUSED

pytestmark = pytest.mark.process


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_refused_line_is_answered_under_its_id_and_the_next_one_is_served(era: Era) -> None:
    async with raw_client(served(), era) as client:
        for name, (line, number, code) in REFUSED.items():
            client.write(line.encode() + b"\n")
            answer = await client.next_message()
            assert (name, answer["id"], answer["error"]["code"]) == (name, number, code)
        assert "result" in await client.call("price", {"item": "tea"})


async def test_the_refusal_says_what_is_wrong() -> None:
    async with raw_client(served(), "handshake") as client:
        client.write(REFUSED["half a surrogate pair"][0].encode() + b"\n")
        assert "half of a surrogate pair" in (await client.next_message())["error"]["message"]
