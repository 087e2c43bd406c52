"""Finish reasons that many servers share.

Each API's own words take precedence over these, which are for servers that use the words of another API.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason

__all__ = ["finish_reason"]

_COMMON_REASONS: Mapping[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length", "max_output_tokens", "token_limit"), "length"),
    **dict.fromkeys(("context_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("guardrail", "guardrails", "guardrail_intervened", "moderation"), "content_filter"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "recitation", "prohibited_content", "refusal"), "content_filter"),
    **dict.fromkeys(("error", "abort", "network_error", "insufficient_system_resource", "function_call_filter"), "error"),
    **dict.fromkeys(("malformed_function_call", "timeout", "repetition"), "error"),
}


def finish_reason(provider_reason: str, own_reasons: Mapping[str, FinishReason] = {}) -> FinishReason:
    """Return the finish reason for a server's word. Only the part before a colon counts.

    Args:
        provider_reason: The server's word.
        own_reasons: The API's own words, which take precedence.
    """
    return own_reasons.get(provider_reason) or _COMMON_REASONS.get(provider_reason.lower().partition(":")[0].strip(), "other")
