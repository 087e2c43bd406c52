"""The near side of one attempt: send it, receive its progress, end it in time, and return its outcome.

Only this module decides what a lost connection means. If no message was sent, the attempt was not started and may be
sent again. If a message was sent and no answer arrived, the attempt counts as crashed, because it may have taken
effect. Must not know how messages are transported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from callgate._abort_signals import AbortSignal, settled
from callgate._engine_limits import Limits
from callgate._runners.exception_results import (
    execution_not_begun,
    execution_not_started,
    execution_of_exception,
    execution_overdue,
    message_of,
)
from callgate._runners.output_limits import PARTIAL_CHARS, OutputTail
from callgate._runners.process.import_target import process_target
from callgate._runners.process.serialization import call_message
from callgate.protocols import Execution, RunRequest
from callgate.remote.messages import Ended, Late, Order, OutputPiece, Start, Stop
from callgate.tools import Tool

__all__ = ["Attempt", "Reach", "Send", "target_of"]

Send = Callable[[Order], None]
"""Sends a message without waiting. Raises OSError only if no part of the message was sent."""
Reach = Callable[[], Awaitable[Send]]
"""Connects, or uses an open connection, and returns its `Send`. Raises OSError if there is no connection. Cancelled
at the attempt's deadline or kill.
"""

_ANSWER_S = 0.6


def target_of(tool: Tool) -> str:
    """Return the name by which the far side finds `tool`, as `module:qualname`.

    Raises:
        UsageError: The tool cannot be found by name: a lambda, a closure, or a tool with state.
    """
    return process_target(tool)


class Attempt:
    """One attempt that runs on another machine.

    Args:
        request: The request that the engine gave to the runner.
        id: Its id in all messages; unique on its connection.
        max_bytes: The maximum size of the result.
        answer_s: How long the far side may take, after the grace period, to report that the tool has ended. The
            grace period and this time must not exceed one second together.
        on_late: Called with the tool's answer if it arrives after the end of the attempt.
    """

    def __init__(
        self,
        request: RunRequest,
        id: str,
        *,
        max_bytes: int = Limits().result_bytes,
        answer_s: float = _ANSWER_S,
        on_late: Callable[[Execution], None] | None = None,
    ) -> None:
        self.id = id
        self.over = False
        """Whether the outcome is decided; later messages are late."""
        self.abandoned = False
        """Whether the far side has not reported that the tool has ended, so that it may still run."""
        self._request = request
        self._max_bytes = max_bytes
        self._answer_s = answer_s
        self._on_late = on_late
        self._answer: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._told = False
        """Whether the far side has sent `Ended`, the last message of the attempt."""
        self._heard_late = False
        self._seq = 0
        self._tail = OutputTail(PARTIAL_CHARS)

    # Incoming messages

    def heard(self, message: OutputPiece | Late | Ended) -> None:
        """Process a message with this attempt's id.

        Raises:
            Malformed: The message has no valid execution. Close the connection.
        """
        match message:
            case OutputPiece():
                self._show(message)
            case Late():
                self._late(message.execution())
            case Ended():
                execution = message.execution()
                self._told = True
                if self.over and execution.status == "returned":
                    self._late(execution)
                self._settle(execution)

    def lost(self, why: str) -> None:
        """Process the loss of the connection."""
        error = f"the connection was lost: {why.rstrip('.')}"
        self._settle(Execution(status="crashed", error_type="ConnectionLost", error=error, retryable=True, partial=self._tail.text()))

    def closed(self) -> None:
        """End the attempt because the engine is being closed."""
        self._settle(Execution(status="killed", error="the engine was closed", partial=self._tail.text()))

    def _settle(self, execution: Execution) -> None:
        if not self._answer.done():
            self._answer.set_result(execution)

    def _show(self, piece: OutputPiece) -> None:
        missing = piece.seq - self._seq - 1
        if missing < 0:
            return
        self._seq = piece.seq
        if missing:
            self._pass_on(f"\n[... {missing} pieces left out ...]\n", piece.stream)
        self._pass_on(piece.text, piece.stream)

    def _pass_on(self, text: str, stream: str) -> None:
        self._tail.add(text)
        if not self.over and text:
            self._request.context.progress(text, stream=stream)

    def _late(self, execution: Execution) -> None:
        """Pass on a late answer, once, so that a far side that repeats it cannot fill the journal."""
        if self._on_late is not None and not self._heard_late:
            self._heard_late = True
            self._on_late(execution)

    # Running

    async def run(self, reach: Reach) -> Execution:
        """Run the attempt to its end and return the execution for the runner.

        At the deadline, a kill or a cancellation, tell the far side to stop and wait for at most a second until the tool has ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._request.timeout_s
        try:
            send = await self._reach(reach)
            if isinstance(send, Execution):
                return send
            left_s = until - loop.time()
            start = self._start(left_s)
        except OSError as error:
            return _unreachable(error)
        except Exception as error:
            return execution_not_begun(error)
        try:
            send(start)
        except OSError as error:
            return _unreachable(error)
        except Exception as error:
            return execution_of_exception(error, self._request.not_done)
        return await self._follow(send, left_s)

    async def _reach(self, reach: Reach) -> Send | Execution:
        request = self._request
        if request.kill.reason is not None:
            return execution_not_started(request.kill.reason)
        reaching = asyncio.ensure_future(reach())
        reaching.add_done_callback(_retrieve_exception)
        try:
            in_time = await settled(reaching, request.kill, request.timeout_s)
        finally:
            reaching.cancel()
        if not in_time:
            why = execution_overdue(request, request.kill.reason is not None).error
            return execution_not_started(f"the far side was not reached: {why}")
        return execution_not_started("the engine is closed") if reaching.cancelled() else reaching.result()

    def _start(self, timeout_s: float) -> Start:
        request = self._request
        call = call_message(request, target_of(request.approved.call.tool.tool), max_bytes=self._max_bytes)
        return Start(id=self.id, call=call, timeout_s=max(0.0, timeout_s), grace_s=request.grace_s)

    async def _follow(self, send: Send, left_s: float) -> Execution:
        kill = self._request.kill
        try:
            in_time = await settled(self._answer, kill, left_s)
            killed = kill.reason is not None
        except asyncio.CancelledError:
            if self._answer.done() and self._answer.result().status == "returned":
                self._late(self._answer.result())
            raise
        finally:
            self.over = True
            if not self._answer.done():
                await self._stop(send)
        return self._answer.result() if in_time else self._stop_execution(killed)

    async def _stop(self, send: Send) -> None:
        """Stop the tool and wait until the far side reports that it has ended."""
        with suppress(OSError):
            send(Stop(id=self.id, reason=self._request.kill.reason or "its deadline has passed"))
        try:
            await settled(self._answer, AbortSignal(), self._request.grace_s + self._answer_s)
        finally:
            self.abandoned = not self._told or self._answer.result().abandoned

    def _stop_execution(self, killed: bool) -> Execution:
        ended = execution_overdue(self._request, killed, partial=self._tail.text(), abandoned=self.abandoned)
        if self._told and self._answer.result().status == "not_started":
            return execution_not_started(f"the far side did not start it: {ended.error}")
        return ended


def _unreachable(error: OSError) -> Execution:
    return execution_not_started(f"the far side was not reached: {message_of(error).rstrip('.')}")


def _retrieve_exception(reaching: asyncio.Future[Send]) -> None:
    """Read the future's exception, so that asyncio does not report it as never retrieved."""
    if not reaching.cancelled():
        reaching.exception()
