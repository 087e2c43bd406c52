"""What servers of this form say of a message's cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import Usage
from callgate.models.wire.fields import count_of, object_of

__all__ = ["usage_of"]


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
