"""The stages of a call as types, so that a stage cannot be skipped.

Each type is the result of one stage and the input of the next: `resolve` takes the result of `parse`, and only the result of `gate` can be
run. This module contains only data.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.calls import Note, RawCall, Scope
from callgate.content_parts import Part
from callgate.tools.registry import BoundTool

__all__ = ["ApprovedCall", "Checked", "ParsedCall", "ResolvedCall", "ValidatedCall"]


class ParsedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments are one JSON object."""

    uid: str
    raw: RawCall
    arguments: dict[str, object]
    notes: tuple[Note, ...] = ()
    whole_floats: bool = True
    """Whether the arguments may contain a float without a fraction, which may be meant as an integer."""


class ResolvedCall(Struct, frozen=True, kw_only=True):
    """A call of a tool that exists and that the current turn exposes."""

    parsed: ParsedCall
    tool: BoundTool
    notes: tuple[Note, ...] = ()


class ValidatedCall(Struct, frozen=True, kw_only=True):
    """A call whose arguments match the tool's schema. Policies and hooks get this type."""

    uid: str
    raw: RawCall
    tool: BoundTool
    scope: Scope
    arguments: dict[str, object]
    notes: tuple[Note, ...] = ()
    asked_with: str = ""
    """The id of an earlier, identical call of the message with the same key of its effect: a question to a human about that one is about
    this one too. Empty if there is none."""

    @property
    def name(self) -> str:
        return self.tool.name


class ApprovedCall(Struct, frozen=True, kw_only=True):
    """A call that may run, with exactly these arguments. Only the gate makes it."""

    call: ValidatedCall
    rule: str
    """The rule that allowed it, as `id (file:line)`."""
    encoded: bytes
    """The final arguments as canonical JSON, for hashes, keys and comparisons."""
    arguments_json: bytes
    """The final arguments as JSON, as the tool and the record get them: the keys in the order in which the model wrote them."""
    key: str
    """The key that identifies the call in its run."""
    effect_key: str = ""
    """The key of the call's effect, equal for all calls with the same effect; empty if the tool declares none."""
    approval: str = ""
    """The approval that this call uses up; empty if it needed none."""
    allowed_by: str = ""
    """The human who allowed exactly this call; empty if none was asked."""
    allowed_despite: str = ""
    """The uid of the earlier identical call with an unknown outcome that the question mentioned; empty if there was none."""
    judgments: tuple[object, ...] = ()
    """The judgments about the call, for the record."""

    @property
    def tool_key(self) -> str:
        """The idempotency key that the tool gets."""
        return self.effect_key or self.key


class Checked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The checked result of a call that ran, as plain JSON data. The cache keeps it, and hooks get it."""

    status: Literal["ok", "error", "unknown"] = "ok"
    value: object = None
    content: tuple[Part, ...] = ()
    """The parts that the model is shown instead of the text of `value`; empty if the text is shown."""
    error: str | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    end_turn: bool = False
    image_metadata: object = None
    details: dict[str, object] | None = None
    """Facts for the model in addition to the error."""
    notes: tuple[Note, ...] = ()
    attempts: int = 1
    duration_ms: float = 0.0
    cached: str | None = None
    joined: bool = False
    changed: bool = False
    """Whether hooks had changed the result before it was cached."""
    server_fields: dict[str, object] | None = None
    """See `Metadata.server_fields`. Left out when a hook replaces the result."""

    @property
    def facts(self) -> dict[str, object]:
        """Return the facts to record about a result that is not shown to the model."""
        return {"status": self.status, "attempts": self.attempts, "error": self.error}
