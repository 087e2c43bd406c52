"""A large body or frame is decoded off the event loop, and its events are yielded with pauses."""

from __future__ import annotations

import asyncio
import json
import sys
from types import FrameType

import pytest

from callgate.models.model_events import CallSealed
from callgate.models.model_protocol import StreamingContext
from callgate.testing import End, Raw, Reply, ScriptedServer
from tests.models.decoding import finished
from tests.models.http_requests import REQUEST, at

CALLS = 5_000


def _calls() -> list[dict[str, object]]:
    return [{"index": n, "id": f"c{n}", "type": "function", "function": {"name": "search", "arguments": "{}"}} for n in range(CALLS)]


def _whole() -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "tool_calls": _calls()}, "finish_reason": "tool_calls"}]}).encode()


def _frame() -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": _calls()}, "finish_reason": "tool_calls"}]}).encode() + b"\n\n"


@pytest.mark.parametrize("body", [_whole(), _frame()], ids=["whole", "one frame"])
async def test_a_large_body_is_decoded_off_the_event_loop_and_yielded_with_pauses(body: bytes) -> None:
    """Counts the decoder's functions that run in this thread, and the turns of the event loop while events are yielded."""
    decoding = turns = 0
    begun = over = False

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal decoding
        decoding += event == "call" and "/models/wire/" in frame.f_code.co_filename

    async def count_turns() -> None:
        nonlocal turns
        while not over:
            turns += begun
            await asyncio.sleep(0)

    events = []
    async with ScriptedServer([Reply(turn=[Raw(body), End("cut")])]) as server:
        of = at(server)
        other = asyncio.create_task(count_turns())
        sys.setprofile(count)
        try:
            async for event in of.stream(REQUEST, StreamingContext()):
                begun = True
                events.append(event)
        finally:
            sys.setprofile(None)
        over = True
        await other
        await of.close()
    assert (finished(events).reason, finished(events).fault) == ("tool_calls", None)
    assert sum(isinstance(event, CallSealed) for event in events) == CALLS
    assert decoding < CALLS
    assert turns >= len(events) // 64
