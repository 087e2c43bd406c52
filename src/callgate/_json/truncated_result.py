"""Shorten a large result: show its beginning and its end, and how much was left out between them.

Pure. Nothing is lost, because the whole result is in the blob store. Of a list, whole items from both ends are shown.
Of an object, as many members as possible are shown; large keys and values are shortened. Text is cut at line ends. The
excerpt of any value fits into the budget. The work depends on the budget, not on the size of the value: each part is
measured only up to its budget, and only text that is cut is encoded as a whole, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from callgate._json import exceeds, plain_bytes

__all__ = ["excerpt"]

_HEAD_SHARE = 0.7
_LEVELS = 4
"""The nesting depth up to which lists and objects are shortened as such. Deeper ones are cut as text."""
_LEAST = 60
"""The number of bytes that always suffices for the note on how much was left out."""
_LEAST_MEMBER = 2 * _LEAST + 2
"""The number of bytes that always suffices for a shortened member of an object: its key, a colon and its value."""

_Show = Callable[..., bytes | None]
"""A function of a part and a number of bytes. Returns the part if it fits, the shortened part if `cut`, else None."""


def excerpt(raw: bytes, value: object, budget: int) -> str:
    """Return an excerpt of `raw` in at most `budget` bytes of UTF-8, or in `_LEAST` bytes if `budget` is smaller.

    Args:
        raw: The whole result, in UTF-8.
        value: The whole result as JSON data if it is a list or an object. Any other value is cut as text.
    """
    if len(raw) <= budget:
        return raw.decode()
    return (_cut_structure(value, budget, _LEVELS) if isinstance(value, (list, dict)) else _cut_lines(raw, budget)).decode()


def _cut_structure(value: list[object] | dict[str, object], budget: int, levels: int) -> bytes:
    if isinstance(value, list):
        return _take_both_ends(value, reversed(value), len(value), _Items(levels - 1).show, (b"[", b"items", b"]"), budget)
    members = _Members(levels - 1)
    shares = _divide_budget(value, budget)
    if shares is None:
        return _take_both_ends(value.items(), reversed(value.items()), len(value), members.show, (b"{", b"members", b"}"), budget)
    shown = (members.show(member, share, cut=True) or b"" for member, share in zip(value.items(), shares, strict=True))
    return b"{" + b",\n".join(shown) + b"}"


def _divide_budget(value: dict[str, object], budget: int) -> list[int] | None:
    """Return the number of bytes for each member. Small members get all they need, large ones share the rest equally.

    Return None if the shares are too small to show every member.
    """
    if len(value) * _LEAST > budget:
        return None
    whole = (_show_member(member, budget) for member in value.items())
    shares = [budget if member is None else len(member) for member in whole]
    left = budget - 2 * len(value) - 2
    for done, place in enumerate(sorted(range(len(shares)), key=shares.__getitem__)):
        share = left // (len(shares) - done)
        if shares[place] > share:
            if share < _LEAST_MEMBER:
                return None
            shares[place] = share
        left -= shares[place]
    return shares


def _take_both_ends(
    forwards: Iterable[object], backwards: Iterable[object], count: int, show: _Show, frame: tuple[bytes, bytes, bytes], budget: int
) -> bytes:
    """Return as many parts from the start and the end as fit into the budget, and a note on how many are left out.

    The first or the last part is shortened if it does not fit.
    """
    room = budget - _LEAST
    head, used = _take_parts(forwards, room if count == 1 else int(room * _HEAD_SHARE), show)
    tail, _ = _take_parts(islice(backwards, count - len(head)), room - used, show)
    left_out = count - len(head) - len(tail)
    middle = [b"... %d of %d %b left out ..." % (left_out, count, frame[1])] if left_out else []
    return frame[0] + b",\n".join([*head, *middle, *reversed(tail)]) + frame[2]


def _take_parts(parts: Iterable[object], budget: int, show: _Show) -> tuple[list[bytes], int]:
    taken, used = list[bytes](), 0
    for part in parts:
        shown = show(part, budget - used - 2, cut=not taken)
        if shown is None:
            break
        taken.append(shown)
        used += len(shown) + 2
    return taken, used


class _Items:
    """Shows the items of a list."""

    def __init__(self, levels: int) -> None:
        self._levels = levels

    def show(self, item: object, budget: int, *, cut: bool) -> bytes | None:
        whole = _show_whole(item, budget)
        if whole is not None or not cut or budget < _LEAST:
            return whole
        if isinstance(item, (list, dict)) and self._levels:
            return _cut_structure(item, budget, self._levels)
        return _cut_lines(plain_bytes(item), budget)


class _Members:
    """Shows the members of an object, each as its key and value."""

    def __init__(self, levels: int) -> None:
        self._items = _Items(levels)

    def show(self, member: tuple[str, object], budget: int, *, cut: bool) -> bytes | None:
        whole = _show_member(member, budget)
        if whole is not None or not cut or budget < _LEAST_MEMBER:
            return whole
        key = _cut_lines(plain_bytes(member[0]), budget // 2)
        return key + b":" + (self._items.show(member[1], budget - len(key) - 1, cut=True) or b"")


def _show_member(member: tuple[str, object], budget: int) -> bytes | None:
    key = _show_whole(member[0], budget - 1)
    value = None if key is None else _show_whole(member[1], budget - len(key) - 1)
    return None if key is None or value is None else key + b":" + value


def _show_whole(value: object, budget: int) -> bytes | None:
    """Return `value` as JSON if it fits into `budget` bytes, else None."""
    if exceeds(value, budget):
        return None
    raw = plain_bytes(value)
    return raw if len(raw) <= budget else None


def _cut_lines(raw: bytes, budget: int) -> bytes:
    if len(raw) <= budget:
        return raw
    room = max(0, budget - len(_show_gap(len(raw), len(raw))))
    head = _cut_piece(raw[: int(room * _HEAD_SHARE)], from_start=True)
    tail = _cut_piece(raw[len(raw) - (room - int(room * _HEAD_SHARE)) :], from_start=False)
    return head + _show_gap(len(raw) - len(head) - len(tail), len(raw)) + tail


def _show_gap(left_out: int, size: int) -> bytes:
    return b"\n... %d of %d bytes left out ...\n" % (left_out, size)


def _cut_piece(piece: bytes, *, from_start: bool) -> bytes:
    """Remove the incomplete character and the incomplete line at the cut end of `piece`.

    An incomplete line that is about half of `piece` or more is kept.

    Args:
        from_start: Whether `piece` is the start of the text, and its end was cut. Otherwise, its start was cut.
    """
    piece = piece.decode("utf-8", "ignore").encode()
    if from_start:
        end = piece.rfind(b"\n")
        return piece[:end] if end > len(piece) // 2 else piece
    start = piece.find(b"\n")
    return piece[start + 1 :] if 0 <= start < len(piece) // 2 else piece
