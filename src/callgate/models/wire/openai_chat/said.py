"""What servers of this form say beside the message: why it ended, what it cost, what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.fields import count_of, object_of, text_of

__all__ = ["failure_of", "passes", "reason_of", "usage_of"]

_REASONS: Mapping[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length", "max_output_tokens", "token_limit"), "length"),
    **dict.fromkeys(("context_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "recitation", "prohibited_content", "refusal"), "content_filter"),
    **dict.fromkeys(("error", "abort", "network_error", "insufficient_system_resource", "function_call_filter"), "error"),
    "malformed_function_call": "error",
}
"""By the first word: Gemini puts its own reason behind a colon."""
_RETRYABLE = frozenset(
    {
        *("408", "409", "425", "429", "500", "502", "503", "504", "529"),
        *("server_error", "internal_error", "internal_server_error", "api_error", "timeout", "timeout_error"),
        *("overloaded", "overloaded_error", "engine_overloaded", "service_unavailable", "service_unavailable_error"),
        *("rate_limit", "rate_limit_error", "rate_limit_exceeded"),
    }
)
"""What servers call a failure of theirs that may be gone a moment later."""
_MESSAGES = ("message", "msg", "error_msg", "detail", "status_msg")
_CODES = ("code", "type", "error_code", "status_code")


def reason_of(said: str) -> FinishReason:
    return _REASONS.get(said.lower().partition(":")[0].strip(), "other")


def usage_of(usage: Mapping[str, object]) -> Usage:
    """Token counts; what is missing or odd counts as 0.

    Some servers leave what was thought out of the completion, but not out of the total.
    """
    sent = count_of(usage.get("prompt_tokens") or usage.get("input_tokens"))
    written = count_of(usage.get("completion_tokens") or usage.get("output_tokens"))
    unnamed = max(0, count_of(usage.get("total_tokens")) - sent - written)
    details = object_of(usage.get("completion_tokens_details"))
    cached = object_of(usage.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        input_tokens=sent,
        output_tokens=written + unnamed,
        cached_tokens=count_of(cached or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        reasoning_tokens=count_of(details.get("reasoning_tokens") or usage.get("reasoning_tokens")) or unnamed,
    )


def failure_of(value: Mapping[str, object], event: str = "") -> tuple[str, str] | None:
    """Code and message of an error, in whichever form it comes; None where this is none."""
    error = value.get("error")
    if error or event == "error":
        return _told(error or value)
    if value.get("choices"):
        return None
    base = object_of(value.get("base_resp"))
    if base.get("status_code"):
        return _told(base)
    failed = value.get("object") == "error" or not value.keys().isdisjoint(("detail", "error_code", "error_msg"))
    return _told(value) if failed or (value.get("code") and not value.keys().isdisjoint(_MESSAGES)) else None


def passes(code: str) -> bool:
    """Whether a failure of this code may be gone a moment later."""
    return code.lower() in _RETRYABLE


def _told(error: object) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "error", str(error)
    code = next((error[key] for key in _CODES if error.get(key)), "error")
    return text_of(code), text_of(next((error[key] for key in _MESSAGES if error.get(key)), error))
