"""One call while it is written: its pieces, and where they come to an end. Knows no message and no event."""

from __future__ import annotations

from callgate.messages import ToolCall
from callgate.models.wire.extent import Extent
from callgate.models.wire.halves import joined

__all__ = ["OpenCall"]


class OpenCall:
    """One call while it is written."""

    __slots__ = ("_extent", "_looked", "custom", "cut", "id", "made_id", "name", "opaque", "pieces", "position", "reopened", "sealed")

    def __init__(self, position: int, call_id: str, name: str, *, custom: bool, made_id: bool) -> None:
        self.position = position
        self.id = call_id
        self.name = name
        self.custom = custom
        self.made_id = made_id
        self.opaque: dict[str, object] = {}
        self.cut = False
        """The provider says, or has let be seen, that this call is not whole; nothing seals it then."""
        self.sealed = False
        self.reopened = False
        """Its own end has proved nothing once; only the message's end counts now."""
        self.pieces: list[str] = []
        """The arguments as far as they have come."""
        self._looked = 0
        self._extent = Extent()

    @property
    def arguments(self) -> str:
        if self._looked < len(self.pieces):
            self._look()
        if len(self.pieces) > 1:
            self.pieces, self._looked = [joined(self.pieces)], 1
        return self.pieces[0] if self.pieces else ""

    def ends(self) -> bool:
        """Whether the arguments have come to their own end with the last piece, which has a closing brace."""
        return not self.custom and not self.reopened and self._look()

    @property
    def holds_a_place(self) -> bool:
        """Whether an empty object is all that has come: where another object follows, it stood for that one."""
        return not self.custom and len(self.pieces) == 1 and self.pieces[0].strip() == "{}"

    def restart(self) -> None:
        """What came before was no part of the arguments."""
        self.pieces, self._looked, self._extent = [], 0, Extent()

    def replace(self, text: str) -> None:
        """The provider gave the arguments whole: what came before was a preview."""
        self.restart()
        self.pieces.append(text)
        if "}" in text:
            self.ends()

    @property
    def complete(self) -> bool:
        """Whether the arguments are one whole JSON object by their brackets."""
        return not self.custom and Extent().ends_in(self.arguments)

    def _look(self) -> bool:
        """Read what has come since the last look, and keep it as one piece."""
        alone = len(self.pieces) == 1
        fresh = joined(self.pieces[self._looked :])
        self.pieces[self._looked :] = [fresh]
        self._looked = len(self.pieces)
        return self._extent.ends_in(fresh) and not (alone and fresh.strip() == "{}")

    def call(self, name: str, arguments: str) -> ToolCall:
        return ToolCall(
            id=self.id,
            name=name,
            arguments=arguments,
            custom=self.custom,
            made_id=self.made_id,
            opaque=self.opaque or None,
        )
