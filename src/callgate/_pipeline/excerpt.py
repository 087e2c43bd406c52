"""Show a large result in a small space: its head and its tail, cut where its structure allows, and how much lies between.

Pure. Nothing is lost: the whole is in the blob store, and the excerpt says how to get at it.
"""

from __future__ import annotations

import msgspec

__all__ = ["excerpt"]

_HEAD_SHARE = 0.7
_encode = msgspec.json.Encoder().encode


def excerpt(text: str, value: object, budget: int) -> str:
    """The head and tail of `text` in at most about `budget` bytes of UTF-8, with a line that says what was left out.

    Args:
        text: The whole.
        value: The same as JSON data where it is a list or an object; then whole items are kept. Anything else is cut at line ends.
    """
    if isinstance(value, list):
        return _items([_text(item) for item in value], "items", "[", "]", budget)
    if isinstance(value, dict):
        return _items([f"{_text(key)}:{_text(item)}" for key, item in value.items()], "members", "{", "}", budget)
    return _lines(text, budget)


def _text(value: object) -> str:
    return _encode(value).decode()


def _items(items: list[str], noun: str, opening: str, closing: str, budget: int) -> str:
    """Whole members from both ends; where even the first does not fit, the text is cut as text."""
    head, used = _take(items, int(budget * _HEAD_SHARE))
    tail, _ = _take(items[len(head) :][::-1], budget - used)
    if not head and not tail:
        return _lines(opening + ",".join(items) + closing, budget)
    left_out = len(items) - len(head) - len(tail)
    middle = [f"... {left_out} of {len(items)} {noun} left out ..."] if left_out else []
    return opening + ",\n".join([*head, *middle, *reversed(tail)]) + closing


def _take(items: list[str], budget: int) -> tuple[list[str], int]:
    taken, used = [], 0
    for item in items:
        size = len(item.encode()) + 2
        if used + size > budget:
            break
        taken.append(item)
        used += size
    return taken, used


def _lines(text: str, budget: int) -> str:
    raw = text.encode()
    head = _cut(raw[: int(budget * _HEAD_SHARE)], from_start=True)
    tail = _cut(raw[len(raw) - (budget - int(budget * _HEAD_SHARE)) :], from_start=False)
    left_out = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n... {left_out} of {len(raw)} bytes left out ...\n{tail}"


def _cut(piece: bytes, *, from_start: bool) -> str:
    """`piece` without a torn character, and without a torn line where a whole one is near."""
    text = piece.decode("utf-8", "ignore")
    if from_start:
        end = text.rfind("\n")
        return text[:end] if end > len(text) // 2 else text
    start = text.find("\n")
    return text[start + 1 :] if 0 <= start < len(text) // 2 else text
