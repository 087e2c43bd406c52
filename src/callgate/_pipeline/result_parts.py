"""Fit the parts that a tool returned into the limits of a result.

Texts share one limit and media another. What exceeds them is stored by hash and replaced by a text that says so, so that no request becomes
larger than a provider takes. Pure, except for the given function that stores bytes. Knows nothing of the call.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from callgate._engine_limits import Limits
from callgate._json import exceeds, utf8
from callgate._json.truncated_result import excerpt
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.content_parts import Audio, Image, Link, Part, Resource, Text, data_of
from callgate.stage_types import Checked

__all__ = ["ShownContent", "fit_parts", "has_large_parts"]

_MOST_PARTS: Final = 100
"""The number of parts, apart from text, that a result shows."""

_MANY_PARTS: Final = 1_000
"""A result with more parts is large, whatever their size."""

Keep = Callable[[bytes], tuple[str | None, str]]
"""Stores bytes, and returns their hash, and for a text how to read the rest of it."""


class ShownContent(Struct, frozen=True):
    """The content that the model is shown, and facts about the whole."""

    parts: tuple[Part, ...]
    size_bytes: int
    """The size of the whole, before anything was left out."""
    truncated: bool = False
    mime: str = "text/plain"
    blob: str | None = None
    """The hash of the whole, or of the first value that was stored."""
    key: str = ""
    """See `Metadata.content_key`."""
    command_end: str = ""
    """See `Metadata.command_end`."""


def has_large_parts(checked: Checked) -> bool:
    """Return whether work on what a result has besides its value would block the event loop."""
    parts = checked.content
    return len(parts) > _MANY_PARTS or exceeds((checked.server_fields, *map(astuple, parts)), LARGE_BYTES)


def fit_parts(given: Sequence[Part], limits: Limits, keep: Keep) -> ShownContent:
    """Return the parts within `Limits.content_bytes` of text and `Limits.media_bytes` of media."""
    fitting = _PartFitter(limits, keep)
    texts = [part.text for part in given if isinstance(part, Text)]
    whole = utf8("\n".join(texts))
    if len(whole) > limits.content_bytes:
        cut = fitting.cut_text(whole)
        first = next(place for place, part in enumerate(given) if isinstance(part, Text))
        given = [one for place, part in enumerate(given) for one in (cut if place == first else () if isinstance(part, Text) else (part,))]
    parts = tuple([one for part in given for one in fitting.fit(part)])
    if fitting.left_out:
        parts = (*parts, Text(text=f"[{fitting.left_out} more parts were left out; {_MOST_PARTS} are shown. Ask for less at a time.]"))
    size = len(whole) + fitting.media_bytes
    return ShownContent(parts, size, fitting.truncated, _mime_of(given), fitting.blob)


class _PartFitter:
    """Fits the parts of one result."""

    def __init__(self, limits: Limits, keep: Keep) -> None:
        self._text_bytes = limits.content_bytes
        self._most = self._left = limits.media_bytes
        self._keep = keep
        self._count = 0
        self.media_bytes = 0
        self.truncated = False
        self.left_out = 0
        self.blob: str | None = None

    def cut_text(self, whole: bytes) -> tuple[Part, ...]:
        """Return an excerpt of a text, and how to read the rest."""
        how = self._store(whole)
        return (Text(text=excerpt(whole, None, self._text_bytes)), Text(text=how))

    def fit(self, part: Part) -> tuple[Part, ...]:
        """Return what is shown of a part."""
        if isinstance(part, Text):
            return (part,)
        self._count += 1
        if self._count > _MOST_PARTS:
            self.left_out, self.truncated = self.left_out + 1, True
            return ()
        if data := data_of(part):
            return self._media(part, data)
        return self._describe(part)

    def _media(self, part: Part, data: str) -> tuple[Part, ...]:
        size = len(data) * 3 // 4 - data[-2:].count("=")
        self.media_bytes += size
        if size <= self._left:
            self._left -= size
            return (part,)
        self._store(base64.b64decode(data))
        said = f"more than the {self._most} bytes of images and files that a result may show"
        kept = f"The whole is stored as {self.blob}." if self.blob else "It could not be stored."
        return (Text(text=f"[{_mime(part)}, {size} bytes: {said}. {kept} Ask for a smaller or shorter one.]"),)

    def _describe(self, part: Part) -> tuple[Part, ...]:
        if isinstance(part, Resource) and isinstance(text := part.resource.get("text"), str):
            whole = utf8(text)
            self.media_bytes += len(whole)
            return (part,) if len(whole) <= self._text_bytes else self.cut_text(whole)
        size = len(utf8(f"{part}"))
        if size <= self._text_bytes:
            return (part,)
        self.truncated = True
        return (Text(text=f"[A link of {size} bytes was left out; {self._text_bytes} is the limit.]"),)

    def _store(self, whole: bytes) -> str:
        blob, how = self._keep(whole)
        self.truncated = True
        self.blob = self.blob or blob
        return how


def _mime_of(parts: Sequence[Part]) -> str:
    kinds = {"text/plain" if isinstance(part, Text) else _mime(part) for part in parts}
    return kinds.pop() if len(kinds) == 1 else "multipart/mixed"


def _mime(part: Part) -> str:
    match part:
        case Image(mime_type=mime) | Audio(mime_type=mime) | Link(mime_type=mime):
            return mime or "text/uri-list"
        case Resource(resource={"mimeType": str(mime)}):
            return mime
        case _:
            return "application/octet-stream"
