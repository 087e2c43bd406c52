"""The output items of one response while they are written, and which of them an event means.

Events name their item by `item_id` and `output_index`. Servers leave either out, fill it with zeros, give one item another id in every
event, or send an event twice; `Items` is the one place that decides. Must not know what items hold.

No answer costs more where there are more items: each is looked up by what it is named by, and of those that share a name at most
`_CANDIDATES` are compared. Only a server that means harm gives one name to more items that are written at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from callgate.models.wire.json_fields import as_text
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import MessageTooLarge

__all__ = ["CALL_GROUP", "OutputItem", "OutputItems", "ReportedText"]

CALL_GROUP = "call"
"""The group of items that are calls; every other kind is a group of its own."""
_CALLS = frozenset({"function_call", "custom_tool_call"})
_CANDIDATES = 32
_ITEMS = 20_000
"""The items that one answer may have: far above any real one, so that small items cannot fill the memory."""

_Key = tuple[object, ...]
_Meets = Callable[["OutputItem"], bool]


class ReportedText:
    """What has been told of one text, in pieces."""

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

    def rest_of(self, text: str) -> str:
        """What a whole text says beyond what was told; nothing where it is another text."""
        return text[self.size :] if self.size <= len(text) and text.startswith(self.text) else ""


class OutputItem:
    """One output item on its way."""

    __slots__ = ("begun", "call", "call_id", "done", "given", "group", "id", "index", "kind", "name", "position", "said", "thought")

    def __init__(self, item: Mapping[str, object], index: object, position: int) -> None:
        self.position = position
        """Among the items of its response."""
        self.kind = as_text(item.get("type"))
        self.group = CALL_GROUP if self.kind in _CALLS else self.kind
        self.id = as_text(item.get("id"))
        self.call_id = as_text(item.get("call_id"))
        self.name = as_text(item.get("name"))
        self.index = _number(index)
        self.begun = item
        self.call: OpenCall | None = None
        self.given: object = item.get("input") if self.kind == "custom_tool_call" else item.get("arguments")
        """The arguments that a call began with; whatever comes later is instead of them."""
        self.thought: dict[str, object] = {}
        """A reasoning item, to be echoed; filled when it is done."""
        self.said: dict[object, ReportedText] = {}
        """What has been told of each of its texts."""
        self.done = False

    @property
    def told(self) -> str:
        return "".join(told.text for told in self.said.values())

    def is_like(self, item: Mapping[str, object]) -> bool:
        """Whether nothing in `item` contradicts that it is this one; ids of items may differ, ids of calls may not."""
        call_id, name = as_text(item.get("call_id")), as_text(item.get("name"))
        return (
            self.kind == as_text(item.get("type"))
            and not (self.call_id and call_id and self.call_id != call_id)
            and not (self.name and name and self.name != name)
        )

    def is_surely(self, item: Mapping[str, object]) -> bool:
        """Whether `item` has this one's id, or its call's."""
        same_id = bool(self.id) and self.id == item.get("id")
        same_call = bool(self.call_id) and self.call_id == item.get("call_id")
        return (same_id or same_call) and self.is_like(item)


class OutputItems:
    """All items that one response has begun."""

    def __init__(self) -> None:
        self._count = 0
        self._named: dict[_Key, list[OutputItem]] = {}
        """All items, in order, by what they are named by."""
        self._unfinished: dict[_Key, OrderedDict[int, OutputItem]] = {}
        self._done: dict[_Key, list[OutputItem]] = {}
        """By name and number."""
        self._begun: list[OutputItem] = []

    def begin(self, item: Mapping[str, object], index: object) -> OutputItem:
        """Take a new item.

        Raises:
            MessageTooLarge: The response has as many as it may have.
        """
        if self._count >= _ITEMS:
            raise MessageTooLarge(f"The answer has more than {_ITEMS} items; nothing more of it is read.")
        begun = OutputItem(item, index, self._count)
        self._count += 1
        self._begun.append(begun)
        for key in _names(begun.group, begun.id, begun.call_id):
            self._named.setdefault(key, []).append(begun)
        for key in _places(begun):
            self._unfinished.setdefault(key, OrderedDict())[begun.position] = begun
        return begun

    def finished(self, item: OutputItem) -> None:
        """An item is done."""
        item.done = True
        for key in _places(item):
            unfinished = self._unfinished.get(key)
            if unfinished is not None and unfinished.pop(item.position, None) is not None and not unfinished:
                del self._unfinished[key]
        for key in _names(item.group, item.id, item.call_id)[1:]:
            self._done.setdefault((*key, item.index), []).append(item)

    def begun_since(self) -> list[OutputItem]:
        """The items that were begun since this was asked last, and are not done."""
        begun, self._begun = self._begun, []
        return [item for item in begun if not item.done]

    def of_event(self, value: Mapping[str, object], group: str) -> OutputItem | None:
        """The item that a piece belongs to: by id and number, by either, else the one that was begun last."""
        item_id, index = as_text(value.get("item_id")), _number(value.get("output_index"))
        by_id: _Key = (group, "id", item_id)
        named = by_id if by_id in self._named else (group,)
        for key in ((*named, "index", index), named):
            if unfinished := self._unfinished.get(key):
                return next(reversed(unfinished.values()))
        return None

    def of_item(self, item: Mapping[str, object], index: object) -> OutputItem | None:
        """The unfinished item that `item` is a fuller form of; None where it is new."""
        group, item_id, call_id = _identity(item)
        number = _number(index)
        names = _names(group, item_id, call_id)
        sure = sorted({one.position: one for key in names[1:] for one in self._first(key, lambda one: one.is_surely(item))}.items())
        if sure:
            return next((one for _, one in sure if number is not None and one.index == number), sure[0][1])
        for key in ((group, "index", number), (group,)):
            if found := self._first(key, lambda one: one.is_like(item)):
                return found[0]
        return None

    def has_had(self, item: Mapping[str, object], index: object, *, done: bool) -> bool:
        """Whether this very item was begun, or done, before: the event is sent twice."""
        number = _number(index)
        for key in _names(*_identity(item))[1:]:
            if done:
                among: Iterable[OutputItem] = self._done.get((*key, number), ())[-_CANDIDATES:]
            else:
                among = self._first(key, lambda one: one.index == number)
            if any(one.is_surely(item) for one in among):
                return True
        return False

    def unseen(self, output: Sequence[Mapping[str, object]]) -> list[tuple[Mapping[str, object], OutputItem | None]]:
        """Those items of a whole response that were not done before, each with the item that was begun for it.

        Items that surely are the same are paired first, then the others of a kind in their order.
        """
        pairing = _ItemPairing(self._named)
        pairs = [pairing.sure(item) for item in output]
        for place, item in enumerate(output):
            pairs[place] = pairs[place] or pairing.like(item)
        return [(item, one) for item, one in zip(output, pairs, strict=True) if one is None or not one.done]

    def _first(self, key: _Key, meets: _Meets) -> list[OutputItem]:
        """Those of the first unfinished items of a name that meet a condition."""
        return [one for one in islice(self._unfinished.get(key, _NONE).values(), _CANDIDATES) if meets(one)]


class _ItemPairing:
    """Pairs the items of a whole response with those that were begun, each with one at most."""

    def __init__(self, named: Mapping[_Key, list[OutputItem]]) -> None:
        self._named = named
        self._taken: set[int] = set()
        self._starts: dict[_Key, int] = {}
        """By name: before this place, all items are taken."""

    def sure(self, item: Mapping[str, object]) -> OutputItem | None:
        """The first item that surely is this one."""
        found = [one for key in _names(*_identity(item))[1:] if (one := self._first(key, lambda one: one.is_surely(item))) is not None]
        return self._take(min(found, key=lambda one: one.position, default=None))

    def like(self, item: Mapping[str, object]) -> OutputItem | None:
        """The first item that may be this one."""
        return self._take(self._first(_names(*_identity(item))[0], lambda one: one.is_like(item)))

    def _first(self, key: _Key, meets: _Meets) -> OutputItem | None:
        items, start = self._named.get(key, []), self._starts.get(key, 0)
        while start < len(items) and items[start].position in self._taken:
            start += 1
        self._starts[key] = start
        candidates = islice(items, start, start + _CANDIDATES)
        return next((one for one in candidates if one.position not in self._taken and meets(one)), None)

    def _take(self, item: OutputItem | None) -> OutputItem | None:
        if item is not None:
            self._taken.add(item.position)
        return item


_NONE: OrderedDict[int, OutputItem] = OrderedDict()


def _identity(item: Mapping[str, object]) -> tuple[str, str, str]:
    """Group, id and call id of an item as it is written."""
    kind = as_text(item.get("type"))
    return CALL_GROUP if kind in _CALLS else kind, as_text(item.get("id")), as_text(item.get("call_id"))


def _names(group: str, item_id: str, call_id: str) -> list[_Key]:
    """What an item is looked up by whatever its number: its group first, then the ids that it has."""
    ids: tuple[tuple[str, str], ...] = (("id", item_id), ("call_id", call_id))
    return [(group,), *((group, kind, name) for kind, name in ids if name)]


def _places(item: OutputItem) -> list[_Key]:
    """What an item is looked up by while it is written."""
    names = _names(item.group, item.id, item.call_id)
    return names if item.index is None else [*names, *((*name, "index", item.index) for name in names)]


def _number(index: object) -> object:
    """An item's number; servers may write anything there."""
    return index if index is None or isinstance(index, (int, float, str)) else str(index)
