"""How a built-in tool says that it could not do what was asked: as a result the model can act on, not as a broken tool."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from callgate.errors import CallgateError, Retryable, UsageError

__all__ = ["CannotDo", "Result", "declared", "told"]

P = ParamSpec("P")

Result = dict[str, object]


class CannotDo(CallgateError):
    """The model must ask for something else. The message gives fact, cause or limit, and next step."""

    code = "cannot_do"


def declared(error: CallgateError) -> Result:
    """The tool's own failure, as its result."""
    return {"success": False, "error": str(error), "code": error.code}


def told(function: Callable[P, Result]) -> Callable[P, Result]:
    """Make a refusal (`PathRefused`, `CannotDo`) the function's result. What passes or is nobody's fault is still raised."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (UsageError, Retryable):
            raise
        except CallgateError as error:
            return declared(error)

    return called
