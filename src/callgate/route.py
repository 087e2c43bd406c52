"""The stages of a call as types: one per thing that a later stage must not skip.

`resolve` takes what `parse` returns, `run` accepts only what `gate` returns. Nothing here decides or does anything.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.calls import Note, RawCall, Scope
from callgate.tools.registry import BoundTool

__all__ = ["ApprovedCall", "Checked", "ParsedCall", "ResolvedCall", "ValidatedCall"]


class ParsedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments are one JSON object."""

    uid: str
    raw: RawCall
    arguments: dict[str, object]
    notes: tuple[Note, ...] = ()
    whole_floats: bool = True
    """Whether a float without a fraction may stand in the arguments, for which an integer may be meant."""


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
    approval: str = ""
    """The approval that this call uses up; empty where none was needed."""
    allowed_by: str = ""
    """The human who allowed exactly this call; empty where none was asked."""
    judgments: tuple[object, ...] = ()
    """What judges said of it, for the record."""


class Checked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call that ran came to, in plain JSON data: what the cache keeps and what hooks see."""

    status: Literal["ok", "error", "unknown"] = "ok"
    value: object = None
    error: str | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    end_turn: bool = False
    image_metadata: object = None
    details: dict[str, object] | None = None
    """Facts that the model gets beside the error."""
    notes: tuple[Note, ...] = ()
    attempts: int = 1
    duration_ms: float = 0.0
    cached: str | None = None
    joined: bool = False
    changed: bool = False
    """Whether hooks had changed it before it was kept."""

    @property
    def facts(self) -> dict[str, object]:
        """What to record of a result that nobody will see."""
        return {"status": self.status, "attempts": self.attempts, "error": self.error}
