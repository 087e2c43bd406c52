"""Check and read the results of `Tool.execute`. Pure."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["declared_failure", "has_standard_shape", "validate_tool_result"]


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


def has_standard_shape(result: object, *, wraps_result: bool) -> bool:
    """Whether a value has the standard form `{"success", "error", "data", ...}`.

    Args:
        wraps_result: Whether the tool may return anything; then the key `success` decides.
    """
    return not wraps_result or (isinstance(result, Mapping) and isinstance(result.get("success"), bool))


def declared_failure(result: Mapping[str, object]) -> str | None:
    """Return the failure text of a valid result of the standard form; None for a success."""
    error = result.get("error")
    if result.get("success") is False or ("success" not in result and error):
        return str(error or result.get("message") or "the tool reported a failure")
    return None
