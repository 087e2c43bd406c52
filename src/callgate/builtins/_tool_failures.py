"""Turn a failure of a built-in tool into a result that the model can act on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from callgate.errors import CallgateError, Retryable, UsageError

__all__ = ["CannotDo", "Result", "failure_result", "failures_as_results"]

P = ParamSpec("P")

Result = dict[str, object]


class CannotDo(CallgateError):
    """The request cannot be carried out; the model must ask for something else.

    The message gives the fact, the cause or limit, and the next step.
    """

    code = "cannot_do"


def failure_result(error: CallgateError) -> Result:
    """Return the result that reports the tool's own failure."""
    return {"success": False, "error": str(error), "code": error.code}


def failures_as_results(function: Callable[P, Result]) -> Callable[P, Result]:
    """Convert every `CallgateError` of the function to a result. `UsageError` and `Retryable` are still raised."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (UsageError, Retryable):
            raise
        except CallgateError as error:
            return failure_result(error)

    return called
