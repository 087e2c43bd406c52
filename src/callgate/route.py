"""The stages of a call as types: one per thing that a later stage must not skip.

`resolve` takes what `parse` returns, `run` accepts only what `gate` returns. Nothing here decides or does anything.
"""

from __future__ import annotations

from msgspec import Struct

from callgate.calls import Note, RawCall, Scope
from callgate.tools.registry import BoundTool

__all__ = ["ApprovedCall", "ParsedCall", "ResolvedCall", "ValidatedCall"]


class ParsedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments are one JSON object."""

    uid: str
    raw: RawCall
    arguments: dict[str, object]
    notes: tuple[Note, ...] = ()


class ResolvedCall(Struct, frozen=True, kw_only=True):
    """A call of a tool that exists and that this turn exposes."""

    parsed: ParsedCall
    tool: BoundTool
    notes: tuple[Note, ...] = ()


class ValidatedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments the tool accepts: what policies and hooks see."""

    uid: str
    raw: RawCall
    tool: BoundTool
    scope: Scope
    arguments: dict[str, object]
    notes: tuple[Note, ...] = ()

    @property
    def name(self) -> str:
        return self.tool.name


class ApprovedCall(Struct, frozen=True, kw_only=True):
    """A call that may run, with these very arguments. Built by the gate alone."""

    call: ValidatedCall
    rule: str
    """Which rule let it through, as `id (file:line)`."""
    encoded: bytes
    """The final arguments as canonical JSON: what is recorded, hashed and cached by."""
    key: str
    """The idempotency key of the call."""
