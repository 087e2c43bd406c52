"""One call while it is written: its pieces, and where they come to an end. Knows no message and no event.

Nothing here costs more than what has come since it was last asked: a server may repeat itself with every piece.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from callgate._json import canonical
from callgate.messages import ToolCall
from callgate.models.wire.json_extent import JsonExtent
from callgate.models.wire.surrogate_pairs import join_text

__all__ = ["OpenCall", "canonical_form"]


class OpenCall:
    """One call while it is written."""

    __slots__ = (
        "_begin",
        "_came",
        "_complete",
        "_extent",
        "_form",
        "_looked",
        "_pieces",
        "custom",
        "cut",
        "id",
        "lifted",
        "made_id",
        "name",
        "opaque",
        "position",
        "reasoning",
        "reopened",
        "sealed",
        "size",
    )

    def __init__(self, position: int, call_id: str, name: str, *, custom: bool, made_id: bool) -> None:
        self.position = position
        self.id = call_id
        self.name = name
        self.custom = custom
        self.made_id = made_id
        self.opaque: dict[str, object] = {}
        self.reasoning = ""
        self.lifted = False
        self.cut = False
        """The provider says, or has let be seen, that this call is not whole; nothing seals it then."""
        self.sealed = False
        self.reopened = False
        """Its own end has proved nothing once; only the message's end counts now."""
        self.reset()

    def reset(self) -> None:
        """What came before was no part of the arguments."""
        self.size = 0
        """Of the arguments as far as they have come, in characters."""
        self._pieces: list[str] = []
        self._looked = 0
        """How many of the pieces the extent has read."""
        self._extent = JsonExtent()
        self._complete = False
        self._came = 0
        self._begin = ""
        """The first three characters that are not white space around the arguments."""
        self._form: bytes | None = None

    def append(self, text: str) -> None:
        """Take the next piece of the arguments."""
        self._pieces.append(text)
        self.size += len(text)
        self._came += 1
        self._form = self._form if text.isspace() else None
        if len(self._begin) < 3:
            self._begin = (self._begin + text).strip()[:3]

    @property
    def arguments(self) -> str:
        """The pieces as one text. Costs their whole size whenever a piece has come since."""
        if len(self._pieces) > 1:
            _ = self.complete
            self._pieces, self._looked = [join_text(self._pieces)], 1
        return self._pieces[0] if self._pieces else ""

    @property
    def complete(self) -> bool:
        """Whether the arguments are one whole JSON object by their brackets."""
        for place in range(self._looked, len(self._pieces)):
            self._complete = self._extent.ends_in(self._pieces[place])
        self._looked = len(self._pieces)
        return self._complete and not self.custom

    def proves_its_end(self) -> bool:
        """Whether the arguments have come to their own end. An empty object that came in one piece may only hold their place."""
        return not self.reopened and self.complete and not (self._came == 1 and self._begin == "{}")

    @property
    def is_placeholder(self) -> bool:
        """Whether an empty object is all that has come: where another object follows, it stood for that one."""
        return not self.custom and self._begin == "{}"

    def replace(self, text: str) -> None:
        """The provider gave the arguments whole: what came before was a preview."""
        self.reset()
        self.append(text)

    def may_be_prefix_of(self, text: str) -> bool:
        """Whether `text` is long enough to begin with the arguments so far, of which each half of a character counts as one."""
        return self.size <= 2 * len(text)

    def has_arguments(self, text: str) -> bool:
        """Whether the arguments so far are this very text."""
        return self.may_be_prefix_of(text) and self.arguments == text

    @property
    def canonical_arguments(self) -> bytes:
        """What arguments have in common that say the same in other white space or another order."""
        if self._form is None:
            self._form = canonical_form(self.arguments)
        return self._form

    def to_tool_call(self, name: str, arguments: str) -> ToolCall:
        return ToolCall(
            id=self.id,
            name=name,
            arguments=arguments,
            custom=self.custom,
            made_id=self.made_id,
            opaque=self.opaque or None,
            reasoning=self.reasoning or UNSET,
            lifted=self.lifted or UNSET,
        )


def canonical_form(arguments: str) -> bytes:
    """The same bytes for texts that are the same JSON value, 1 and 1.0 among them; the text itself where it is none."""
    try:
        return canonical(_decode(arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments.encode("utf-8", "surrogatepass")


def _plain_number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


_decode = msgspec.json.Decoder(float_hook=_plain_number).decode
