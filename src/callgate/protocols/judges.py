"""The protocol of judges: policies that ask a model about calls that the rules alone do not decide.

A judge is asked after all other policies, and may only make their verdict stricter. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate.messages import Message
from callgate.stage_types import ValidatedCall

__all__ = ["CallJudge", "JudgeContext", "Judgment"]


class Judgment(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A judge's decision on a call, as it is recorded with the verdict."""

    verdict: Literal["allow", "deny", "ask"]
    reason: str
    judge: str = ""
    """The judge's name: `provider:model`."""
    failed: Literal["", "budget", "error", "malformed", "timeout", "too_large"] = ""
    """Why the call was denied without a decision of the judge; empty if the judge decided."""
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: float = 0.0


class JudgeContext(Struct, frozen=True, kw_only=True, eq=False):
    """What a judge is given in addition to the call."""

    required_by: str = ""
    """The rule with the verdict `judge`; empty if the judge itself asked for the call."""
    messages: Sequence[Message] = ()
    """The conversation so far, oldest first, if an agent makes the call. Not redacted yet."""
    redact: Callable[[bytes], bytes]
    """Removes secrets from JSON; a judge must pass everything that it sends through it."""
    cut: Callable[[object, int], str]
    """Returns the start of a text, redacted before it is cut."""


@runtime_checkable
class CallJudge(Protocol):
    """A policy that is asked last, with its own deadline, only about calls that it selects or that a rule sends to it."""

    timeout_s: float
    """Seconds for one judgment; then the call is denied."""

    @property
    def title(self) -> str:
        """The judge's name in the journal."""
        ...

    def wants(self, call: ValidatedCall) -> bool:
        """Whether it judges this call without a rule that asks for it."""
        ...

    async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
        """Judge exactly these arguments; must not change them."""
        ...
