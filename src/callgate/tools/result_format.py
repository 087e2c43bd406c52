"""Check and read the results of `Tool.execute`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

__all__ = ["declared_failure", "has_standard_shape", "validate_tool_result"]


class ReturnsResults(Protocol):
    """The options of a tool that decide how its results are read; see `Tool`."""

    wraps_result: ClassVar[bool]
    declares_beside: ClassVar[bool]


def validate_tool_result(result: object) -> list[str]:
    """Return the errors of a return value of `Tool.execute`, one sentence each.

    It must be a dict and not None; `success`, if present, a bool; `error`, if present, a string.
    """
    if result is None:
        return ["the result is None; return a dict, for example {'success': True}"]
    if not isinstance(result, Mapping):
        return [f"the result is a {type(result).__name__}; return a dict"]
    faults = []
    if "success" in result and not isinstance(result["success"], bool):
        faults.append(f"'success' is a {type(result['success']).__name__}; it must be a bool")
    if result.get("error") is not None and not isinstance(result["error"], str):
        faults.append(f"'error' is a {type(result['error']).__name__}; it must be a string")
    return faults


def has_standard_shape(result: object, tool: ReturnsResults) -> bool:
    """Whether a value that a tool has returned has the standard form `{"success", "error", "data", ...}`."""
    if not tool.wraps_result:
        return True
    return not tool.declares_beside and isinstance(result, Mapping) and isinstance(result.get("success"), bool)


def declared_failure(result: Mapping[str, object]) -> str | None:
    """Return the failure text of a valid result of the standard form; None for a success."""
    error = result.get("error")
    if result.get("success") is False or ("success" not in result and error):
        return str(error or result.get("message") or "the tool reported a failure")
    return None
