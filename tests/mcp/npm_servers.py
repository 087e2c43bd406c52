"""Packages from npm, such as MCP servers, installed once for all workers of a run.

Tests are skipped, with the reason, where npm cannot install them.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from tests.waiting import COMMAND_S

__all__ = ["npm_package", "npm_server"]


def npm_server(package: str, folder: Path) -> Path:
    """Return the program of a server; see `npm_package`."""
    return npm_package(package, folder) / "dist" / "index.js"


def npm_package(package: str, folder: Path) -> Path:
    """Return the folder of a package, installed in `folder`.

    Args:
        package: The package with its version.
        folder: A folder that all workers of a run share.
    """
    name = package.rpartition("@")[0]
    shared = folder / name.replace("/", "-").lstrip("@")
    with open(f"{shared}.lock", "wb") as lock:
        flock(lock, LOCK_EX)  # another worker that installs it is waited for
        if not shared.exists():
            own = Path(f"{shared}-{uuid.uuid4().hex}")
            own.mkdir(parents=True)
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
