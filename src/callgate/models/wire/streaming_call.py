"""One call while it is written, and its arguments while they arrive: their pieces, and where they end. Knows no message and no event.

No method costs more than the pieces that arrived since its last use, because a server may send the arguments again with
every piece.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from callgate._json import canonical
from callgate.messages import ToolCall
from callgate.models.wire.json_extent import JsonExtent
from callgate.models.wire.surrogate_pairs import join_text

__all__ = ["OpenCall", "StreamedArguments", "canonical_form"]


class OpenCall:
    """One call while it is written."""

    __slots__ = ("arguments", "custom", "cut", "id", "lifted", "made_id", "name", "opaque", "position", "reasoning", "reopened", "sealed")

    def __init__(self, position: int, call_id: str, name: str, *, custom: bool, made_id: bool) -> None:
        self.position = position
        self.id = call_id
        self.name = name
        self.custom = custom
        self.made_id = made_id
        self.arguments = StreamedArguments(free_text=custom)
        self.opaque: dict[str, object] = {}
        self.reasoning = ""
        self.lifted = False
        self.cut = False
        """Whether the call is known to be incomplete. It is then never sealed."""
        self.sealed = False
        self.reopened = False
        """Whether more arguments arrived after the call's own end. Only the end of the message can then seal it."""

    def discard_arguments(self) -> None:
        """Discard the arguments so far, because they were a preview or a placeholder."""
        self.arguments = StreamedArguments(free_text=self.custom)

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


class StreamedArguments:
    """The arguments of a call while they arrive.

    Args:
        free_text: Whether they are text, as those of a custom call, and not a JSON object.
    """

    __slots__ = ("_canonical", "_extent", "_first_characters", "_free_text", "_is_object", "_joined", "_pieces", "_pieces_scanned", "size")

    def __init__(self, *, free_text: bool) -> None:
        self.size = 0
        """Length of the arguments so far, in characters."""
        self._free_text = free_text
        self._pieces: list[str] = []
        self._pieces_scanned = 0
        """The number of pieces that `JsonExtent` has read."""
        self._extent = JsonExtent()
        self._is_object = False
        """Whether the pieces that were scanned are one whole object."""
        self._joined = False
        """Whether several pieces have been joined to one."""
        self._first_characters = ""
        """The first three characters of the arguments, without surrounding white space."""
        self._canonical: bytes | None = None

    def append(self, text: str) -> None:
        """Append a piece."""
        self._pieces.append(text)
        self.size += len(text)
        if self._canonical is not None and not text.isspace():
            self._canonical = None
        if len(self._first_characters) < 3:
            self._first_characters = (self._first_characters + text).strip()[:3]

    @property
    def text(self) -> str:
        """The arguments as one text. The first access after a new piece joins all pieces."""
        if len(self._pieces) > 1:
            _ = self.complete
            self._pieces, self._pieces_scanned, self._joined = [join_text(self._pieces)], 1, True
        return self._pieces[0] if self._pieces else ""

    @property
    def complete(self) -> bool:
        """Whether the arguments are one whole JSON object by their brackets."""
        if self._pieces_scanned < len(self._pieces):
            self._is_object = self._extent.feed("".join(self._pieces[self._pieces_scanned :]))
            self._pieces_scanned = len(self._pieces)
        return self._is_object and not self._free_text

    @property
    def proves_end(self) -> bool:
        """Whether the arguments show themselves that they are complete.

        An empty object in one piece may be a placeholder and proves nothing.
        """
        in_one_piece = len(self._pieces) == 1 and not self._joined
        return self.complete and not (in_one_piece and self._first_characters == "{}")

    @property
    def is_placeholder(self) -> bool:
        """Whether only an empty object has arrived. An object that arrives after it replaces it."""
        return not self._free_text and self._first_characters == "{}"

    def may_begin(self, text: str) -> bool:
        """Whether `text` is long enough to begin with the arguments so far.

        Their size may count each half of a surrogate pair as a character.
        """
        return self.size <= 2 * len(text)

    def equals(self, text: str) -> bool:
        """Whether the arguments so far equal `text`."""
        return self.may_begin(text) and self.text == text

    @property
    def canonical(self) -> bytes:
        """The arguments in a form that is equal for arguments that differ only in white space or key order."""
        if self._canonical is None:
            self._canonical = canonical_form(self.text)
        return self._canonical


def canonical_form(arguments: str) -> bytes:
    """Return bytes that are equal for texts with equal JSON values; 1 and 1.0 are equal.

    Text that is not JSON is returned as it is, encoded.
    """
    try:
        return canonical(_decode(arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return arguments.encode("utf-8", "surrogatepass")


def _plain_number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


_decode = msgspec.json.Decoder(float_hook=_plain_number).decode
