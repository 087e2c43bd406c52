"""The tools that plugins have described, in files of the user's cache folder, so that an engine starts without starting plugins.

An entry is used only while the plugin's source files are as they were. A cache that cannot be read or written is not an error.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from callgate.plugins.manifest import ToolSettings

__all__ = ["cache_folder", "cached_tools", "keep_tools"]

_MAX_BYTES = 10_485_760


class _CachedTools(Struct, frozen=True):
    fingerprint: str
    tools: tuple[ToolSettings, ...]


def cache_folder() -> Path:
    """Return the folder of the cache, by the custom of the platform."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "callgate" / "plugins"
    place = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(place) if os.path.isabs(place) else Path.home() / ".cache") / "callgate" / "plugins"


def cached_tools(folder: Path, fingerprint: str) -> tuple[ToolSettings, ...] | None:
    """Return the tools that the plugin in `folder` described when it had this fingerprint; None if that is not known."""
    with suppress(OSError, RuntimeError, msgspec.MsgspecError, ValueError):
        path = _path(folder)
        if path.stat().st_size <= _MAX_BYTES:
            entry = msgspec.json.decode(path.read_bytes(), type=_CachedTools)
            return entry.tools if entry.fingerprint == fingerprint else None
    return None


def keep_tools(folder: Path, fingerprint: str, tools: Sequence[ToolSettings]) -> None:
    """Keep the tools instead of what was kept before."""
    data = msgspec.json.encode(_CachedTools(fingerprint=fingerprint, tools=tuple(tools)))
    with suppress(OSError, RuntimeError):
        path = _path(folder)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, written = tempfile.mkstemp(dir=path.parent)
        with open(number, "wb") as file:
            file.write(data)
        os.replace(written, path)


def _path(folder: Path) -> Path:
    return cache_folder() / f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]}.json"
