"""Pass an SDK's stream through to the host, and start the message's calls while it streams.

Beside `emission`, which runs the calls. Each chunk is handed on unchanged after it was read, so the host sees what it would see without the
engine. A stream that fails or is closed discards its message. `provider_responses` reads the chunks, and `response_calls` makes the reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Generic, Never, Self, TypeVar, cast

from callgate._abort_signals import is_own_failure
from callgate._sdk_streams import END, ChunkSource
from callgate.calls import RawCall, Scope
from callgate.emission import Emission, EndedCall
from callgate.errors import RecordFailed, RunHeld, UsageError
from callgate.messages import ToolCall
from callgate.models.model_events import CallReopened, CallSealed, ModelEvent
from callgate.provider_responses import ProviderResponse, StreamReader, raw_call, same_call
from callgate.response_calls import ResponseReply, failed_reply, reply_to, scope_of

__all__ = ["WatchedStream"]

Chunk = TypeVar("Chunk")

log = logging.getLogger("callgate")
_CLOSED = "its stream was closed before its calls were run"
_ASYNC_ONLY = (
    "A watched stream is used as 'async with engine.watch(stream, scope) as chunks:', in async code. In synchronous code, iterate over the"
    " SDK's stream, keep its chunks, and give the list of all of them to engine.respond_sync."
)
_NONE = object()


class WatchedStream(Generic[Chunk]):
    """The chunks of an SDK's stream, unchanged, and the reply to their message. `Engine.watch` makes one.

    Iterate over it as over the SDK's stream, then `await reply()`. After `aclose`, which `async with` calls, no call of an unfinished
    message runs on. A wait for the next chunk can be cancelled, for example by a timeout: the next iteration then waits for the same
    chunk. Where several tasks read, each chunk goes to one of them.

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
        self._source = ChunkSource(stream)
        self._reader = reader
        self._calls = _EarlyCalls(reader, scope, open_emission)
        self._run = run
        self._chunk: Chunk | object = _NONE
        """A chunk that was read and not handed on yet, because its calls are still being handed in."""
        self._events: deque[ModelEvent] = deque()
        """The events of this chunk that were not handled yet."""
        self._reading = asyncio.Lock()
        """Held by the task that reads the next chunk."""
        self._read = False
        """Whether the stream was read to its end."""
        self._discarded = ""
        """Why the message was discarded; empty if it was not."""
        self._response: ProviderResponse | None = None
        """The whole message, when its stream has ended and its calls may run."""
        self._reply: ResponseReply | None = None
        self._replying: asyncio.Future[None] | None = None
        """Resolved when the calls of the reply that is being made have ended; None if none is being made."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        async with self._reading:  # two tasks would feed one chunk twice: a piece of an amount, for example
            return await self._next_chunk()

    async def _next_chunk(self) -> Chunk:
        if self._read or self._discarded:
            raise StopAsyncIteration
        try:
            await self._read_chunk()
        except (asyncio.CancelledError, GeneratorExit) as error:
            if self._source.cancelled:
                if self._was_closed_beside(error):
                    raise StopAsyncIteration from None
                await self._discard("its stream was cancelled")
            raise
        except BaseException as error:
            await self._discard(f"its stream failed ({type(error).__name__})")
            raise
        chunk, self._chunk = self._chunk, _NONE
        if chunk is END:
            self._read = True
            raise StopAsyncIteration
        return cast("Chunk", chunk)

    def _was_closed_beside(self, error: BaseException) -> bool:
        """Return whether another task has closed the stream, and this task is not cancelled."""
        return bool(self._discarded) and is_own_failure(error)

    async def _read_chunk(self) -> None:
        """Read the next chunk, and hand in the calls that it completes. Goes on where a cancelled call of it stopped."""
        if self._chunk is _NONE:
            self._chunk = await self._source.next()
            if self._chunk is not END:
                self._events.extend(self._reader.feed(self._chunk))
        while self._events:
            await self._calls.see(self._events[0])
            self._events.popleft()

    async def reply(self) -> ResponseReply:
        """Read the rest of the stream, run the remaining calls, and return what to append.

        Returns the same reply again, also after `aclose`, and to each task that asks. Unless calls were suspended:
        those that a human has answered since then run or are denied, and the reply is a new one. The same holds for a reply that is `held`,
        and after a `reply()` that was cancelled while it ran the calls: those with an effect that had begun are `unknown`.

        Raises:
            UsageError: No chunk was of a known provider, or the stream has failed or was closed before its end.
        """
        async for _ in self:
            pass
        while self._replying is not None:
            await asyncio.shield(self._replying)
            if self._reply is not None:
                return self._reply
        if self._discarded == _CLOSED and self._read:
            raise UsageError("Its stream was closed before its calls were run. Await reply() inside of `async with engine.watch(...)`.")
        if self._discarded:
            raise UsageError(f"The message was discarded: {self._discarded}. Request it again, and give the new stream to engine.watch.")
        if self._reply is None or self._reply.ended in ("suspended", "held"):
            replying = self._replying = asyncio.get_running_loop().create_future()
            try:
                self._reply = await self._new_reply()
            finally:
                self._replying = None
                replying.set_result(None)
        return self._reply

    async def _new_reply(self) -> ResponseReply:
        if self._response is not None:
            return await self._run_all(self._response)
        try:
            return await self._finish(self._reader.close())
        except BaseException as error:
            reason = f"its calls were not run to their end ({type(error).__name__})"
            await (self._discard(reason) if self._response is None else self._calls.drop(reason))
            raise

    async def aclose(self) -> None:
        """Close the stream, and discard its message unless `reply()` runs or has run its calls: calls that started early are ended.
        Idempotent.
        """
        if self._reply is None and self._replying is None and self._response is None:
            if self._read and not self._discarded and self._calls.handed_in:
                log.warning(
                    "A stream with %d tool calls was read to its end and closed without reply(), so its calls were discarded. Await"
                    " reply() inside of `async with engine.watch(...)`, and append what it returns.",
                    len(self._calls.handed_in),
                )
            await self._discard(_CLOSED)
        await self._source.close()

    def __iter__(self) -> Never:
        """Refuse `for`, because reading waits."""
        raise UsageError(_ASYNC_ONLY)

    def __enter__(self) -> Never:
        """Refuse `with`, because closing waits."""
        raise UsageError(_ASYNC_ONLY)

    def __exit__(self, *exception: object) -> None:
        """Do nothing: `with` is refused."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __del__(self) -> None:
        for part in (getattr(self, "_calls", None), getattr(self, "_source", None)):
            if part is not None:
                part.abandon()

    async def _finish(self, response: ProviderResponse) -> ResponseReply:
        """Run the calls of the whole message that have not run, and return the reply."""
        failed = failed_reply(response)
        if failed is not None:
            await self._calls.drop(failed.reason)
            return failed
        self._response = response
        ends = await self._calls.run_to_end(response)
        return await self._run_all(response) if ends is None else reply_to(response, ends)

    async def _run_all(self, response: ProviderResponse) -> ResponseReply:
        return reply_to(response, await self._run(response.calls, scope_of(self._calls.scope, response.message_id)))

    async def _discard(self, reason: str) -> None:
        if not self._discarded:
            self._discarded = reason
            await self._calls.drop(reason)


