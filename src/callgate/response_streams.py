"""Pass an SDK's stream through to the host, and start the message's calls while it streams.

Beside `emission`, which runs the calls. Each chunk is handed on unchanged after it was read, so the host sees what it would see without the
engine. A stream that fails or is closed discards its message. `provider_responses` reads the chunks, and `response_calls` makes the reply.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from callgate._run_in_thread import BlockingPool, in_thread
from callgate.calls import RawCall, Scope
from callgate.emission import Emission, EndedCall
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.messages import ToolCall
from callgate.models.model_events import CallReopened, CallSealed, ModelEvent
from callgate.provider_responses import ProviderResponse, StreamReader, raw_call, same_call
from callgate.response_calls import ResponseReply, failed_reply, reply_to, scope_of

__all__ = ["WatchedStream"]

Chunk = TypeVar("Chunk")

_CLOSE_S = 2.0
"""Seconds that the host's stream has to close."""
_END = object()


class WatchedStream(Generic[Chunk]):
    """The chunks of an SDK's stream, unchanged, and the reply to their message. `Engine.watch` makes one.

    Iterate over it as over the SDK's stream, then `await reply()`. After `aclose`, which `async with` calls, nothing of an unfinished
    message is left behind. Use it in one task.

    Args:
        stream: The SDK's stream.
        reader: Reads the chunks.
        scope: Where and for whom the calls run.
        open_emission: Opens the run of a scope, and returns an emission for its next message.
        run: Runs all calls of a message that has ended.
    """

    def __init__(
        self,
        stream: AsyncIterable[Chunk] | Iterable[Chunk],
        reader: StreamReader,
        scope: Scope,
        *,
        open_emission: Callable[[Scope], Awaitable[Emission]],
        run: Callable[[Iterable[RawCall], Scope], Awaitable[list[EndedCall]]],
    ) -> None:
        self._source: _AsyncSource[Chunk] | _SyncSource[Chunk]
        self._source = _AsyncSource(stream) if isinstance(stream, AsyncIterable) else _SyncSource(stream)
        self._reader = reader
        self._scope = scope
        self._open_emission = open_emission
        self._run = run
        self._emission: Emission | None = None
        self._early = True
        """Whether calls may still start before the message is complete."""
        self._handed_in: dict[int, ToolCall] = {}
        """The calls that were handed in while the message streamed, by position."""
        self._read = False
        """Whether the stream was read to its end."""
        self._discarded = ""
        """Why the message was discarded; empty if it was not."""
        self._response: ProviderResponse | None = None
        """The whole message, when its stream has ended."""
        self._reply: ResponseReply | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._read or self._discarded:
            raise StopAsyncIteration
        try:
            chunk = await self._source.next()
            if chunk is not _END:
                for event in self._reader.feed(chunk):
                    await self._see(event)
        except BaseException as error:
            await self._discard(f"its stream failed ({type(error).__name__})")
            raise
        if chunk is _END:
            self._read = True
            raise StopAsyncIteration
        return cast("Chunk", chunk)

    async def reply(self) -> ResponseReply:
        """Read the rest of the stream, run the remaining calls, and return what to append.

        Returns the same reply again, unless calls were suspended: those that a human has answered since then run or are
        denied, and the reply is a new one.

        Raises:
            UsageError: No chunk was of a known provider, or the stream has failed or was closed before its end.
        """
        async for _ in self:
            pass
        if self._discarded:
            raise UsageError(f"The message was discarded: {self._discarded}. Request it again, and give the new stream to engine.watch.")
        if self._reply is None:
            try:
                self._reply = await self._ended(self._reader.close())
            except BaseException as error:
                await self._discard(f"its calls were not run to their end ({type(error).__name__})")
                raise
        elif self._reply.ended == "suspended" and self._response is not None:
            self._reply = await self._run_all(self._response)
        return self._reply

    async def aclose(self) -> None:
        """Close the stream, and discard its message unless it has a reply: calls that started early are ended. Idempotent."""
        if self._reply is None:
            await self._discard("its stream was closed before its calls were run")
        await self._source.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __del__(self) -> None:
        emission = getattr(self, "_emission", None)
        if emission is not None and not emission.over:
            emission.end("its stream was dropped by the host")

    async def _see(self, event: ModelEvent) -> None:
        """Hand in a call that is complete. Its tool starts now if it has no effect."""
        if type(event) is CallSealed and event.closed == "sealed" and self._early and event.position not in self._handed_in:
            emission = self._emission or await self._opened()
            if emission is not None:
                self._handed_in[event.position] = event.call
                emission.add(raw_call(event.call, event.closed, self._reader.origin), position=event.position)
        elif type(event) is CallReopened and self._handed_in.pop(event.position, None) is not None:
            self._early = self._early and self._emission is not None and not self._emission.reopen(event.position)

    async def _opened(self) -> Emission | None:
        """Open the run and the message. If the run cannot be opened, no call starts early, and each has an outcome that says why."""
        self._scope = scope_of(self._scope, self._reader.message_id)
        try:
            self._emission = await self._open_emission(self._scope)
        except (RunHeld, RecordFailed):
            self._early = False
        return self._emission

    async def _ended(self, response: ProviderResponse) -> ResponseReply:
        """Run the calls of the whole message that have not run, and return the reply."""
        self._response, failed = response, failed_reply(response)
        if failed is not None:
            await self._drop_calls(failed.reason)
            return failed
        calls = response.message.calls
        if self._emission is not None and not (self._early and self._as_handed_in(calls)):
            await self._drop_calls("a call was changed after its end")
        if not calls:
            return reply_to(response, [])
        if self._emission is None:
            return await self._run_all(response)
        for place, raw in enumerate(response.calls):
            if place not in self._handed_in:
                self._emission.add(raw, position=place)
        return reply_to(response, await self._emission.ended())

    async def _run_all(self, response: ProviderResponse) -> ResponseReply:
        return reply_to(response, await self._run(response.calls, scope_of(self._scope, response.message_id)))

    def _as_handed_in(self, calls: tuple[ToolCall, ...]) -> bool:
        """Return whether the message has the calls that were handed in, unchanged."""
        return all(place < len(calls) and same_call(before, calls[place]) for place, before in self._handed_in.items())

    async def _drop_calls(self, reason: str) -> None:
        emission, self._emission = self._emission, None
        if emission is not None:
            await emission.discard(reason)

    async def _discard(self, reason: str) -> None:
        if not self._discarded:
            self._discarded = reason
            await self._drop_calls(reason)


