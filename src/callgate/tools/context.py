"""What a tool may know and do while it runs: one object per call, the same shape for every tool.

Adding a field here widens the contract for all tools. Host-specific context travels in `extra`, untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from callgate._signals import AbortSignal
from callgate.calls import Scope, ToolResult

__all__ = ["ToolContext"]

CallTool = Callable[[str, Mapping[str, object]], Awaitable[ToolResult]]
Report = Callable[[str, str], None]


class ToolContext:
    """The running call, seen from inside the tool.

    Attributes:
        scope: Run, conversation, turn, principal, actor, workspace, locale, provider and the host's `extra`.
        call_id: The model's id of this call.
        uid: Our id of it.
        tool: The tool's name.
        attempt: From 1.
        idempotency_key: The same on every attempt; hand it to a service that honours one.
        deadline: When the attempt must have ended, on the event loop's clock (seconds), or on `time.monotonic` in a process.
        signal: Fires when the turn is killed. Hand it to whatever you wait for.
        suppress_progress_notices: The host does not show notices to its user.
        show_kill_hint: The turn has gone on for long; tell the user how to end it.
    """

    __slots__ = (
        "_call",
        "_loop",
        "_report",
        "attempt",
        "call_id",
        "deadline",
        "idempotency_key",
        "scope",
        "show_kill_hint",
        "signal",
        "suppress_progress_notices",
        "tool",
        "uid",
    )

    def __init__(
        self,
        *,
        scope: Scope,
        call_id: str,
        uid: str,
        tool: str,
        idempotency_key: str,
        signal: AbortSignal,
        report: Report,
        call: CallTool | None = None,
        attempt: int = 1,
        deadline: float = 0.0,
        show_kill_hint: bool = False,
    ) -> None:
        self.scope = scope
        self.call_id = call_id
        self.uid = uid
        self.tool = tool
        self.idempotency_key = idempotency_key
        self.signal = signal
        self.attempt = attempt
        self.deadline = deadline
        self.suppress_progress_notices = not scope.surface_errors
        self.show_kill_hint = show_kill_hint
        self._report = report
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None

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

    def progress(self, text: str, *, stream: str = "progress") -> None:
        """Show a piece of output while the tool still runs. Live only; the result stays what the tool returns."""
        self._report(text, stream)

    def for_thread(self, report: Report, loop: asyncio.AbstractEventLoop) -> ToolContext:
        """The same context for a tool that is not on the event loop's thread: `report` takes its progress, `loop` runs nested calls."""
        other = object.__new__(type(self))
        for name in ToolContext.__slots__:
            setattr(other, name, getattr(self, name))
        other._report = report
        other._loop = loop
        return other

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Call another tool by the same route, as part of this call: same scope, deadline and principal, recorded as its child.

        Raises:
            RuntimeError: Where the tool runs in a process of its own; nested calls need the engine.
        """
        if self._call is None:
            raise RuntimeError(f"{self.tool} runs in its own process and cannot call other tools; run it inline or in a thread")
        return await self._call(name, arguments)

    def call_sync(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """`call` for a plain function that runs in a thread.

        Raises:
            RuntimeError: Where there is no thread of the tool's own to wait in.
        """
        if self._loop is None:
            raise RuntimeError(f"{self.tool} does not run in a thread of its own; use 'await ctx.call(...)', or runner='thread'")
        return asyncio.run_coroutine_threadsafe(self.call(name, arguments), self._loop).result()
