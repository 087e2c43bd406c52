"""The output items of one response while they are written, and which of them an event means.

Events name their item by `item_id` and `output_index`. Servers leave either out, fill it with zeros, give one item another id in every
event, or send an event twice; `Items` is the one place that decides. Must not know what items hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.models.wire.fields import text_of
from callgate.models.wire.open_call import OpenCall

__all__ = ["Items", "OutputItem"]


class OutputItem:
    """One output item on its way."""

    __slots__ = ("begun", "call", "call_id", "done", "given", "id", "index", "kind", "name", "said", "thought")

    def __init__(self, item: Mapping[str, object], index: object) -> None:
        self.kind = text_of(item.get("type"))
        self.id = text_of(item.get("id"))
        self.call_id = text_of(item.get("call_id"))
        self.name = text_of(item.get("name"))
        self.index = index
        self.begun = item
        self.call: OpenCall | None = None
        self.given: object = item.get("input") if self.kind == "custom_tool_call" else item.get("arguments")
        """The arguments that a call began with; whatever comes later is instead of them."""
        self.thought: dict[str, object] = {}
        """A reasoning item, to be echoed; filled when it is done."""
        self.said: dict[object, list[str]] = {}
        """What has been told of each of its texts."""
        self.done = False

    @property
    def told(self) -> str:
        return "".join(piece for pieces in self.said.values() for piece in pieces)

    def is_like(self, item: Mapping[str, object]) -> bool:
        """Whether nothing in `item` contradicts that it is this one; ids of items may differ, ids of calls may not."""
        call_id, name = text_of(item.get("call_id")), text_of(item.get("name"))
        return (
            self.kind == text_of(item.get("type"))
            and not (self.call_id and call_id and self.call_id != call_id)
            and not (self.name and name and self.name != name)
        )

    def is_surely(self, item: Mapping[str, object]) -> bool:
        """Whether `item` has this one's id, or its call's."""
        same_id = bool(self.id) and self.id == item.get("id")
        same_call = bool(self.call_id) and self.call_id == item.get("call_id")
        return (same_id or same_call) and self.is_like(item)


class Items:
    """All items that one response has begun."""

    def __init__(self) -> None:
        self.all: list[OutputItem] = []

    def begin(self, item: Mapping[str, object], index: object) -> OutputItem:
        begun = OutputItem(item, index)
        self.all.append(begun)
        return begun

    def of_event(self, value: Mapping[str, object], *kinds: str) -> OutputItem | None:
        """The item that a piece belongs to: by id and number, by either, else the one that was begun last."""
        item_id, index = text_of(value.get("item_id")), value.get("output_index")
        fitting = [item for item in reversed(self.all) if item.kind in kinds]
        named = [item for item in fitting if item_id and item.id == item_id]
        if named:
            fitting = named
        numbered = [item for item in fitting if index is not None and item.index == index and not item.done]
        return next((item for item in (*numbered, *fitting) if not item.done), None)

    def of_item(self, item: Mapping[str, object], index: object) -> OutputItem | None:
        """The unfinished item that `item` is a fuller form of; None where it is new."""
        unfinished = [one for one in self.all if not one.done and one.is_like(item)]
        sure = [one for one in unfinished if one.is_surely(item)]
        numbered = [one for one in sure or unfinished if index is not None and one.index == index]
        return next(iter((*numbered, *sure, *unfinished)), None)

    def has_had(self, item: Mapping[str, object], index: object, *, done: bool) -> bool:
        """Whether this very item was begun, or done, before: the event is sent twice."""
        return any(one.done is done and one.index == index and one.is_surely(item) for one in self.all)

    def unseen(self, output: Sequence[Mapping[str, object]]) -> list[tuple[Mapping[str, object], OutputItem | None]]:
        """Those items of a whole response that were not done before, each with the item that was begun for it.

        Items that surely are the same are paired first, then the others of a kind in their order.
        """
        rest = list(self.all)
        pairs: list[OutputItem | None] = []
        for item in output:
            pairs.append(next((one for one in rest if one.is_surely(item)), None))
            rest = [one for one in rest if one is not pairs[-1]]
        for place, item in enumerate(output):
            if pairs[place] is None:
                pairs[place] = found = next((one for one in rest if one.is_like(item)), None)
                rest = [one for one in rest if one is not found]
        return [(item, one) for item, one in zip(output, pairs, strict=True) if one is None or not one.done]