class _AsyncSource(Generic[Chunk]):
    """The chunks of an asynchronous stream."""

    def __init__(self, stream: AsyncIterable[Chunk]) -> None:
        self._stream = stream
        self._iterator: AsyncIterator[Chunk] | None = None

    async def next(self) -> Chunk | object:
        if self._iterator is None:
            self._iterator = self._stream.__aiter__()
        try:
            return await self._iterator.__anext__()
        except StopAsyncIteration:
            return _END

    async def close(self) -> None:
        for stream in (self._iterator, self._stream):
            close: Any = getattr(stream, "aclose", None) or getattr(stream, "close", None)
            if close is not None:
                with suppress(Exception):  # the message has ended, and errors of its connection are of no interest any more
                    async with asyncio.timeout(_CLOSE_S):
                        waiting = close()
                        if inspect.isawaitable(waiting):
                            await waiting


class _SyncSource(Generic[Chunk]):
    """The chunks of a synchronous stream, read in a thread."""

    def __init__(self, stream: Iterable[Chunk]) -> None:
        self._stream = stream
        self._iterator: Iterator[Chunk] | None = None
        self._thread = BlockingPool("callgate stream", 1)

    async def next(self) -> Chunk | object:
        if self._iterator is None:
            self._iterator = iter(self._stream)
        return await self._thread.run(partial(next, self._iterator, _END))

    async def close(self) -> None:
        """Close the stream in another thread than the one that may still wait for a chunk."""
        for stream in (self._iterator, self._stream):
            close = getattr(stream, "close", None)
            if close is not None:
                with suppress(Exception):
                    async with asyncio.timeout(_CLOSE_S):
                        await in_thread(close)
