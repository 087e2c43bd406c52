"""The worker process: receives one call at a time, runs the tool in its main thread, and sends back plain data.

Runs under a supervisor, which ends it. Must not know of the engine; it imports only what a tool needs.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import FrameType

from msgspec.structs import replace

from callgate._abort_signals import AbortController
from callgate._json import decode, type_name
from callgate._runners.exception_results import awaitable_note, clean, describe, execution_of_exception
from callgate._runners.output_limits import LiveText
from callgate._runners.process.import_target import load_target
from callgate._runners.process.supervisor.frames import frame, split
from callgate._runners.process.worker_cleanup import Baseline
from callgate._runners.process.worker_protocol import LOST_CHANNEL, CallMessage, ProgressMessage, decode_call, encode
from callgate._runners.return_values import UNREADABLE, read_result
from callgate.protocols import Execution
from callgate.tools.tool_context import ToolContext
from callgate.tools.tool_declaration import Tool

__all__ = ["main"]

_READ_BYTES = 262_144
_LEFTOVER_S = 0.2


class _Stopped(BaseException):
    """Raised in a sync tool when the call must end, so that its cleanup runs within the grace period."""


class _NoPolicies:
    """Replaces the policies, which exist only in the engine: every question to it raises, so it never allows anything."""

    def __init__(self, tool: str) -> None:
        self._why = f"{tool} runs in its own process, where no rules are known; run it inline or in a thread"

    def may_visit(self, path: str, size_bytes: int) -> bool:
        raise RuntimeError(self._why)

    async def refusal(self, changed: Mapping[str, object]) -> str:
        raise RuntimeError(self._why)


class _Channel:
    """The worker's end of the frame channel; blocking. Sends nothing in a process that the tool forked."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._unread = bytearray()
        self.writing = 0
        """The thread that is writing a frame."""

    @property
    def mine(self) -> bool:
        return os.getpid() == self._pid

    def read(self) -> tuple[bytes, bytes]:
        """Return the next frame; exit the process if the supervisor is gone."""
        while True:
            for received in split(self._unread):
                return received  # one call at a time: there is never a second frame after it
            data = os.read(self._fd, _READ_BYTES)
            if not data:
                os._exit(0)
            self._unread += data

    def write(self, kind: bytes, body: bytes = b"") -> None:
        if not self.mine:
            return
        with self._lock:
            self.writing = threading.get_ident()
            try:
                data = memoryview(frame(kind, body))
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                os._exit(LOST_CHANNEL)
            self.writing = 0


class _Unavailable:
    """A placeholder for an `extra` that could not be sent to this process."""

    def __init__(self, kind: str) -> None:
        self.__kind = kind

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(
            f"scope.extra is {self.__kind}, which does not cross into the tool's process."
            " Put plain data (dict, list, str, numbers) into extra, and not too much of it, or run the tool inline or in a thread."
        )

    def __getitem__(self, key: object) -> object:
        return self.__getattr__(str(key))

    def __iter__(self) -> object:
        return self.__getattr__("__iter__")

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__getattr__("__call__")


class _CurrentCall:
    """One call: its context, and the way to stop it."""

    def __init__(self, call: CallMessage, channel: _Channel) -> None:
        self.call = call
        self.stop = AbortController()
        self.task: asyncio.Task[object] | None = None
        self._channel = channel
        self._live = LiveText()
        self._seq = 0
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._overdue = False

    def context(self) -> ToolContext:
        call = self.call
        return ToolContext(
            scope=replace(call.scope, extra=_Unavailable(call.extra)) if call.extra else call.scope,
            call_id=call.call_id,
            uid=call.uid,
            tool=call.tool,
            idempotency_key=call.key,
            signal=self.stop.signal,
            report=self._report,
            policies=_NoPolicies(call.tool),
            attempt=call.attempt,
            deadline=call.deadline,
            show_kill_hint=call.show_kill_hint,
        )

    def _report(self, text: str, stream: str) -> None:
        with self._lock:
            self._send(self._live.offer(text, stream, time.monotonic()))

    def show_rest(self) -> None:
        with self._lock:
            self._send(self._live.rest())

    def _send(self, pieces: list[tuple[str, str]]) -> None:
        for text, stream in pieces:
            self._seq += 1
            self._channel.write(b"P", encode(ProgressMessage(self._seq, text.encode("utf-8", "backslashreplace").decode(), stream)))
        if self._overdue and threading.get_ident() == self._thread:
            self._interrupt()

    def request_stop(self) -> None:
        """Stop the call; runs in the signal handler, between two steps of the main thread."""
        self.stop.abort("the call is over: its deadline has passed, or it was killed")
        if self._channel.writing == self._thread:
            self._overdue = True  # a frame is being written: interrupt right after it
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        self._overdue = False
        if self.task is None:
            raise _Stopped
        self.task.get_loop().call_soon_threadsafe(self.task.cancel)


