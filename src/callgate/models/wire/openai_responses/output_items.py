"""The output items of one response while they are written, and the assignment of events to items.

Events identify their item by `item_id` and `output_index`. Servers leave either out, send zeros, give one item a new id
in every event, or send an event twice; `OutputItems` resolves that. Knows nothing of the items' content.

The cost of an event does not grow with the number of items: each item is looked up by its ids, and at most
`_MAX_CANDIDATES` of the items that share an id are compared. Only a hostile server gives the same id to more items at a
time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from callgate.models.wire.json_fields import as_text
from callgate.models.wire.server_errors import MessageTooLarge
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["CALL_GROUP", "CALL_KINDS", "OutputItem", "OutputItems", "ReportedText"]

CALL_GROUP = "call"
"""The group of items that are calls; every other kind is a group of its own."""
CALL_KINDS = frozenset({"function_call", "custom_tool_call"})
_MAX_CANDIDATES = 32
_MAX_ITEMS = 20_000
"""Maximum number of items: far above any real answer, so that small items cannot fill the memory."""

_Key = tuple[object, ...]
_Condition = Callable[["OutputItem"], bool]


class ReportedText:
    """The pieces of one text that were reported."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def unreported_part(self, text: str) -> str:
        """Return the part of a whole text that was not reported yet.

        Empty if the whole text differs from the reported pieces.
        """
        return text[self.size :] if self.size <= len(text) and text.startswith(self.text) else ""


class OutputItem:
    """One output item while it is written."""

    __slots__ = (
        "call",
        "call_id",
        "done",
        "group",
        "id",
        "index",
        "initial",
        "initial_arguments",
        "kept",
        "kind",
        "name",
        "position",
        "reported",
    )

    def __init__(self, item: Mapping[str, object], index: object, position: int) -> None:
        self.position = position
        """Position among the items of the response."""
        self.kind = as_text(item.get("type"))
        self.group = CALL_GROUP if self.kind in CALL_KINDS else self.kind
        self.id = as_text(item.get("id"))
        self.call_id = as_text(item.get("call_id"))
        self.name = as_text(item.get("name"))
        self.index = _index_key(index)
        self.initial = item
        self.call: OpenCall | None = None
        self.initial_arguments: object = item.get("input") if self.kind == "custom_tool_call" else item.get("arguments")
        """The arguments that the call began with. Arguments that arrive later replace them."""
        self.kept: dict[str, object] = {}
        """The fields of reasoning, or of a message beside its text, that are sent back; filled when the item is done."""
        self.reported: dict[object, ReportedText] = {}
        """The reported pieces of each of its texts."""
        self.done = False

    @property
    def reported_text(self) -> str:
        return "".join(reported.text for reported in self.reported.values())

    def may_be(self, item: Mapping[str, object]) -> bool:
        """Whether `item` may be this item: its kind is the same, and neither its call id nor its name differs.

        Item ids may differ, because servers change them.
        """
        call_id, name = as_text(item.get("call_id")), as_text(item.get("name"))
        return (
            self.kind == as_text(item.get("type"))
            and not (self.call_id and call_id and self.call_id != call_id)
            and not (self.name and name and self.name != name)
        )

    def is_renamed(self, item: Mapping[str, object]) -> bool:
        """Whether `item` is a call of the same tool, with another call id."""
        return self.group == CALL_GROUP and self.kind == as_text(item.get("type")) and self.name == as_text(item.get("name"))

    def is_same(self, item: Mapping[str, object]) -> bool:
        """Whether `item` has the same id, or the same call id."""
        same_id = bool(self.id) and self.id == item.get("id")
        same_call = bool(self.call_id) and self.call_id == item.get("call_id")
        return (same_id or same_call) and self.may_be(item)


