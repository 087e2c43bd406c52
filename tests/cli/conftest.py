from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.mcp_server_programs import write_servers
from tests.cli.shell import write_tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a user's own tools and rules."""
    write_tools(tmp_path)
    return tmp_path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with programs of MCP servers."""
    write_servers(tmp_path)
    return tmp_path
