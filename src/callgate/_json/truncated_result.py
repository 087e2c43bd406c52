"""Shorten a large result: show its head and its tail, cut where its structure allows, and how much was left out between them.

Pure. Nothing is lost: the whole is in the blob store, and the excerpt says how much was left out. A list keeps whole items of both ends. An
object keeps as many members as possible; large ones are shortened, keys and values alike. Text is cut at line ends. The budget is kept for
any value. The work is bounded by the budget, not by the value: each part is measured only up to its budget, and only text that is cut is
encoded as a whole, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from callgate._json import exceeds, plain_bytes

__all__ = ["excerpt"]

_HEAD_SHARE = 0.7
_LEVELS = 4
"""The depth to which the structure is followed; deeper JSON is cut as text."""
_LEAST = 60
"""A number of bytes that always suffices to say how much was left out."""
_LEAST_MEMBER = 2 * _LEAST + 2
"""A number of bytes that always suffices for a member of an object: its key, a colon, and its value."""

_Show = Callable[..., bytes | None]
"""Takes a part and a number of bytes. Returns the whole part, or the part cut if that is allowed, or None if it does not fit."""


def excerpt(raw: bytes, value: object, budget: int) -> str:
    """Return an excerpt of `raw` in at most `budget` bytes of UTF-8, or in `_LEAST` bytes if that is more.

    Args:
        raw: The whole, in UTF-8.
        value: The whole as JSON data if it is a list or an object. Any other value is cut as text.
    """
    if len(raw) <= budget:
        return raw.decode()
    return (_structure(value, budget, _LEVELS) if isinstance(value, (list, dict)) else _lines(raw, budget)).decode()


def _structure(value: list[object] | dict[str, object], budget: int, levels: int) -> bytes:
    if isinstance(value, list):
        return _ends(value, reversed(value), len(value), _Items(levels - 1).show, (b"[", b"items", b"]"), budget)
    members = _Members(levels - 1)
    shares = _shares(value, budget)
    if shares is None:
        return _ends(value.items(), reversed(value.items()), len(value), members.show, (b"{", b"members", b"}"), budget)
    shown = (members.show(member, share, cut=True) or b"" for member, share in zip(value.items(), shares, strict=True))
    return b"{" + b",\n".join(shown) + b"}"


def _shares(value: dict[str, object], budget: int) -> list[int] | None:
    """Return the bytes for each member: small ones get all they need, large ones an equal share. None if that is too little to show
    them."""
    if len(value) * _LEAST > budget:
        return None
    whole = (_member(member, budget) for member in value.items())
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


def _ends(
    forwards: Iterable[object], backwards: Iterable[object], count: int, show: _Show, frame: tuple[bytes, bytes, bytes], budget: int
) -> bytes:
    """Return the parts from the start and the end that fit into the budget, and how many are left out.

    If the first or the last part does not fit, it is shortened.
    """
    room = budget - _LEAST
    head, used = _take(forwards, room if count == 1 else int(room * _HEAD_SHARE), show)
    tail, _ = _take(islice(backwards, count - len(head)), room - used, show)
    left_out = count - len(head) - len(tail)
    middle = [b"... %d of %d %b left out ..." % (left_out, count, frame[1])] if left_out else []
    return frame[0] + b",\n".join([*head, *middle, *reversed(tail)]) + frame[2]


def _take(parts: Iterable[object], budget: int, show: _Show) -> tuple[list[bytes], int]:
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
        whole = _whole(item, budget)
        if whole is not None or not cut or budget < _LEAST:
            return whole
        if isinstance(item, (list, dict)) and self._levels:
            return _structure(item, budget, self._levels)
        return _lines(plain_bytes(item), budget)


class _Members:
    """Shows the members of an object, each as its key and value."""

    def __init__(self, levels: int) -> None:
        self._items = _Items(levels)

    def show(self, member: tuple[str, object], budget: int, *, cut: bool) -> bytes | None:
        whole = _member(member, budget)
        if whole is not None or not cut or budget < _LEAST_MEMBER:
            return whole
        key = _lines(plain_bytes(member[0]), budget // 2)
        return key + b":" + (self._items.show(member[1], budget - len(key) - 1, cut=True) or b"")


def _member(member: tuple[str, object], budget: int) -> bytes | None:
    key = _whole(member[0], budget - 1)
    value = None if key is None else _whole(member[1], budget - len(key) - 1)
    return None if key is None or value is None else key + b":" + value


def _whole(value: object, budget: int) -> bytes | None:
    """Return `value` as JSON if it fits, else None."""
    if exceeds(value, budget):
        return None
    raw = plain_bytes(value)
    return raw if len(raw) <= budget else None


def _lines(raw: bytes, budget: int) -> bytes:
    if len(raw) <= budget:
        return raw
    room = max(0, budget - len(_gap(len(raw), len(raw))))
    head = _cut(raw[: int(room * _HEAD_SHARE)], from_start=True)
    tail = _cut(raw[len(raw) - (room - int(room * _HEAD_SHARE)) :], from_start=False)
    return head + _gap(len(raw) - len(head) - len(tail), len(raw)) + tail


def _gap(left_out: int, size: int) -> bytes:
    return b"\n... %d of %d bytes left out ...\n" % (left_out, size)


def _cut(piece: bytes, *, from_start: bool) -> bytes:
    """Return `piece` without the incomplete character and the incomplete line at its cut end.

    The incomplete line is kept if it takes about half of `piece` or more.

    Args:
        from_start: Whether `piece` is the start of the text, so that its end was cut; otherwise its start was
            cut.
    """
    piece = piece.decode("utf-8", "ignore").encode()
    if from_start:
        end = piece.rfind(b"\n")
        return piece[:end] if end > len(piece) // 2 else piece
    start = piece.find(b"\n")
    return piece[start + 1 :] if 0 <= start < len(piece) // 2 else piece
