"""The context of a running call, for the tool's code.

Every new field becomes part of the contract with all tools. A host's own context is passed unchanged in `extra`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._run_in_thread import LoopEnded, wait_for_loop
from callgate.calls import Scope, ToolResult

__all__ = ["ToolContext"]

_LOOP_ENDED = "{name} was not called, or its result was lost: the engine's event loop has ended"

CallTool = Callable[[int, str, Mapping[str, object]], Awaitable[ToolResult]]
Report = Callable[[str, str], None]


class Policies(Protocol):
    """The policies' answers for a running call."""

    def may_visit(self, path: str, size_bytes: int) -> bool: ...
    async def refusal(self, changed: Mapping[str, object]) -> str: ...


class HumanTimer(Protocol):
    """The time of one call in which a human is asked, which does not count; see `_human_time.py`."""

    asked: bool

    @property
    def passed_s(self) -> float: ...
    @property
    def left_s(self) -> float: ...
    @property
    def is_asking(self) -> bool: ...
    def watch(self, on_change: Callable[[], None] | None) -> None: ...
    def asking(self) -> AbstractContextManager[None]: ...


class ToolContext(Struct, kw_only=True, eq=False, weakref=True):
    """The running call, for the tool's code."""

    scope: Scope
    """Run, conversation, turn, principal, actor, workspace, locale, provider and the host's `extra`."""
    call_id: str
    """The model's id of the call, or one that the engine made if there was none."""
    uid: str
    """The engine's id of the call."""
    tool: str
    """The tool's name."""
    idempotency_key: str
    """The idempotency key, the same for every attempt; pass it to services that support one."""
    signal: AbortSignal
    """Fires when the turn is killed. Pass it to the operations that the tool waits for."""
    report: Report
    """Receives progress; use `progress`."""
    nested: CallTool | None = None
    """Makes calls of other tools for an attempt; use `call`."""
    policies: Policies | None = None
    """The policies that allowed this call; use `may_visit` and `refusal`."""
    own_files: tuple[str, ...] = ()
    """Absolute paths of the engine's own files and folders, such as its journal, which no tool may use."""
    attempt: int = 1
    """The number of the attempt, from 1."""
    deadline: float = 0.0
    """The end of the attempt, in seconds of `time.monotonic`."""
    show_kill_hint: bool = False
    """Whether the turn has taken long, so that the tool should tell the user how to end it."""
    human_time: HumanTimer | None = None
    """The time of the call in which a human is asked; use `asking_human`."""
    loop: asyncio.AbstractEventLoop | None = None
    """The engine's event loop, if the tool runs in a thread; use `call_sync`."""

    @property
    def suppress_progress_notices(self) -> bool:
        """Whether the host hides notices from its user."""
        return not self.scope.surface_errors

    @property
    def actor(self) -> str:
        return self.scope.actor

    @property
    def principal(self) -> str:
        return self.scope.principal

    @property
    def conversation(self) -> str:
        return self.scope.conversation

    @property
    def workspace(self) -> str:
        return self.scope.workspace

    @property
    def locale(self) -> str:
        return self.scope.locale

    @property
    def provider(self) -> str:
        return self.scope.provider

    @property
    def extra(self) -> object:
        return self.scope.extra

    @property
    def streaming(self) -> object:
        """The turn's `StreamingContext`, the same object that the model gets; None outside of a turn and in a process."""
        return self.scope.streaming

    def progress(self, text: str, *, stream: str = "progress") -> None:
        """Show a piece of output while the tool runs. It is shown live and is not part of the result."""
        self.report(text, stream)

    def asking_human(self) -> AbstractContextManager[None]:
        """Return a block in which the deadlines of this call stop, because a human is asked; at most `Limits.human_answer_s` in all.

        For tools that run inline. In other runners the time keeps running.
        """
        return nullcontext() if self.human_time is None else self.human_time.asking()

    def for_thread(self, report: Report, loop: asyncio.AbstractEventLoop, nested: CallTool | None) -> ToolContext:
        """Return the context for a tool in another thread: `report` receives its progress, `loop` runs nested calls."""
        return replace(self, report=report, loop=loop, nested=nested, human_time=None)

    def may_visit(self, path: str, size_bytes: int = 0) -> bool:
        """Return whether the rules allow this call to read or list a file that it finds.

        Args:
            path: The file's real path, relative to the workspace.

        Raises:
            RuntimeError: The tool runs in its own process, which has no rules.
        """
        return self.policies is None or self.policies.may_visit(path, size_bytes)

    async def refusal(self, **changed: object) -> str:
        """Return why the policies would refuse this call with these arguments replaced; empty if they would allow it.

        Raises:
            RuntimeError: The tool runs in its own process, which has no rules.
        """
        return "" if self.policies is None else await self.policies.refusal(changed)

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Call another tool as part of this call: with the same scope, deadline and principal, and recorded as its child.

        Raises:
            RuntimeError: The tool runs in its own process, without the engine; or this call or attempt has ended, and the caller is a task
                or thread that the tool left running.
        """
        if self.nested is None:
            raise RuntimeError(f"{self.tool} runs in its own process and cannot call other tools; run it inline or in a thread")
        return await self.nested(self.attempt, name, arguments)

    def call_sync(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Call another tool as `call` does, from a plain function in a thread.

        Raises:
            RuntimeError: The tool does not run in a thread of its own, or the engine's event loop has ended.
        """
        if self.loop is None:
            raise RuntimeError(f"{self.tool} does not run in a thread of its own; use 'await ctx.call(...)', or runner='thread'")
        call = self.call(name, arguments)
        try:
            running = asyncio.run_coroutine_threadsafe(call, self.loop)
        except RuntimeError as error:
            call.close()
            raise RuntimeError(_LOOP_ENDED.format(name=name)) from error
        try:
            return wait_for_loop(running, self._loop_has_ended)
        except LoopEnded:
            running.cancel()
            raise RuntimeError(_LOOP_ENDED.format(name=name)) from None

    def _loop_has_ended(self) -> bool:
        return self.loop is None or self.loop.is_closed() or (self.signal.aborted and not self.loop.is_running())
