"""`engine.watch`: nobody is asked about a call of a message that was discarded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from callgate import Engine, Scope, SqliteJournal, UsageError, inbox, tool
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS, close_clients

pytestmark = SDK_WARNINGS

SCOPE = Scope(run="r", conversation="ann")
_ASKED: list[Any] = [{"role": "user", "content": "Go."}]
_HEAD: dict[str, Any] = {"type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "usage": {}}
_CALL = {"type": "tool_use", "id": "toolu_1", "name": "peek", "input": {}}

shown: list[str] = []


@tool(effect="none", requires_approval=True)
def peek(path: str) -> str:
    """Show a file."""
    shown.append(path)
    return "seen"


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    shown.clear()
    yield
    await close_clients()


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _message(message_id: str, *end: bytes) -> tuple[str, list[bytes]]:
    piece = {"type": "input_json_delta", "partial_json": '{"path": "/x"}'}
    begin = [
        _event("message_start", message={**_HEAD, "id": message_id}),
        _event("content_block_start", index=0, content_block=_CALL),
        _event("content_block_delta", index=0, delta=piece),
        _event("content_block_stop", index=0),
    ]
    return "text/event-stream", [*begin, *end]


_OVERLOADED = _event("error", error={"type": "overloaded_error", "message": "Overloaded"})
_END = (_event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1}), _event("message_stop"))
_REFUSED = (_event("message_delta", delta={"stop_reason": "refusal"}, usage={"output_tokens": 1}), _event("message_stop"))


async def _reply(engine: Engine, url: str) -> Any:
    sent = await ASK["anthropic"](url, _ASKED, engine.schemas("anthropic"), stream=True)
    async with engine.watch(sent, SCOPE) as chunks:
        return await chunks.reply()


async def _answered_early(engine: Engine, sent: Any) -> None:
    """Read a stream, and approve its call before it ends."""
    async with engine.watch(sent, SCOPE) as chunks:
        async for chunk in chunks:
            if chunk.type == "content_block_stop":
                await engine.approve("r/0/0", by="ann")


async def test_a_message_that_broke_off_and_is_requested_again_asks_one_question(tmp_path: Path) -> None:
    """A yes to the first one would never reach the program, which waits for an answer to the second one."""
    where = tmp_path / "calls.db"
    with RecordedServer(_message("msg_1", _OVERLOADED), _message("msg_2", *_END)) as server:
        async with Engine([peek], journal=SqliteJournal(where)) as engine:
            with pytest.raises(anthropic.APIStatusError):
                await _reply(engine, server.url)
            (question,) = (await _reply(engine, server.url)).suspended
    assert question.approval_id == "r/0/1"
    assert [one.approval for one in inbox.waiting(where)] == ["r/0/1"]
    with pytest.raises(UsageError, match=r"'r/0/0' was closed without an answer: its message was discarded: its stream failed"):
        inbox.approve(where, "r/0/0", by="ann")
    assert shown == []


async def test_nobody_is_asked_about_a_call_of_a_blocked_message() -> None:
    with RecordedServer(_message("msg_1", *_REFUSED)) as server:
        async with Engine([peek]) as engine:
            reply = await _reply(engine, server.url)
            assert reply.ended == "aborted"
            with pytest.raises(UsageError, match="'r/0/0'"):
                await engine.approve("r/0/0", by="ann")


async def test_a_yes_that_came_before_the_message_broke_off_is_for_the_next_such_call() -> None:
    with RecordedServer(_message("msg_1", _OVERLOADED), _message("msg_2", *_END)) as server:
        async with Engine([peek]) as engine:
            sent = await ASK["anthropic"](server.url, _ASKED, engine.schemas("anthropic"), stream=True)
            with pytest.raises(anthropic.APIStatusError):
                await _answered_early(engine, sent)
            reply = await _reply(engine, server.url)
    assert (reply.ended, shown) == (None, ["/x"])
