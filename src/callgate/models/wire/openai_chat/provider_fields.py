"""What a server wants back with its own answers, beside the text of the thought: signatures and the like, in fields of its own.

They come whole or in pieces; a piece belongs to the item of its kind and number that came last. Knows nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.wire.json_fields import as_objects

__all__ = ["PROVIDER_FIELDS", "ProviderFields"]

PROVIDER_FIELDS = ("reasoning_details", "thinking_blocks", "reasoning_opaque")
"""The fields: of OpenRouter, of LiteLLM, of GitHub's Copilot."""
_GROW = frozenset({"text", "summary", "data", "thinking"})
_ENDS = ("signature", "data")
"""What an item ends with."""


class ProviderFields:
    """These fields of one message."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        """The fields as they go back; texts in pieces only once they are put together."""
        self._items: dict[str, list[dict[str, object]]] = {}
        self._pieces: dict[str, dict[str, list[str]]] = {}
        """By field: the texts of its last item that came in more than one piece."""

    def grow(self, delta: Mapping[str, object]) -> bool:
        """Add what a delta has of these fields; tells whether there was anything."""
        found = [field for field in PROVIDER_FIELDS if delta.get(field)]
        for field in found:
            value = delta[field]
            if not isinstance(value, list):
                self.fields[field] = value
                continue
            if field not in self.fields:
                self.fields[field] = self._items[field] = []
            for item in as_objects(value) if self.fields[field] is self._items.get(field) else ():
                self._add(field, item)
        return bool(found)

    def put_together(self) -> None:
        """Join the texts that came in pieces."""
        for field in list(self._pieces):
            self._join(field)

    def _add(self, field: str, item: Mapping[str, object]) -> None:
        items = self._items[field]
        last = items[-1] if items else None
        if last is None or not _goes_on(last, item):
            self._join(field)
            items.append(dict(item))
            return
        pieces = self._pieces.setdefault(field, {})
        for key, value in item.items():
            before = last.get(key)
            if key in _GROW and isinstance(value, str) and isinstance(before, str) and before:
                pieces.setdefault(key, [before]).append(value)
            elif value is not None:
                last[key] = value
                pieces.pop(key, None)

    def _join(self, field: str) -> None:
        for key, pieces in self._pieces.pop(field, {}).items():
            self._items[field][-1][key] = "".join(pieces)


def _goes_on(last: Mapping[str, object], item: Mapping[str, object]) -> bool:
    same = all(last.get(key) == item.get(key) for key in ("type", "index"))
    return same and not any(last.get(key) for key in _ENDS)