class OutputItems:
    """All items that one response has begun."""

    def __init__(self) -> None:
        self._count = 0
        self._by_name: dict[_Key, list[OutputItem]] = {}
        """All items, in order, by each of their keys."""
        self._unfinished: dict[_Key, OrderedDict[int, OutputItem]] = {}
        self._done: dict[_Key, list[OutputItem]] = {}
        """Finished items by key and index."""
        self._recently_begun: list[OutputItem] = []

    def begin(self, item: Mapping[str, object], index: object) -> OutputItem:
        """Add a new item.

        Raises:
            MessageTooLarge: The response has the maximum number of items.
        """
        if self._count >= _MAX_ITEMS:
            raise MessageTooLarge(f"The answer has more than {_MAX_ITEMS} items; the rest is not read.")
        new_item = OutputItem(item, index, self._count)
        self._count += 1
        self._recently_begun.append(new_item)
        for key in _keys(new_item.group, new_item.id, new_item.call_id):
            self._by_name.setdefault(key, []).append(new_item)
        for key in _open_keys(new_item):
            self._unfinished.setdefault(key, OrderedDict())[new_item.position] = new_item
        return new_item

    def finish(self, item: OutputItem) -> None:
        """Mark an item as done."""
        item.done = True
        for key in _open_keys(item):
            unfinished = self._unfinished.get(key)
            if unfinished is not None and unfinished.pop(item.position, None) is not None and not unfinished:
                del self._unfinished[key]
        for key in _keys(item.group, item.id, item.call_id)[1:]:
            self._done.setdefault((*key, item.index), []).append(item)

    def take_unfinished(self) -> list[OutputItem]:
        """Return the items that began since the last call of this method and are not done."""
        begun, self._recently_begun = self._recently_begun, []
        return [item for item in begun if not item.done]

    def find_by_event(self, value: Mapping[str, object], group: str) -> OutputItem | None:
        """Return the item that an event adds to; None if no unfinished item fits.

        An item with a known id is found by id and index, then by id alone. If the id is unknown, the item is found by
        its index; if that fails, the last item of the group that began is returned.
        """
        item_id, index = as_text(value.get("item_id")), _index_key(value.get("output_index"))
        by_id: _Key = (group, "id", item_id)
        named = by_id if by_id in self._by_name else (group,)
        for key in ((*named, "index", index), named):
            if unfinished := self._unfinished.get(key):
                return next(reversed(unfinished.values()))
        return None

    def find_by_item(self, item: Mapping[str, object], index: object) -> OutputItem | None:
        """Return the unfinished item that `item` completes; None if `item` is new."""
        group, item_id, call_id = _identify(item)
        number = _index_key(index)
        names = _keys(group, item_id, call_id)
        same = sorted({one.position: one for key in names[1:] for one in self._candidates(key, lambda one: one.is_same(item))}.items())
        if same:
            return next((one for _, one in same if number is not None and one.index == number), same[0][1])
        for key in ((group, "index", number), (group,)):
            if found := self._candidates(key, lambda one: one.may_be(item)):
                return found[0]
        renamed = self._candidates((group, "id", item_id, "index", number), lambda one: one.is_renamed(item)) if number is not None else []
        return next(iter(renamed), None)

    def is_repeated(self, item: Mapping[str, object], index: object, *, done: bool) -> bool:
        """Whether an event that begins or ends this item arrived before, so that the server sent it twice."""
        number = _index_key(index)
        for key in _keys(*_identify(item))[1:]:
            if done:
                candidates: Iterable[OutputItem] = self._done.get((*key, number), ())[-_MAX_CANDIDATES:]
            else:
                candidates = self._candidates(key, lambda one: one.index == number)
            if any(one.is_same(item) for one in candidates):
                return True
        return False

    def match_output(self, output: Sequence[Mapping[str, object]]) -> list[tuple[Mapping[str, object], OutputItem | None]]:
        """Return the items of a whole response, each with the item that was begun for it, or None.

        Items with the same ids are paired first. The others are then paired with items of the same kind, in order, and calls that have got
        another call id with a call of the same tool.
        """
        pairing = _ItemPairing(self._by_name)
        pairs = [pairing.find_same(item) for item in output]
        for find in (pairing.find_similar, pairing.find_renamed):
            for number, item in enumerate(output):
                pairs[number] = pairs[number] or find(item)
        return list(zip(output, pairs, strict=True))

    def new_calls_except(self, found: Iterable[OutputItem | None]) -> list[OpenCall]:
        """Return the calls that began since the last call of `take_unfinished`, without those of the items in `found`."""
        positions = {one.position for one in found if one is not None}
        return [one.call for one in self._recently_begun if one.call is not None and one.position not in positions]

    def _candidates(self, key: _Key, condition: _Condition) -> list[OutputItem]:
        """Return at most `_MAX_CANDIDATES` unfinished items with this key, without those that fail the condition."""
        return [one for one in islice(self._unfinished.get(key, _NO_ITEMS).values(), _MAX_CANDIDATES) if condition(one)]


class _ItemPairing:
    """Pairs each item of a whole response with at most one item that was begun."""

    def __init__(self, by_name: Mapping[_Key, list[OutputItem]]) -> None:
        self._by_name = by_name
        self._taken: set[int] = set()
        self._first_free: dict[_Key, int] = {}
        """For each key, the index before which all items are paired."""

    def find_same(self, item: Mapping[str, object]) -> OutputItem | None:
        """Return the first item with the same id."""
        found = [one for key in _keys(*_identify(item))[1:] if (one := self._first_match(key, lambda one: one.is_same(item))) is not None]
        return self._take(min(found, key=lambda one: one.position, default=None))

    def find_similar(self, item: Mapping[str, object]) -> OutputItem | None:
        """Return the first item that may be this one."""
        return self._take(self._first_match(_keys(*_identify(item))[0], lambda one: one.may_be(item)))

    def find_renamed(self, item: Mapping[str, object]) -> OutputItem | None:
        """Return the first call that may be this one, although its call id differs."""
        return self._take(self._first_match(_keys(*_identify(item))[0], lambda one: one.is_renamed(item)))

    def _first_match(self, key: _Key, condition: _Condition) -> OutputItem | None:
        items, start = self._by_name.get(key, []), self._first_free.get(key, 0)
        while start < len(items) and items[start].position in self._taken:
            start += 1
        self._first_free[key] = start
        candidates = islice(items, start, start + _MAX_CANDIDATES)
        return next((one for one in candidates if one.position not in self._taken and condition(one)), None)

    def _take(self, item: OutputItem | None) -> OutputItem | None:
        if item is not None:
            self._taken.add(item.position)
        return item


_NO_ITEMS: OrderedDict[int, OutputItem] = OrderedDict()


def _identify(item: Mapping[str, object]) -> tuple[str, str, str]:
    """Return group, id and call id of an item."""
    kind = as_text(item.get("type"))
    return CALL_GROUP if kind in CALL_KINDS else kind, as_text(item.get("id")), as_text(item.get("call_id"))


def _keys(group: str, item_id: str, call_id: str) -> list[_Key]:
    """Return the keys of an item regardless of its index: its group first, then its ids."""
    ids: tuple[tuple[str, str], ...] = (("id", item_id), ("call_id", call_id))
    return [(group,), *((group, kind, name) for kind, name in ids if name)]


def _open_keys(item: OutputItem) -> list[_Key]:
    """Return the keys of an item while it is written."""
    names = _keys(item.group, item.id, item.call_id)
    return names if item.index is None else [*names, *((*name, "index", item.index) for name in names)]


def _index_key(index: object) -> object:
    """Return an item's index as a hashable value; servers may send any type."""
    return index if index is None or isinstance(index, (int, float, str)) else str(index)
