"""Assign the pieces of a chat completion to their calls.

Servers identify the call of a piece by index, by id, by both, by an index that is always 0, or not at all. Some send
complete calls a second time. Knows nothing of a message's other parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate._provider_calls import chat_payload
from callgate.models.wire.json_fields import as_arguments, as_text
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["CallMatcher"]


class CallMatcher:
    """Assigns pieces to the calls of one message.

    Args:
        message: Receives the calls.
    """

    def __init__(self, message: MessageAssembly) -> None:
        self._message = message
        self._by_index: dict[int, OpenCall] = {}

    def add(self, items: Sequence[Mapping[str, object]]) -> None:
        """Read one list of calls, or of pieces."""
        calls_before = len(self._message.calls)
        for item in items:
            self._add_item(item, calls_before)

    def _add_item(self, item: Mapping[str, object], calls_before: int) -> None:
        """Read one item of a list; `calls_before` is the number of calls before that list."""
        payload, is_custom = chat_payload(item)
        is_custom = is_custom and isinstance(payload, dict)
        fields = payload if isinstance(payload, dict) else item
        name = as_text(fields.get("name"))
        arguments = as_arguments(fields.get("input") if is_custom else fields.get("arguments", fields.get("parameters")))
        call_id = _call_id(item)
        if name and self._message.has_call(call_id, name, arguments):
            return
        call = self._find_call(item, name, arguments, calls_before)
        if call is None and not (name or arguments or call_id):
            return  # a placeholder for a call
        if call is not None and name and call.arguments.complete and call.arguments.equals(arguments):
            return  # the whole call, sent again
        if call is None:
            call = self._message.open_call(call_id, name, custom=is_custom)
        index = _index(item)
        if index is not None:
            self._by_index[index] = call
        extra = item.get("extra_content")
        if extra is not None:
            call.opaque["extra_content"] = extra
            if self._message.server:
                call.opaque["server"] = self._message.server
        self._message.append_arguments(call, arguments)

    def _find_call(self, item: Mapping[str, object], name: str, arguments: str, calls_before: int) -> OpenCall | None:
        """Return the call that a piece continues; None if it begins one."""
        index, call_id = _index(item), _call_id(item)
        calls = self._message.calls
        known = self._by_index.get(index) if index is not None else calls[-1] if calls else None
        if known is None:
            return None
        if name and known.position >= calls_before and not (call_id == known.id and name == known.name):
            return None  # the items of one list are different calls
        if call_id and not known.made_id and call_id != known.id:
            same = self._message.call_by_id(call_id)
            unnamed = known if index is not None and not known.arguments.complete else None  # some servers give every piece a new id
            if not name:
                return same or unnamed
            return next((call for call in (same, unnamed) if call is not None and _continues(call, name, arguments)), None)
        if name and arguments and known.arguments.complete and not (call_id and call_id == known.id and known.arguments.equals(arguments)):
            return None  # a whole call with an index that is already used
        if name and known.name != name:
            if known.name and known.arguments.size:
                return None
            self._message.append_name(known, name)
        if call_id and known.made_id:
            self._message.set_call_id(known, call_id)
        return known


def _continues(call: OpenCall, name: str, arguments: str) -> bool:
    """Whether a piece that repeats the name continues the call's arguments.

    It does if the arguments are incomplete and the piece does not begin an object.
    """
    open_json = call.arguments.size > 0 and not call.custom and not call.arguments.complete
    return open_json and call.name == name and not arguments.lstrip().startswith("{")


def _call_id(item: Mapping[str, object]) -> str:
    """Return the id of a piece's call; empty if it has none. A dict of Mistral's SDK has the text `null` for a missing id."""
    call_id = as_text(item.get("id"))
    return "" if call_id == "null" else call_id


def _index(item: Mapping[str, object]) -> int | None:
    index = item.get("index")
    if isinstance(index, int):
        return index
    return int(index) if isinstance(index, str) and index.isdecimal() else None
