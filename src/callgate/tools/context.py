"""What a tool may know and do while it runs: one object per call, the same shape for every tool.

Adding a field here widens the contract for all tools. Host-specific context travels in `extra`, untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate.calls import Scope, ToolResult

__all__ = ["ToolContext"]

_LOOK_S = 1.0
"""How often a thread that waits for a call looks whether the event loop is still there."""
_LOOP_ENDED = "{name} was not called, or its result was lost: the engine's event loop has ended"

CallTool = Callable[[int, str, Mapping[str, object]], Awaitable[ToolResult]]
Report = Callable[[str, str], None]


class Policies(Protocol):
    """What a running call may ask of the policies that let it run."""

    def may_visit(self, path: str, size_bytes: int) -> bool: ...
    async def refusal(self, changed: Mapping[str, object]) -> str: ...


class ToolContext(Struct, kw_only=True, eq=False, weakref=True):
    """The running call, seen from inside the tool."""

    scope: Scope
    """Run, conversation, turn, principal, actor, workspace, locale, provider and the host's `extra`."""
    call_id: str
    """The model's id of this call, or one that the engine made where there was none."""
    uid: str
    """Our id of it."""
    tool: str
    """The tool's name."""
    idempotency_key: str
    """The same on every attempt; hand it to a service that honours one."""
    signal: AbortSignal
    """Fires when the turn is killed. Hand it to whatever you wait for."""
    report: Report
    """Takes progress; use `progress`."""
    nested: CallTool | None = None
    """Takes calls of other tools, with the attempt that makes them; use `call`."""
    policies: Policies | None = None
    """The policies that let this call run; use `may_visit` and `refusal`."""
    own_files: tuple[str, ...] = ()
    """The engine's own files and folders, absolute: its record and what belongs to it, which no tool may use."""
    attempt: int = 1
    """From 1."""
    deadline: float = 0.0
    """When the attempt must have ended, in seconds of `time.monotonic`."""
    show_kill_hint: bool = False
    """The turn has gone on for long; tell the user how to end it."""
    loop: asyncio.AbstractEventLoop | None = None
    """The engine's event loop, where the tool has a thread of its own; use `call_sync`."""

    @property
    def suppress_progress_notices(self) -> bool:
        """The host does not show notices to its user."""
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
        """The turn's `StreamingContext`, the very object that its model streams in; None outside a turn, and in a process."""
        return self.scope.streaming

    def progress(self, text: str, *, stream: str = "progress") -> None:
        """Show a piece of output while the tool still runs. Live only; the result stays what the tool returns."""
        self.report(text, stream)

    def for_thread(self, report: Report, loop: asyncio.AbstractEventLoop, nested: CallTool | None) -> ToolContext:
        """The same context for a tool that is not on the event loop's thread: `report` takes its progress, `loop` runs nested calls."""
        return replace(self, report=report, loop=loop, nested=nested)

    def may_visit(self, path: str, size_bytes: int = 0) -> bool:
        """Whether rules about paths let this call read or name a file that it comes across.

        Args:
            path: The file's real path, relative to the workspace.

        Raises:
            RuntimeError: Where the tool runs in a process of its own, which knows no rules.
        """
        return self.policies is None or self.policies.may_visit(path, size_bytes)

    async def refusal(self, **changed: object) -> str:
        """Why this call would not have been let through with these arguments in the place of its own; empty: it would.

        Raises:
            RuntimeError: Where the tool runs in a process of its own, which knows no rules.
        """
        return "" if self.policies is None else await self.policies.refusal(changed)

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Call another tool by the same route, as part of this call: same scope, deadline and principal, recorded as its child.

        Raises:
            RuntimeError: Where the tool runs in a process of its own; nested calls need the engine. Where this call, or this attempt
                at it, is over, and a task or thread that its tool left behind goes on.
        """
        if self.nested is None:
            raise RuntimeError(f"{self.tool} runs in its own process and cannot call other tools; run it inline or in a thread")
        return await self.nested(self.attempt, name, arguments)

    def call_sync(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """`call` for a plain function that runs in a thread. Gives up where the engine's event loop has ended.

        Raises:
            RuntimeError: Where there is no thread of the tool's own to wait in, or no event loop any more that could run the call.
        """
        if self.loop is None:
            raise RuntimeError(f"{self.tool} does not run in a thread of its own; use 'await ctx.call(...)', or runner='thread'")
        call = self.call(name, arguments)
        try:
            running = asyncio.run_coroutine_threadsafe(call, self.loop)
        except RuntimeError as error:
            call.close()
            raise RuntimeError(_LOOP_ENDED.format(name=name)) from error
        while True:
            try:
                return running.result(_LOOK_S)
            except TimeoutError:
                if running.done():
                    return running.result()
            if self.loop.is_closed() or (self.signal.aborted and not self.loop.is_running()):
                running.cancel()
                raise RuntimeError(_LOOP_ENDED.format(name=name))
