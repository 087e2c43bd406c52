"""Which calls of a message came before, whole and under their id: some servers send calls twice. Knows no event."""

from __future__ import annotations

from callgate.models.wire.open_call import OpenCall, canonical_form

__all__ = ["CallIndex"]


class CallIndex:
    """The calls of one message by the id that the server gave them, and by what they say once they are complete."""

    def __init__(self) -> None:
        self._by_id: dict[str, OpenCall] = {}
        self._fresh: list[OpenCall] = []
        """Complete calls that nobody has asked about yet: most ids are never asked about twice."""
        self._by_form: dict[tuple[str, str, bytes], OpenCall] = {}

    def identified(self, call: OpenCall) -> None:
        """Note the id that the server gave a call; the first call with it counts."""
        self._by_id.setdefault(call.id, call)

    def completed(self, call: OpenCall) -> None:
        """Note a call whose arguments are one whole object now, or whose name has changed since."""
        self._fresh.append(call)

    def with_id(self, call_id: str) -> OpenCall | None:
        """The first call of this id."""
        return self._by_id.get(call_id)

    def has(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether this very call has come before."""
        if not arguments or call_id not in self._by_id:
            return False
        for call in self._fresh:
            self._by_form[call.id, call.name, call.canonical_arguments] = call
        self._fresh.clear()
        form = canonical_form(arguments)
        found = self._by_form.get((call_id, name, form))
        return found is not None and found.complete and (found.id, found.name, found.canonical_arguments) == (call_id, name, form)
