"""Index the calls of a message, to detect calls that a server sends twice. Knows no event."""

from __future__ import annotations

from callgate.models.wire.streaming_call import OpenCall, canonical_form

__all__ = ["CallIndex"]


class CallIndex:
    """The calls of one message, by the server's id. Complete calls are also indexed by id, name and arguments."""

    def __init__(self) -> None:
        self._by_id: dict[str, OpenCall] = {}
        self._unindexed: list[OpenCall] = []
        """Complete calls that are not indexed by content yet. They are indexed on the first lookup, which most
        messages never need.
        """
        self._by_content: dict[tuple[str, str, bytes], OpenCall] = {}

    def add_id(self, call: OpenCall) -> None:
        """Index a call by the id that the server gave it; the first call with an id counts."""
        self._by_id.setdefault(call.id, call)

    def add_complete(self, call: OpenCall) -> None:
        """Add a call whose arguments are now one whole object, or whose name has changed since."""
        self._unindexed.append(call)

    def by_id(self, call_id: str) -> OpenCall | None:
        """Return the first call with this id."""
        return self._by_id.get(call_id)

    def contains(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a complete call with this id, name and JSON arguments is in the message."""
        if not arguments or call_id not in self._by_id:
            return False
        for call in self._unindexed:
            self._by_content[call.id, call.name, call.arguments.canonical] = call
        self._unindexed.clear()
        key = (call_id, name, canonical_form(arguments))
        found = self._by_content.get(key)
        return found is not None and found.arguments.complete and key == (found.id, found.name, found.arguments.canonical)
