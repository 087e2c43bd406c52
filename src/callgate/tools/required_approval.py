"""The declaration of a tool that a human has to allow its calls: all of them, or those that a function of the tool's author picks.

The declaration is checked when the tool is registered. Knows nothing of policies and of answers; the gate asks.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from msgspec import Struct

from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.tools.host_functions import refuse_argument_names

__all__ = ["ApprovalRequirement", "NeedsApproval", "RequiresApproval"]

NeedsApproval = bool | str | Awaitable[bool | str]
"""Whether a human has to allow a call, or the question to the human."""

RequiresApproval = bool | Callable[[dict[str, Any]], NeedsApproval] | Callable[[dict[str, Any], Scope], NeedsApproval]
"""True for every call, or a function that decides about each. It gets the final arguments, and the scope if it has a second parameter. It
may be async."""


class ApprovalRequirement(Struct, frozen=True, kw_only=True):
    """Which calls of a tool a human has to allow."""

    asks: Callable[..., object] | None
    """The function that decides; None if a human has to allow every call."""
    takes_scope: bool = False

    @classmethod
    def of(cls, declared: object, where: str, arguments: Collection[str] = ()) -> ApprovalRequirement | None:
        """Return the declaration after checking it; None if no call needs approval.

        Args:
            arguments: The names of the tool's arguments.

        Raises:
            UsageError: It is neither a flag nor a function of the arguments.
        """
        if isinstance(declared, bool):
            return cls(asks=None) if declared else None
        if not callable(declared):
            raise UsageError(
                f"{where} has requires_approval={declared!r:.80}; it must be True, False, or a function of the arguments that returns"
                " True, False or a question."
            )
        example = "def requires_approval(arguments), with arguments['amount'], or (arguments, scope)"
        refuse_argument_names(declared, arguments, "requires_approval", where, example)
        return cls(asks=declared, takes_scope=_takes_scope(declared, where))

    def asked(self, arguments: dict[str, Any], scope: Scope) -> object:
        """Return the function's value for a call, or an awaitable of it; True if there is no function."""
        if self.asks is None:
            return True
        return self.asks(arguments, scope) if self.takes_scope else self.asks(arguments)


def _takes_scope(function: Callable[..., object], where: str) -> bool:
    """Return whether a function needs the scope beside the arguments.

    Raises:
        UsageError: It can be called with neither one nor two positional arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"The requires_approval of {where} has no signature. Write `lambda arguments: ...` around it.") from error
    for given in ((None,), (None, None)):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return len(given) > 1
    raise UsageError(
        f"The requires_approval of {where} takes {signature!s:.120}. Write a function of the arguments, as `lambda arguments:"
        " arguments['amount'] > 100`, or of the arguments and the scope."
    )
