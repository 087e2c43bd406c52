"""Check the calls and scopes that a host hands in, before anything is recorded of them. Knows no run and no tool."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from callgate._run_state.event_bodies import valid_text
from callgate.calls import RawCall, Scope
from callgate.errors import UsageError

__all__ = ["check_call", "check_scope", "check_text"]

_NAMES = ("run", "conversation", "tick", "message_id", "phase", "principal", "actor", "workspace", "locale", "provider")
_WORDS = attrgetter(*_NAMES)
_KINDS = ({str}, int, int, bool, bool)
"""The types of a scope's text values, and of its numbers and switches."""
_EXPECTED = {str: "text", int: "a whole number", bool: "True or False"}


def check_call(raw: object) -> None:
    """Raise `UsageError` if `raw` is not a call."""
    if not isinstance(raw, RawCall):
        raise UsageError(
            f"A {type(raw).__name__} was handed in as a call. Make a RawCall of it: RawCall.from_provider(item) for a call from a"
            " provider's SDK, or RawCall(name=..., arguments=..., id=...)."
        )
    if raw.idempotency_key is not None and not isinstance(raw.idempotency_key, str):
        raise UsageError(f"RawCall.idempotency_key is {raw.idempotency_key!r:.80}; it must be text, or None.")


def check_scope(scope: object) -> None:
    """Raise `UsageError` if a value of the scope can be neither recorded nor compared."""
    if not isinstance(scope, Scope):
        raise UsageError(f"A {type(scope).__name__} was handed in as a scope. Give callgate.Scope(...), or leave it out.")
    kinds = set(map(type, _WORDS(scope))), type(scope.turn), type(scope.iteration), type(scope.deliberate), type(scope.surface_errors)
    if kinds == _KINDS and scope.allowed_tools is None:
        return
    for name, kind, value in (*_text_of(scope), *_others_of(scope)):
        if not isinstance(value, kind):
            raise UsageError(f"Scope.{name} is {value!r:.80}; it must be {_EXPECTED[kind]}.")
    allowed: object = scope.allowed_tools
    if allowed is not None and not isinstance(allowed, (frozenset, set, tuple, list)):
        raise UsageError(f"Scope.allowed_tools is {allowed!r:.80}; it must be a frozenset of names, or None for all tools.")


def _others_of(scope: Scope) -> Iterator[tuple[str, type, object]]:
    yield "turn", int, scope.turn
    yield "iteration", int, scope.iteration
    yield "deliberate", bool, scope.deliberate
    yield "surface_errors", bool, scope.surface_errors


def _text_of(scope: Scope) -> Iterator[tuple[str, type, object]]:
    return ((name, str, value) for name, value in zip(_NAMES, _WORDS(scope), strict=True))


def check_text(scope: Scope) -> None:
    """Raise `UsageError` if a text of the scope is not valid Unicode, so that it could not be recorded."""
    if "".join(_WORDS(scope)).isascii():
        return
    for name, value in zip(_NAMES, _WORDS(scope), strict=True):
        if not value.isascii() and valid_text(value) != value:
            raise UsageError(f"Scope.{name} is not valid Unicode: {value[:80]!a}. Give text that UTF-8 can hold.")
