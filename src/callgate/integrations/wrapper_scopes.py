"""The scope that a wrapper of a framework was given, completed with the framework's own run, message and turn. Knows no framework."""

from __future__ import annotations

from msgspec.structs import replace

from callgate.calls import Scope
from callgate.errors import UsageError

__all__ = ["check_scope", "in_turn", "placed_scope", "scope_of", "two_scopes"]


def two_scopes(name: str, one: Scope, other: Scope) -> UsageError:
    """Return the error for a tool with two wrappers of one engine that have different scopes."""
    differing = [part for part in Scope.__struct_fields__ if getattr(one, part) != getattr(other, part)]
    shown = ", ".join(f"{part}={getattr(one, part)!r:.80} and {getattr(other, part)!r:.80}" for part in differing)
    return UsageError(
        f"{name} has two wrappers of one engine with different scopes ({shown}), so that it is not clear for whom its calls run. Remove one"
        " of them, or give both the same scope."
    )


def check_scope(given: object) -> None:
    """Raise `UsageError` if a wrapper was given neither a scope nor a function."""
    if not callable(given) or isinstance(given, type):
        scope_of(given, None)


def scope_of(given: object, context: object) -> Scope:
    """Return the scope that a wrapper was given, or that its function of the framework's context returns.

    Raises:
        UsageError: It is not a scope.
    """
    scope = given(context) if callable(given) and not isinstance(given, type) else given
    if not isinstance(scope, Scope):
        raise UsageError(f"The scope of the wrapper is {scope!r:.80}; give callgate.Scope(...), or a function that returns one.")
    return scope


def placed_scope(given: object, context: object, place: tuple[str, str], turn: str) -> Scope:
    """Return the scope of a call. What it does not name is the framework's own run, message and turn; the conversation is the run.

    A run that the host has named is the conversation, too, because the framework may make a new id when the run goes on after a crash.

    Raises:
        UsageError: The wrapper was not given a scope.
    """
    scope, message = scope_of(given, context), place[1]
    run = scope.run or place[0]
    scope = replace(scope, run=run, conversation=scope.conversation or run, message_id=scope.message_id or message)
    return in_turn(scope, turn)


def in_turn(scope: Scope, turn: str) -> Scope:
    """Return the scope of a call with the framework's own turn as its tick, unless it names a tick or a turn."""
    return scope if scope.tick or scope.turn else replace(scope, tick=turn)
