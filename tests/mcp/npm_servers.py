"""Packages from npm, such as MCP servers, installed once for all runs.

Tests are skipped, with the reason, where npm cannot install them.
"""

from __future__ import annotations

import shutil
import subprocess
from fcntl import LOCK_EX, flock
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.waiting import COMMAND_S

__all__ = ["npm_package", "npm_server"]


_FOLDER: Final = Path(__file__).parents[2] / ".npm_packages"
"""Outside the folder of a run, so that the next run need not install what it needs again, which takes half a minute."""


def npm_server(package: str) -> Path:
    """Return the program of a server; see `npm_package`."""
    return npm_package(package) / "dist" / "index.js"


def npm_package(package: str) -> Path:
    """Return the folder of a package, which is installed if it is not.

    Args:
        package: The package with its version.
    """
    name = package.rpartition("@")[0]
    shared = _FOLDER / package.replace("/", "-").lstrip("@")
    _FOLDER.mkdir(exist_ok=True)
    with open(f"{shared}.lock", "wb") as lock:
        flock(lock, LOCK_EX)  # another process that installs it is waited for
        if not shared.exists():
            with TemporaryDirectory(dir=_FOLDER) as unfinished:
                own = Path(unfinished) / "own"
                own.mkdir()
                _install(package, own)
                own.rename(shared)
    return shared / "node_modules" / name


def _install(package: str, folder: Path) -> None:
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("npm and node are not installed")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package]
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install {package} within {COMMAND_S:g} s")
    if ended.returncode:
        pytest.skip(f"npm cannot install {package}: {ended.stderr.strip()[-300:]}")
