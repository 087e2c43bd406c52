"""Show a large result in a small space: its head and its tail, cut where its structure allows, and how much lies between.

Pure. Nothing is lost: the whole is in the blob store, and the excerpt says how much was left out. A list keeps whole items of both ends,
an object keeps every member it can and shortens the large ones, text is cut at line ends.
"""

from __future__ import annotations

from callgate._json import json_text

__all__ = ["excerpt"]

_HEAD_SHARE = 0.7
_LEVELS = 4
"""How deep the structure is followed; below, JSON is cut as text."""
_LEAST = 60
"""Bytes below which a part is not shown in part."""


def excerpt(text: str, value: object, budget: int) -> str:
    """What can be shown of `text` in at most about `budget` bytes of UTF-8.

    Args:
        text: The whole.
        value: The same as JSON data where it is a list or an object; anything else is cut as text.
    """
    return _shortened(value, budget, _LEVELS) if isinstance(value, (list, dict)) else _lines(text, budget)


def _shortened(value: object, budget: int, levels: int) -> str:
    whole = json_text(value)
    if len(whole.encode()) <= budget:
        return whole
    if isinstance(value, dict) and levels:
        return _object(value, budget, levels - 1)
    if isinstance(value, list) and levels:
        return _list(value, budget, levels - 1)
    return _lines(whole, max(budget, _LEAST))


def _object(value: dict[str, object], budget: int, levels: int) -> str:
    """Small members whole, large ones shortened to an equal share; where there are too many, only those of both ends."""
    if len(value) * _LEAST > budget:
        return _ends([f"{json_text(key)}:{json_text(item)}" for key, item in value.items()], "members", "{}", budget)
    sizes = {key: len(json_text(key)) + len(json_text(item).encode()) + 2 for key, item in value.items()}
    left, shares = budget - 2, dict[str, int]()
    for place, key in enumerate(sorted(sizes, key=lambda key: sizes[key])):
        shares[key] = min(sizes[key], max(_LEAST, left // (len(sizes) - place)))
        left -= shares[key]
    members = (f"{json_text(key)}:{_shortened(item, shares[key] - len(json_text(key)) - 2, levels)}" for key, item in value.items())
    return "{" + ",\n".join(members) + "}"


def _list(value: list[object], budget: int, levels: int) -> str:
    """Whole items of both ends; where not even one fits, the first and the last in part."""
    items = [json_text(item) for item in value]
    shown = _ends(items, "items", "[]", budget)
    if len(items[0].encode()) < budget // 2 or budget < 4 * _LEAST:
        return shown
    first = _shortened(value[0], int(budget * _HEAD_SHARE) - _LEAST, levels)
    last = [_shortened(value[-1], int(budget * (1 - _HEAD_SHARE)), levels)] if len(value) > 1 else []
    middle = [f"... {len(value) - 2} of {len(value)} items left out ..."] if len(value) > 2 else []
    return "[" + ",\n".join([first, *middle, *last]) + "]"


def _ends(items: list[str], noun: str, brackets: str, budget: int) -> str:
    head, used = _take(items, int(budget * _HEAD_SHARE))
    tail, _ = _take(items[len(head) :][::-1], budget - used)
    left_out = len(items) - len(head) - len(tail)
    middle = [f"... {left_out} of {len(items)} {noun} left out ..."] if left_out else []
    return brackets[0] + ",\n".join([*head, *middle, *reversed(tail)]) + brackets[1]


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
    if len(raw) <= budget:
        return text
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
