"""What a server wants back with its own answers, beside the text of the thought: signatures and the like, in fields of its own.

They come whole or in pieces; a piece belongs to the item of its kind and number that came last. Knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.models.wire.fields import items_of

__all__ = ["ECHOED", "grow"]

ECHOED = ("reasoning_details", "thinking_blocks", "reasoning_opaque")
"""The fields: of OpenRouter, of LiteLLM, of GitHub's Copilot."""
_GROW = frozenset({"text", "summary", "data", "thinking"})
_ENDS = ("signature", "data")
"""What an item ends with."""


def grow(echo: dict[str, object], delta: Mapping[str, object]) -> bool:
    """Add what a delta has of these fields; tells whether there was anything."""
    found = [key for key in ECHOED if delta.get(key)]
    for key in found:
        value = delta[key]
        if isinstance(value, list):
            kept = echo.setdefault(key, [])
            if isinstance(kept, list):
                _add(kept, items_of(value))
        else:
            echo[key] = value
    return bool(found)


def _add(kept: list[dict[str, object]], items: Sequence[Mapping[str, object]]) -> None:
    for item in items:
        last = kept[-1] if kept else None
        if last is None or not _goes_on(last, item):
            kept.append(dict(item))
            continue
        for key, value in item.items():
            before = last.get(key)
            if key in _GROW and isinstance(before, str) and isinstance(value, str):
                last[key] = before + value
            elif value is not None:
                last[key] = value


def _goes_on(last: Mapping[str, object], item: Mapping[str, object]) -> bool:
    same = all(last.get(key) == item.get(key) for key in ("type", "index"))
    return same and not any(last.get(key) for key in _ENDS)
