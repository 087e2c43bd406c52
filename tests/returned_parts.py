"""Tools that return images and files, by import target, so that they also run in a worker process."""

from __future__ import annotations

import base64
from pathlib import Path

from callgate import Image, Tool, tool

__all__ = ["PDF", "PNG", "WAV", "tools"]

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "


def _picture() -> Image:
    """Return a picture."""
    return Image.from_bytes(PNG)


def _mixed() -> list[str | Image]:
    """Return text and a picture."""
    return ["before", Image.from_bytes(PNG), "after"]


def _raw() -> bytes:
    """Return bytes."""
    return PNG


def _file(path: str) -> Path:
    """Return a file."""
    return Path(path)


in_process = tool(_mixed, name="in_process", runner="process")


def tools() -> list[Tool]:
    async def later() -> list[str | Image]:
        """Return text and a picture."""
        return _mixed()

    return [
        tool(_picture, name="picture"),
        tool(_mixed, name="mixed", cacheable=True, effect="none"),
        tool(_raw, name="raw"),
        tool(_file, name="file"),
        tool(later, name="later"),
        in_process,
    ]
