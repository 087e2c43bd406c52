"""Which calls of a message are incomplete because a limit or the provider ended the message, as `engine.respond` decides it.

A framework may have completed the JSON of such a call, or the provider may have, so its arguments look valid. Must not know any framework.
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate.models.model_events import FinishReason
from callgate.models.wire.finish_reasons import finish_reason

__all__ = ["cut_calls"]

_BROKEN: frozenset[FinishReason] = frozenset({"content_filter", "error"})


def cut_calls(ids: Sequence[str], *reasons: object) -> Sequence[str]:
    """Return the ids of the calls of a message that must not run.

    After a limit, the last call may be incomplete; if the provider blocked the message or failed, every call may be.

    Args:
        ids: The ids of the message's calls, in order.
        reasons: Why the message ended, in the words of a provider or framework. Unknown words are ignored.
    """
    found = {finish_reason(reason, {"incomplete": "length"}) for reason in reasons if isinstance(reason, str)}
    if found & _BROKEN:
        return ids
    return ids[-1:] if "length" in found else ()
