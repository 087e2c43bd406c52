"""The near side of one attempt: sent, followed, ended in time, and told for what it was, whatever becomes of the connection.

What a lost connection means is decided here and nowhere else. Nothing sent: not started, so that it may be sent again. Anything sent and
no answer: crashed, so that what may have happened is never taken for what did not. Must not know how messages travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from callgate._abort_signals import AbortSignal, settled
from callgate._limits import Limits
from callgate._runners.failures import describe, failed, not_begun, not_started, overdue
from callgate._runners.output import PARTIAL_CHARS, OutputTail
from callgate._runners.process.import_target import process_target
from callgate._runners.process.serialization import crossing
from callgate.protocols import Execution, RunRequest
from callgate.remote.messages import Ended, Late, Order, OutputPiece, Start, Stop
from callgate.tools import Tool

__all__ = ["Attempt", "Reach", "Send", "target_of"]

Send = Callable[[Order], None]
"""Hands a message over without waiting. Raises OSError where nothing of it can have left."""
Reach = Callable[[], Awaitable[Send]]
"""Connects, or finds the connection there is. Raises OSError where there is none to be had; the attempt's deadline and kill cancel it."""

_ANSWER_S = 0.6


def target_of(tool: Tool) -> str:
    """Where the far side finds `tool`, as `module:qualname`.

    Raises:
        UsageError: It cannot be found by name: a lambda, a closure, a tool with state of its own. Says what to do about it.
    """
    return process_target(tool)


class Attempt:
    """One attempt that runs elsewhere.

    Args:
        request: What the engine handed to the runner.
        id: Names it in all messages; unique on its connection.
        max_bytes: The largest result that may come back.
        answer_s: How long the far side may take, after the grace, to say that the tool is gone. Grace and this are one second at most.
        on_late: Takes what the tool answered after the attempt had ended.
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
        """Its outcome is settled; what comes now comes late."""
        self.abandoned = False
        """The far side did not say that the tool is gone: it may still run there."""
        self._request = request
        self._max_bytes = max_bytes
        self._answer_s = answer_s
        self._on_late = on_late
        self._answer: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()
        self._told = False
        """The far side has had the last word."""
        self._heard_late = False
        self._seq = 0
        self._tail = OutputTail(PARTIAL_CHARS)

    # What came in

    def heard(self, message: OutputPiece | Late | Ended) -> None:
        """Take a message with this attempt's id.

        Raises:
            Malformed: There is no execution in it. End the connection.
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
        """The connection is gone, and with it what the far side would have said."""
        error = f"the connection was lost: {why.rstrip('.')}"
        self._settle(Execution(status="crashed", error_type="ConnectionLost", error=error, retryable=True, partial=self._tail.text()))

    def closed(self) -> None:
        """The engine closes."""
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
        """Hand on what came after the end, once: an attempt has one answer, and a far side that repeats it must not fill the record."""
        if self._on_late is not None and not self._heard_late:
            self._heard_late = True
            self._on_late(execution)

    # What goes out

    async def run(self, reach: Reach) -> Execution:
        """Run the attempt to its end; what a runner's `run` returns.

        At the deadline, the kill or the cancel the far side is told to stop, and waited for until the tool is gone, less than a second.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._request.timeout_s
        try:
            send = await self._reached(reach)
            if isinstance(send, Execution):
                return send
            left_s = until - loop.time()
            start = self._start(left_s)
        except OSError as error:
            return _not_reached(error)
        except Exception as error:
            return not_begun(error)
        try:
            send(start)
        except OSError as error:
            return _not_reached(error)
        except Exception as error:
            return failed(error, self._request.not_done)
        return await self._follow(send, left_s)

    async def _reached(self, reach: Reach) -> Send | Execution:
        request = self._request
        if request.kill.reason is not None:
            return not_started(request.kill.reason)
        reaching = asyncio.ensure_future(reach())
        reaching.add_done_callback(_seen)
        try:
            in_time = await settled(reaching, request.kill, request.timeout_s)
        finally:
            reaching.cancel()
        if not in_time:
            return not_started(f"the far side was not reached: {overdue(request, request.kill.reason is not None).error}")
        return not_started("the engine is closed") if reaching.cancelled() else reaching.result()

    def _start(self, timeout_s: float) -> Start:
        request = self._request
        call = crossing(request, target_of(request.approved.call.tool.tool), max_bytes=self._max_bytes)
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
        return self._answer.result() if in_time else self._stopped(killed)

    async def _stop(self, send: Send) -> None:
        """Have the tool stopped, and wait until the far side says that it is gone."""
        with suppress(OSError):
            send(Stop(id=self.id, reason=self._request.kill.reason or "its deadline has passed"))
        try:
            await settled(self._answer, AbortSignal(), self._request.grace_s + self._answer_s)
        finally:
            self.abandoned = not self._told or self._answer.result().abandoned

    def _stopped(self, killed: bool) -> Execution:
        ended = overdue(self._request, killed, partial=self._tail.text(), abandoned=self.abandoned)
        if self._told and self._answer.result().status == "not_started":
            return not_started(f"the far side had not begun it: {ended.error}")
        return ended


def _not_reached(error: OSError) -> Execution:
    return not_started(f"the far side was not reached: {describe(error)[1].rstrip('.')}")


def _seen(reaching: asyncio.Future[Send]) -> None:
    """Nobody may wait for it any more; asyncio would complain that its error was never looked at."""
    if not reaching.cancelled():
        reaching.exception()
