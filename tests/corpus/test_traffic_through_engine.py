"""Recorded answers of real providers, as JSON data, through `engine.respond` and `engine.watch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from callgate import Engine, Tool, UsageError
from callgate.models.wire import codec
from callgate.tools import ToolRegistry
from tests.corpus.adapter import parse_response
from tests.corpus.test_recorded_traffic import answers, episodes

Ran = list[tuple[str, object]]


class Recorder(Tool):
    """Records the arguments of each call."""

    description = "Records."
    category = "safe_chain"
    requires_actor = False
    effect = "none"
    wraps_result = True
    parameters: Mapping[str, Any] = {"type": "object", "additionalProperties": True}

    def __init__(self, name: str, ran: Ran) -> None:
        self.name = name
        self._ran = ran

    async def execute(self, actor: str, **params: Any) -> Any:
        self._ran.append((self.name, params))
        return "recorded"


def frames_of(api: str, body: bytes, content_type: str, *, streamed: bool) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the frames of a body as an SDK would hand them on, or the whole body, as JSON data."""
    decoder = codec(api).decoder(content_type=content_type, streamed=streamed)
    frames: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []

    def keep_frame(event: str, value: Mapping[str, object]) -> None:
        named = {"type": event} if event and "type" not in value and not api.startswith("bedrock") else {}
        frames.append({event: dict(value)} if event and api.startswith("bedrock") and event != "chunk" else {**named, **value})

    decoder.read_frame = keep_frame  # type: ignore[method-assign]
    decoder.read_body = lambda value: whole.append(dict(value))  # type: ignore[method-assign]
    decoder.feed(body)
    decoder.close()
    return frames, whole[0] if whole else None


def tools_for(calls: list[dict[str, Any]], ran: Ran) -> list[Tool]:
    """Return a tool for each call, except for names that no tool can have."""
    return [Recorder(name, ran) for name in sorted({call["name"] for call in calls}) if _can_be_registered(name)]


def _can_be_registered(name: str) -> bool:
    try:
        ToolRegistry([Recorder(name, [])])
    except UsageError:
        return False
    return True


def _arguments(call: dict[str, Any]) -> object:
    """Return the arguments of a call; free text is the argument `input`."""
    return {"input": call["raw"]} if call["arguments"] is None else call["arguments"]


@pytest.mark.parametrize("episode", episodes())
async def test_recorded_answers_run_the_calls_that_the_decoder_finds(episode: dict[str, Any]) -> None:
    """Whole calls run with their arguments, in any order; the others have errors; each call has one result in the conversation."""
    for exchange, body in answers(episode):
        api, content_type = exchange["api"], exchange["content_type"] or ""
        told = parse_response(api, exchange["streamed"], content_type, [body])
        calls = [call for call in told["calls"] if not call["native"]]
        ran: Ran = []
        tools = tools_for(calls, ran)
        known = {tool.name for tool in tools}
        frames, whole = frames_of(api, body, content_type, streamed=exchange["streamed"])
        async with Engine(tools, repair=False) as engine:
            reply = await (engine.respond(whole) if whole is not None else engine.watch(frames).reply())
        wanted = [(call["name"], _arguments(call)) for call in calls if call["error"] is None and call["name"] in known]
        assert sorted(ran, key=str) == sorted(wanted, key=str)
        assert reply.text == told["text"]
        assert len(reply.outcomes) == len(calls)
        assert reply.done == (not calls and reply.finish != "pause")
