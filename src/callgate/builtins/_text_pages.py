"""Pages of text for a model, cut at whole lines or characters, and decoding of file content. Pure."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["PAGE_BYTES", "TextPage", "cut", "cut_page", "decode_text", "is_binary", "snippet"]

PAGE_BYTES = 12_000
"""The maximum size of a page in bytes.

It fits the engine's default budget for one result, so a page is not cut again.
"""


class TextPage(Struct, frozen=True, kw_only=True):
    """Some whole lines of a text."""

    text: str
    lines: int
    """The number of lines of the page."""
    cut_line: int = 0
    """The length in bytes of a single line that was too long to show in full; 0 if there is none."""


def is_binary(data: bytes) -> bool:
    """Return whether the first 8 KiB contain a NUL byte. Text contains none."""
    return b"\0" in data[:8192]


def decode_text(data: bytes) -> tuple[str, int]:
    """Decode UTF-8. Return the text and how many invalid places were replaced by `�`."""
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        return text, max(1, text.count("\ufffd"))


def cut_page(lines: list[str], most_lines: int) -> TextPage:
    """Return as many of the first lines as fit on a page, at most `most_lines`."""
    taken: list[str] = []
    size = 0
    for line in lines[:most_lines]:
        size += len(line.encode("utf-8", "surrogatepass"))
        if size > PAGE_BYTES:
            break
        taken.append(line)
    if lines and not taken and most_lines > 0:
        return TextPage(text=cut(lines[0], PAGE_BYTES), lines=1, cut_line=size)
    return TextPage(text="".join(taken), lines=len(taken))


def cut(text: str, most_bytes: int) -> str:
    """Return the beginning of `text` in at most `most_bytes` bytes of UTF-8, without splitting a character."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def snippet(text: str, start: int, end: int, around: int) -> str:
    """Return the text from `start` to `end` with `around` characters before and after it; `…` marks what is left out."""
    first, last = max(0, start - around), min(len(text), end + around)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
