"""Run tools in worker processes, which can always be stopped.

An attempt takes a worker, sends the call, and passes on its output; at the deadline, the kill or a cancellation it waits until the worker's
whole process tree has ended. Must not know how frames are sent or how processes are found.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import signal
import time
from collections.abc import Callable
from contextvars import Context
from functools import partial
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import Clock
from callgate._deadlines import Deadlines
from callgate._engine_limits import Limits
from callgate._run_in_thread import in_thread
from callgate._runners.abandoned_code import OnLate
from callgate._runners.exception_results import execution_not_begun, execution_not_started
from callgate._runners.interruptible_wait import BoundedWait
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate._runners.output_limits import PARTIAL_CHARS, OutputTail
from callgate._runners.process.early_imports import EarlyImports
from callgate._runners.process.import_target import process_target
from callgate._runners.process.platform_guarantees import require_support
from callgate._runners.process.resource_limits import ProcessLimits, withheld_variable
from callgate._runners.process.serialization import call_message
from callgate._runners.process.supervisor.frames import NO_WORKER
from callgate._runners.process.worker_connection import WorkerConnection
from callgate._runners.process.worker_pool import WorkerPool
from callgate._runners.process.worker_protocol import LOST_CHANNEL, CallMessage, WorkerExit, decode_piece, encode, read_execution
from callgate.protocols import Claim, Execution, RunRequest
from callgate.tools.tool_declaration import Tool

__all__ = ["AttemptRequest", "ProcessRunner"]

log = logging.getLogger("callgate")
_STREAMS = {b"1": "stdout", b"2": "stderr"}


class AttemptRequest(Struct, frozen=True, kw_only=True, eq=False):
    """One attempt as plain data, with its limits and callbacks. Does not need the tool in this process."""

    call: CallMessage
    timeout_s: float
    grace_s: float
    kill: AbortSignal
    report: Callable[[str, str], None]
    """Called with progress and output: the text and its stream."""
    on_late: Callable[[Execution], None] | None = None
    """Called with a result that arrives after the attempt has ended."""
    claim: Claim | None = None
    """Awaited once a worker is available, before the call is sent to it."""


class ProcessRunner:
    """Runs a tool in a reused worker process.

    An attempt may wait for a free worker, so the journal records separately when a worker claims it.

    Raises:
        UsageError: The system is Windows, where a process tree cannot be ended.
    """

    claims = True

    def __init__(self, limits: Limits, clock: Clock, process_limits: ProcessLimits | None = None, on_late: OnLate | None = None) -> None:
        require_support()
        self._max_bytes = limits.result_bytes
        self._limits = process_limits or ProcessLimits()
        self._pool = WorkerPool(self._limits, clock)
        self._imports = EarlyImports(self._pool)
        self._targets: WeakKeyDictionary[Tool, str] = WeakKeyDictionary()
        self._on_late = on_late
        self._deadlines = Deadlines()
        self.late = 0
        """The number of results that arrived after their call had ended."""
        self.abandoned = 0
        """The number of calls some of whose processes could not be ended."""

    async def run(self, request: RunRequest) -> Execution:
        try:
            work = self._work(request)
        except Exception as error:
            return execution_not_begun(error)  # another process cannot import the tool
        return await self.run_attempt(work)

    def _work(self, request: RunRequest) -> AttemptRequest:
        tool = request.approved.call.tool.tool
        target = self._targets.get(tool)
        if target is None:
            target = self._targets[tool] = process_target(tool)
        return AttemptRequest(
            call=call_message(request, target, max_bytes=self._max_bytes, cpu_s=self._limits.cpu_s),
            timeout_s=request.timeout_s,
            grace_s=request.grace_s,
            kill=request.kill,
            report=request.context.report,
            on_late=None if self._on_late is None else partial(self._on_late, request.context.uid),
            claim=request.claim,
        )

    async def run_attempt(self, work: AttemptRequest) -> Execution:
        """Run an attempt that was created elsewhere."""
        if work.kill.reason is not None or self._pool.closed:
            return execution_not_started(work.kill.reason or "the engine is closed")
        try:
            body = encode(work.call)
        except Exception as error:
            return execution_not_begun(error)  # the scope contains text that is not valid Unicode
        since, is_importing = time.monotonic(), self._imports.runs(work.call.target)
        try:
            connection: WorkerConnection | OSError | None = None if is_importing else self._pool.take()
        except OSError as error:
            connection = error
        if connection is None:
            waiting: BoundedWait[WorkerConnection | OSError] = BoundedWait(work, self._deadlines)
            connection = await self._next_free(waiting)
            if connection is None:
                why = f"all {self._limits.workers} worker processes were busy"
                if is_importing:
                    why = f"a worker process was still importing {work.call.target.rpartition(':')[0]} for it"
                return execution_not_started(f"{why}: {waiting.execution_overdue().error}")
            work = replace(work, timeout_s=max(0.0, work.timeout_s - (time.monotonic() - since)))
        if isinstance(connection, OSError):
            return execution_not_started(f"no worker process could be started for it: {connection}")
        return await self._run_in(connection, work, body)

    async def _next_free(self, waiting: BoundedWait[WorkerConnection | OSError]) -> WorkerConnection | OSError | None:
        leave = self._pool.wait(waiting.finish)
        try:
            return await waiting.get()
        except BaseException:
            if isinstance(waiting.value, WorkerConnection):
                self._pool.give_back(waiting.value)
            raise
        finally:
            leave()

    async def _run_in(self, connection: WorkerConnection, work: AttemptRequest, body: bytes) -> Execution:
        attempt = _WorkerAttempt(self._pool, connection, work, self._deadlines, self._report_late)
        connection.listener = attempt
        try:
            await attempt.claim()
        except BaseException:
            if attempt.open:
                attempt.open = False
                self._pool.give_back(connection)
            raise
        connection.send(b"C", body)
        try:
            execution = await attempt.wait.get()
        except BaseException:
            if attempt.wait.value is not None:
                self._report_late(work, attempt.wait.value)
            raise
        finally:
            if attempt.open:  # the deadline, the kill or a cancellation: none of the call's processes may survive it
                self._pool.end(connection, work.grace_s)
                await asyncio.wait([connection.gone])
                self.abandoned += connection.survivors > 0
        if execution is None and attempt.is_late_import:
            self._imports.begin(work.call.target, work.timeout_s)
        return attempt.execution_of_stopped() if execution is None else self._with_hint(work, execution)

    def _with_hint(self, work: AttemptRequest, execution: Execution) -> Execution:
        """Tell the operator, and the tool's author in the record, if a tool has failed for want of an environment variable."""
        name = withheld_variable((execution.traceback, execution.error), self._limits) if execution.status == "raised" else ""
        if not name:
            return execution
        hint = (
            f"Worker processes do not get the environment variable {name}. Pass it on with"
            f" Engine(process_limits=ProcessLimits(environment=({name!r},)))."
        )
        log.warning("The tool %s failed: it did not find the key '%s'. %s", work.call.tool, name, hint)
        return replace(execution, traceback=f"{execution.traceback}\n{hint}")

    def _report_late(self, work: AttemptRequest, execution: Execution) -> None:
        self.late += 1
        if work.on_late is not None:
            work.on_late(execution)

    async def close(self) -> None:
        self._deadlines.close()
        await self._pool.close()