class _Worker:
    def __init__(self, fd: int) -> None:
        self._channel = _Channel(fd)
        self._running: _CurrentCall | None = None
        self._asyncio: asyncio.Runner | None = None
        self._tools: dict[str, Tool] = {}
        self._baseline: Baseline | None = None

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._on_sigterm)
        while True:
            kind, given = self._channel.read()
            _reap()
            body, damage = self._run_call(decode_call(given)) if kind == b"C" else (self._import(given.decode()), [])
            self._channel.write(b"F" if damage else b"E", body)
            if damage:
                os._exit(0)

    def _on_sigterm(self, number: int, stack: FrameType | None) -> None:
        if self._running is None:
            os._exit(143)
        self._running.request_stop()

    def _import(self, target: str) -> bytes:
        """Import a tool for later calls. An error is reported by the call that meets it again."""
        try:
            self._load(target)
        except BaseException as error:
            return encode(_unloadable_execution(target, error))
        return encode(Execution(status="returned"))

    def _run_call(self, call: CallMessage) -> tuple[bytes, list[str]]:
        try:
            tool = self._load(call.target)
        except BaseException as error:
            return encode(_unloadable_execution(call.target, error)), []
        baseline = self._baseline = self._baseline or Baseline()
        os.environ["CALLGATE_CALL"] = call.uid.replace("\0", "")
        _limit_cpu(call.cpu_s)
        self._channel.write(b"B")
        execution = self._run(tool, call)
        damage = baseline.restore()
        if execution.error_type == "MemoryError":
            damage.append("memory ran out")
        return encode(execution), damage

    def _load(self, target: str) -> Tool:
        if target not in self._tools:
            self._baseline = None  # changes made by importing a tool's module are not the call's
            self._tools[target] = load_target(target)
        return self._tools[target]

    def _run(self, tool: Tool, call: CallMessage) -> Execution:
        running = _CurrentCall(call, self._channel)
        try:
            self._running = running
            value = tool.invoke(running.context(), decode(call.arguments))
            changes: tuple[str, ...] = ()
            if inspect.isawaitable(value):
                value, changes = self._await(value, running), awaitable_note(tool)
            execution = read_result(Execution(status="returned", value=value, changes=changes), call.max_bytes, call.scope.workspace)
            if execution.error_type == UNREADABLE and running.stop.signal.aborted:
                raise _Stopped
        except BaseException as error:
            if running.stop.signal.aborted:
                _die_of(signal.SIGTERM)
            execution = execution_of_exception(error, tool.not_done)
        self._running = None
        if not self._channel.mine:
            os._exit(0)  # a child that the tool forked and that returned from the tool too
        left = self._clean_up()
        running.show_rest()
        return replace(execution, tasks_left=left) if left else execution

    def _await(self, value: Awaitable[object], running: _CurrentCall) -> object:
        async def main() -> object:
            running.task = asyncio.current_task()
            return await value

        if self._asyncio is None:
            self._asyncio = asyncio.Runner()
        executor = ThreadPoolExecutor(thread_name_prefix="tool")
        self._asyncio.get_loop().set_default_executor(executor)
        try:
            return self._asyncio.run(main())
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _clean_up(self) -> int:
        """Flush the standard streams and cancel the tasks that an async tool left; return the number of these tasks."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if self._asyncio is None:
            return 0
        loop = self._asyncio.get_loop()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_LEFTOVER_S))
        if any(not task.done() for task in left):
            self._asyncio = None  # the tasks stay on the old loop, which never runs again
        return len(left)


def _unloadable_execution(target: str, error: BaseException) -> Execution:
    """Return the execution of a tool that cannot be loaded. The model cannot mend that, so only the operator is told why."""
    why = f"it was not started, because the worker process could not load the tool from {target}: {': '.join(describe(error))}"
    text = "it was not started, because it cannot be loaded in a worker process; the operator has been told"
    return Execution(status="raised", error_type=clean(type_name(error)), error=text, traceback=why, evidence="not_sent")


def _limit_cpu(cpu_s: int | None) -> None:
    """Limit the processor time of this call, in addition to what earlier calls have used."""
    if cpu_s is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + cpu_s + 1, hard))


def _reap() -> None:
    """Reap the children of earlier calls, which the supervisor has ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _die_of(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(fd: int) -> None:
    """Serve calls until the supervisor ends this process."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    _Worker(fd).serve()
