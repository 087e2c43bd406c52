"""Turns of frameworks that were stopped or killed: a stop ends one turn, and the calls of the next one run.

A framework does not tell the engine when a turn ends. So a stop is over when it has reached a call of one turn and a call of another turn
comes. Later calls of the stopped turn are still not run. Must not know any framework.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from callgate._abort_signals import Control
from callgate.calls import Scope

__all__ = ["begin_call", "end_call"]

_MOST = 1_000
_Turn = tuple[str, str, int]
"""Conversation, tick and turn."""


class _StoppedTurns:
    """The stopped turns of one engine."""

    def __init__(self) -> None:
        self.reached: dict[str, _Turn] = {}
        """The turn that the stop in force has reached, by conversation."""
        self.ended: dict[_Turn, str] = {}
        """Why earlier turns were stopped. Of very many, the oldest are forgotten."""


_stopped: WeakKeyDictionary[Control, _StoppedTurns] = WeakKeyDictionary()


def begin_call(control: Control, scope: Scope) -> str | None:
    """End a stop that was for an earlier turn. Return why a call must not run if its own turn was stopped before; else None."""
    turn, known = _turn_of(scope), _stopped.get(control)
    if known is None:
        return None
    reached, reason = known.reached.get(scope.conversation), control.pending(scope.conversation)
    if reached is not None and (reason is None or reached != turn):
        known.reached.pop(scope.conversation, None)
        if reason is not None:
            known.ended[reached] = reason
            control.end_turn(scope.conversation)
        while len(known.ended) > _MOST:
            known.ended.pop(next(iter(known.ended)), None)
    return known.ended.get(turn)


def end_call(control: Control, scope: Scope) -> None:
    """Note that a stop that is in force has reached the turn of a call that has ended."""
    if control.pending(scope.conversation) is not None:
        _stopped.setdefault(control, _StoppedTurns()).reached.setdefault(scope.conversation, _turn_of(scope))


def _turn_of(scope: Scope) -> _Turn:
    return scope.conversation, str(scope.tick), scope.turn
