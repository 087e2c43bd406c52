"""A fingerprint of a plugin's source files and of its environment: it changes when one of them is changed, added or removed.

Only the manifest, the schemas that it names and files of source code count, so that a plugin may keep its data in its folder.
"""

from __future__ import annotations

import hashlib
import os

from callgate.plugins._environments import environment_mark
from callgate.plugins.manifest import MANIFEST, PluginManifest

__all__ = ["SOURCES", "fingerprint"]

SOURCES = (".cjs", ".js", ".mjs", ".py", ".rb", ".sh", ".toml", ".ts")
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})
_MOST_FILES = 2_000


def fingerprint(manifest: PluginManifest) -> str:
    """Return a hash of the manifest's text, the times and sizes of all source files, and the environment's name. Reads the folder."""
    found = hashlib.sha256()
    with open(manifest.folder / MANIFEST, "rb") as file:
        found.update(file.read())
    found.update(environment_mark(manifest).encode())
    for path, stat in _files(manifest):
        found.update(f"{path}\0{stat.st_mtime_ns}\0{stat.st_size}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def _files(manifest: PluginManifest) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    for folder, folders, names in os.walk(manifest.folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(SOURCES) and os.path.isfile(path) and len(found) < _MOST_FILES:
                found.append((path, os.stat(path)))
    found += [(str(path), os.stat(path)) for path in manifest.schema_files]
    return found
