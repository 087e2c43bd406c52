"""Models for tests: one that plays a script, one that decodes recorded answers.

Both keep every request. They wait only where the script says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import takewhile
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal, settled
from callgate._clock import Clock, SystemClock
from callgate._option_checks import by_name
from callgate.errors import UsageError
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest
from callgate.testing.model_script import Beat, Item, Pause, Raise, Step, Turn, items_of, to_steps

__all__ = ["Recording", "ReplayModel", "ScriptedModel"]

_DAY_S = 86_400.0
_NO_EVENT = (Pause, Beat, Raise)


class ScriptedModel:
    """A model that answers with a script's turns, one per pass.

    Args:
        turns: The turns, in order; see `Turn`. A pass after the last turn raises `UsageError`.
        name: The model's name.
        native_tools: Whether the model has native calls. Otherwise calls are read from its text.
        clock: The clock for pauses in seconds.
    """

    provider = "scripted"

    @by_name
    def __init__(
        self, turns: Sequence[Turn[ModelRequest]], *, name: str = "scripted", native_tools: bool = True, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.native_tools = native_tools
        self.requests: list[ModelRequest] = []
        """The requests, one per pass, each with a copy of its messages."""
        self._turns = tuple(turns)
        self._clock = clock or SystemClock()
        self._ids = 0
        self._ready: dict[int, tuple[tuple[Item, ...], list[Step]]] = {}
        self._ready = {number: self._play_turn(turn) for number, turn in enumerate(turns) if not callable(turn)}

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Play the next turn. A pass that is aborted during a pause ends with `Finished` and the reason `cut`."""
        number = len(self.requests)
        if number >= len(self._turns):
            raise UsageError(
                f"The script has {len(self._turns)} turns, and this is pass {number + 1}. Add a turn, or see why the loop continued."
            )
        request = _copy_request(request)
        self.requests.append(request)
        items, steps = self._ready.get(number) or self._play_turn(self._turns[number], request)
        beat = context.on_progress
        for at, step in enumerate(steps):
            if beat is not None:
                beat()
            if not isinstance(step, _NO_EVENT):
                yield step
            elif isinstance(step, Raise):
                raise step.error
            elif isinstance(step, Pause) and await self._pause_was_aborted(step, context.abort_signal):
                for rest in to_steps(takewhile(lambda item: item is not step, items), whole=False)[at:]:  # noqa: B023
                    if not isinstance(rest, _NO_EVENT):
                        yield rest
                return

    def _play_turn(self, turn: Turn[ModelRequest], request: ModelRequest | None = None) -> tuple[tuple[Item, ...], list[Step]]:
        items = items_of(turn, cast(ModelRequest, request), self._new_id)
        return items, to_steps(items)

    async def _pause_was_aborted(self, pause: Pause, signal: AbortSignal | None) -> bool:
        """Wait; return whether the pass ended before the pause."""
        waits = pause.until.wait() if isinstance(pause.until, asyncio.Event) else self._clock.sleep(pause.until)
        pending = asyncio.ensure_future(waits)
        try:
            return not await settled(pending, signal or AbortSignal(), _DAY_S)
        finally:
            pending.cancel()

    def _new_id(self) -> str:
        self._ids += 1
        return f"call_{self._ids}"


def _copy_request(request: ModelRequest) -> ModelRequest:
    """Return the request with a copy of its messages, because an agent passes a view of its growing history."""
    return replace(request, messages=list(request.messages))


class Recording(Struct, frozen=True, kw_only=True):
    """A recorded answer of a provider."""

    body: bytes
    api: str
    content_type: str = ""
    streamed: bool = True


class ReplayModel:
    """A model that decodes recorded answers with their API's codec, one per pass.

    Args:
        recordings: The answers, in order.
        cut_bytes: The number of bytes that arrive at a time; 0 for the whole body at once.
        name: The model's name.
    """

    provider = "replay"
    native_tools = True

    def __init__(self, recordings: Sequence[Recording], *, cut_bytes: int = 0, name: str = "replay") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._recordings = tuple(recordings)
        self._cut = cut_bytes

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        """Decode the next recording."""
        number = len(self.requests)
        if number >= len(self._recordings):
            raise UsageError(f"There are {len(self._recordings)} recordings, and this is pass {number + 1}.")
        request = _copy_request(request)
        self.requests.append(request)
        answer = self._recordings[number]
        api = codec(answer.api)
        names = api.wire_names(tool.name for tool in request.tools)
        decoder = api.decoder(content_type=answer.content_type, streamed=answer.streamed, names=names)
        size = self._cut or len(answer.body) or 1
        for at in range(0, len(answer.body), size):
            context.beat()
            for event in decoder.feed(answer.body[at : at + size]):
                yield event
        for event in decoder.close():
            yield event