class _WorkerAttempt:
    """One call in one worker; receives the worker's frames.

    Args:
        on_late: Called with what a tool returns after the attempt has ended.
    """

    def __init__(
        self,
        pool: WorkerPool,
        connection: WorkerConnection,
        work: AttemptRequest,
        deadlines: Deadlines,
        on_late: Callable[[AttemptRequest, Execution], None],
    ) -> None:
        self.wait: BoundedWait[Execution] = BoundedWait(work, deadlines)
        self.open = True
        """Whether the worker has not yet reported the end of the call."""
        self._pool = pool
        self._connection = connection
        self._work = work
        self._on_late = on_late
        self._begun = False
        self._decoding: asyncio.Task[None] | None = None
        """Decodes a large result."""
        self._tail = OutputTail(PARTIAL_CHARS)
        self._decoders = {digit: codecs.getincrementaldecoder("utf-8")("replace") for digit in _STREAMS}

    async def claim(self) -> None:
        """Record that this worker gets the call now."""
        if self._work.claim is not None:
            await self._work.claim(self._connection.name)

    def receive_frame(self, kind: bytes, body: bytes) -> None:
        try:
            self._take(kind, body)
        except msgspec.DecodeError:
            self._pool.end(self._connection)  # not written by the worker: its tool has written to the channel

    def _take(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"B":
                self._begun = True
            case b"P":
                piece = decode_piece(body)
                self._show(piece.text, piece.stream)
            case b"O":
                self._show(self._decoders[body[:1]].decode(body[1:]), _STREAMS[body[:1]])
            case b"S":
                self._show(f"\n[... {int(body[1:])} bytes left out ...]\n", _STREAMS[body[:1]])
            case b"E" | b"F":
                self._end(body, clean=kind == b"E")

    def _show(self, text: str, stream: str) -> None:
        self._tail.add(text)
        if not self.wait.over and text:
            self._work.report(text, stream)

    def _end(self, body: bytes, *, clean: bool) -> None:
        if len(body) <= LARGE_BYTES:
            self._finish(read_execution(body), clean=clean)
            return
        self.open = False  # reported, though not yet decoded: if the worker ends now, it has not crashed
        self._decoding = asyncio.get_running_loop().create_task(self._decode(body, clean=clean), context=Context())

    async def _decode(self, body: bytes, *, clean: bool) -> None:
        """Decode a large result off the event loop."""
        try:
            execution = await in_thread(partial(read_execution, body))
        except msgspec.DecodeError:
            self.open = True
            self._pool.end(self._connection)
            if self._connection.gone.done():
                self.handle_loss(self._connection.exit)
        else:
            self._finish(execution, clean=clean)

    def _finish(self, execution: Execution, *, clean: bool) -> None:
        self.open = False
        if execution.status == "raised" and not self._begun:
            log.error("The tool %s failed: %s", self._work.call.tool, execution.traceback or execution.error)
        if execution.status == "raised":
            execution = replace(execution, partial=self._tail.text())
        if not self.wait.finish(execution) and execution.status == "returned":
            self._on_late(self._work, execution)
        if clean:
            self._pool.give_back(self._connection)
        else:
            self._pool.end(self._connection)

    def handle_loss(self, exit: WorkerExit | None) -> None:
        if self.open:
            self.open = False
            self.wait.finish(self._crash_execution(exit))

    def _crash_execution(self, exit: WorkerExit | None) -> Execution:
        why, details = _explain(exit, has_worker=self._connection.has_worker)
        if self._pool.closed:
            return Execution(
                status="killed", error="the engine was closed", partial=self._tail.text(), not_started=self._certainly_not_started
            )
        if self._certainly_not_started:
            return replace(execution_not_started(f"the worker process did not come up: {why}"), partial=self._tail.text(), details=details)
        return Execution(status="crashed", error_type="ProcessCrashed", error=why, partial=self._tail.text(), details=details)

    @property
    def _certainly_not_started(self) -> bool:
        """Whether the tool certainly did not start: there was no worker, or all of its frames were read and none reported the start."""
        return not self._begun and (self._connection.exit is not None or not self._connection.has_worker)

    def execution_of_stopped(self) -> Execution:
        """Return how the call ended, after its deadline or a kill has ended the worker."""
        execution = self.wait.execution_overdue(partial=self._tail.text(), abandoned=self._connection.survivors > 0)
        if self.is_late_import:
            module, _, _ = self._work.call.target.rpartition(":")
            why = f"importing {module} in a worker process took longer than the timeout. It is imported now for the next call"
            return execution_not_started(why)
        if self._certainly_not_started:
            return execution_not_started(f"the worker process was not ready in time: {execution.error}")
        return execution

    @property
    def is_late_import(self) -> bool:
        """Whether the deadline has passed before the worker had imported the tool."""
        return self._certainly_not_started and not self.wait.killed


def _explain(exit: WorkerExit | None, *, has_worker: bool) -> tuple[str, dict[str, object]]:
    if exit is None and not has_worker:
        return "its supervisor could not start; see whether memory, processes or open files are at their limit", {}
    if exit is None:
        return "its supervisor was killed, and the tool's process with it", {"supervisor": "killed"}
    details: dict[str, object] = {"survivors": exit.survivors} if exit.survivors else {}
    if exit.code == NO_WORKER:
        return "the system could not start its process; see whether memory, processes or open files are at their limit", details
    if exit.closed_channel or exit.code == LOST_CHANNEL:
        return "the tool closed the channel to the engine and was ended", details | {"channel": "closed"}
    if exit.code >= 0:
        return f"the tool ended its process with exit code {exit.code}", details | {"exit_code": exit.code}
    name = _signal_name(-exit.code)
    return f"the tool's process was ended by {name}", details | {"signal": -exit.code, "signal_name": name}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