class _EarlyCalls:
    """The calls of a message that are handed in while it streams.

    Args:
        reader: Reads the chunks of the message.
        scope: Where and for whom the calls run.
        open_emission: Opens the run of a scope, and returns an emission for its next message.
    """

    def __init__(self, reader: StreamReader, scope: Scope, open_emission: Callable[[Scope], Awaitable[Emission]]) -> None:
        self.scope = scope
        self.handed_in: dict[int, ToolCall] = {}
        """The calls that were handed in, by position."""
        self._reader = reader
        self._open_emission = open_emission
        self._emission: Emission | None = None
        self._message_id = ""
        """The id of the message when its first call was handed in."""
        self._may_start = True
        """Whether calls may still start before the message is complete."""
        self._is_dropped = False

    async def see(self, event: ModelEvent) -> None:
        """Hand in a call that is complete. Its tool starts now if it has no effect."""
        if type(event) is CallSealed and event.closed == "sealed" and self._may_start and event.position not in self.handed_in:
            emission = self._emission or await self._open()
            if emission is not None:
                self.handed_in[event.position] = event.call
                emission.add(raw_call(event.call, event.closed, self._reader.origin), position=event.position)
        elif type(event) is CallReopened and self.handed_in.pop(event.position, None) is not None:
            self._may_start = self._may_start and self._emission is not None and not self._emission.reopen(event.position)

    async def run_to_end(self, response: ProviderResponse) -> list[EndedCall] | None:
        """Run the remaining calls of the whole message. Return how each call ended; None if all of them have to be run anew."""
        calls = response.message.calls
        if self._emission is not None and not (self._may_start and self._are_unchanged(calls)):
            await self.drop("a call was changed after its end")
        if self._emission is not None and response.message_id != self._message_id:
            await self.drop("the id of its message was changed or came late")
        if not calls:
            return []
        if self._emission is None:
            return None
        for position, raw in enumerate(response.calls):
            if position not in self.handed_in:
                self._emission.add(raw, position=position)
        return await self._emission.seal_with_ends()

    async def drop(self, reason: str) -> None:
        """End the calls, because their message failed, was discarded or was changed."""
        self._is_dropped = True
        emission, self._emission = self._emission, None
        if emission is not None:
            await emission.discard(reason)

    def abandon(self) -> None:
        """End the calls without waiting for them."""
        if self._emission is not None and not self._emission.is_over:
            self._emission.end("its stream was dropped by the host")

    async def _open(self) -> Emission | None:
        """Open the run and the message. If the run cannot be opened, no call starts early, and each has an outcome that says why."""
        self._message_id = self._reader.message_id
        try:
            opened = await self._open_emission(scope_of(self.scope, self._message_id))
        except (RunHeld, RecordFailed):
            self._may_start = False
        else:
            self._emission = None if self._is_dropped else opened
        return self._emission

    def _are_unchanged(self, calls: tuple[ToolCall, ...]) -> bool:
        """Return whether the message has the calls that were handed in, unchanged."""
        return all(place < len(calls) and same_call(before, calls[place]) for place, before in self.handed_in.items())
