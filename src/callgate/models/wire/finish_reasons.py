"""Why a message ended, in the words that go around among servers: each API's own come first, these are for whoever borrows another's."""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason

__all__ = ["finish_reason"]

_REASONS: Mapping[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_length", "max_output_tokens", "token_limit"), "length"),
    **dict.fromkeys(("context_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "recitation", "prohibited_content", "refusal"), "content_filter"),
    **dict.fromkeys(("error", "abort", "network_error", "insufficient_system_resource", "function_call_filter"), "error"),
    "malformed_function_call": "error",
}


def finish_reason(said: str, own: Mapping[str, FinishReason] = {}) -> FinishReason:
    """The reason that a word means; only its beginning counts where a colon follows, as Gemini's own reason does elsewhere.

    Args:
        said: The server's word.
        own: What an API's words mean there, whatever they mean elsewhere.
    """
    return own.get(said) or _REASONS.get(said.lower().partition(":")[0].strip(), "other")
