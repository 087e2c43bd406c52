"""Let a stop of a turn reach the turns that its tools run, which have conversations of their own and may have another engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from callgate._abort_signals import AbortSignal, Control

__all__ = ["stopped_with_outer_turn"]


class _RunningTurn:
    """A turn, for the turns that its tools run."""

    __slots__ = ("has_ended", "stopping")

    def __init__(self, stopping: AbortSignal) -> None:
        self.stopping = stopping
        """Fires when the turn is stopped or killed."""
        self.has_ended = False


_TURN: ContextVar[_RunningTurn | None] = ContextVar("callgate_turn_of_agent", default=None)
"""The turn within which the current code runs."""


@contextmanager
def stopped_with_outer_turn(control: Control, conversation: str) -> Iterator[None]:
    """Stop the turn that runs in the block when the turn is stopped whose tool runs it, if there is one."""
    outer, turn = _TURN.get(), _RunningTurn(control.stopping(conversation))
    unlink = _link(outer.stopping, control, conversation) if outer is not None and not outer.has_ended else None
    _TURN.set(turn)
    try:
        yield
    finally:
        turn.has_ended = True
        if unlink is not None:
            unlink()
        _TURN.set(outer)


def _link(stopping: AbortSignal, control: Control, conversation: str) -> Callable[[], object]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        reason = stopping.reason or ""
        if _running_loop() is loop:
            control.stop(conversation, reason)
        else:  # the tool's agent has another event loop, or the stop comes from a thread without one
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(control.stop, conversation, reason)

    return stopping.on_abort(stop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
