"""What judges a call that rules alone do not settle, and what it is told of it.

A judge is asked after all other policies, and may only make their verdict stricter. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate.messages import Message
from callgate.route import ValidatedCall

__all__ = ["CallJudge", "JudgeContext", "Judgment"]


class Judgment(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a judge says of a call, as it is recorded with the verdict."""

    verdict: Literal["allow", "deny", "ask"]
    reason: str
    judge: str = ""
    """Which judge: `provider:model`."""
    failed: Literal["", "budget", "error", "malformed", "timeout", "too_large"] = ""
    """Why it is a deny without a word of the judge's own; empty where the judge decided."""
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: float = 0.0


class JudgeContext(Struct, frozen=True, kw_only=True, eq=False):
    """What a judge is told beside the call."""

    required_by: str = ""
    """The rule that wants the call judged; empty: none does, and the judge asks for itself."""
    messages: Sequence[Message] = ()
    """The conversation so far, oldest first, where an agent runs the call. Not yet redacted."""
    redact: Callable[[bytes], bytes]
    """Takes secrets out of JSON; what a judge sends anywhere goes through it."""
    cut: Callable[[object, int], str]
    """The first characters of a text, redacted before it is cut."""


@runtime_checkable
class CallJudge(Protocol):
    """A policy that is asked last, in its own time, and only about the calls that it wants to judge or that a rule has judged."""

    timeout_s: float
    """How long one judgment may take; after that the call is denied."""

    @property
    def title(self) -> str:
        """What the record calls it."""
        ...

    def wants(self, call: ValidatedCall) -> bool:
        """Whether it judges this call where no rule asks for it."""
        ...

    async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
        """Judge these very arguments; must not change them."""
        ...
