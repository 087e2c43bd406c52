"""Collect provider-specific fields of an answer that the server requires back: reasoning details, signatures and the like.

They arrive whole or in pieces; a piece belongs to the last item with its type and index. Does not interpret them.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.wire.json_fields import as_objects

__all__ = ["PROVIDER_FIELDS", "THINKING_MARKS", "ProviderFields"]

PROVIDER_FIELDS = ("reasoning_details", "thinking_blocks", "reasoning_opaque")
"""The fields: of OpenRouter, of LiteLLM, of GitHub Copilot."""
THINKING_MARKS = ("signature", "closed")
"""The fields beside the text of a thought in the content, as of Mistral."""
_TEXT_KEYS = frozenset({"text", "summary", "data", "thinking"})
_END_KEYS = ("signature", "data")
"""An item ends with one of these."""


class ProviderFields:
    """The provider-specific fields of one message."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        """The fields as they are sent back; texts in pieces are joined at the end."""
        self._items: dict[str, list[dict[str, object]]] = {}
        self._pieces: dict[str, dict[str, list[str]]] = {}
        """By field: the texts of its last item that arrived in several pieces."""

    def add(self, delta: Mapping[str, object]) -> bool:
        """Add the provider-specific fields of a delta; return whether there were any."""
        found = [field for field in PROVIDER_FIELDS if delta.get(field)]
        for field in found:
            value = delta[field]
            if not isinstance(value, list):
                self.fields[field] = value
                continue
            if field not in self.fields:
                self.fields[field] = self._items[field] = []
            for item in as_objects(value) if self.fields[field] is self._items.get(field) else ():
                self._add_item(field, item)
        return bool(found)

    def join_pieces(self) -> None:
        """Join the texts that arrived in pieces."""
        for field in list(self._pieces):
            self._join_pieces(field)

    def _add_item(self, field: str, item: Mapping[str, object]) -> None:
        items = self._items[field]
        last = items[-1] if items else None
        if last is None or not _continues(last, item):
            self._join_pieces(field)
            items.append(dict(item))
            return
        pieces = self._pieces.setdefault(field, {})
        for key, value in item.items():
            before = last.get(key)
            if key in _TEXT_KEYS and isinstance(value, str) and isinstance(before, str) and before:
                pieces.setdefault(key, [before]).append(value)
            elif value is not None:
                last[key] = value
                pieces.pop(key, None)

    def _join_pieces(self, field: str) -> None:
        for key, pieces in self._pieces.pop(field, {}).items():
            self._items[field][-1][key] = "".join(pieces)


def _continues(last: Mapping[str, object], item: Mapping[str, object]) -> bool:
    same = all(last.get(key) == item.get(key) for key in ("type", "index"))
    return same and not any(last.get(key) for key in _END_KEYS)
