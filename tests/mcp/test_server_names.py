"""The names that servers get from their command or address."""

from __future__ import annotations

import pytest

from callgate.errors import UsageError
from callgate.mcp import McpServer, mcp


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("uvx mcp-server-git", "git"),
        ("uvx mcp-server-git==2.1", "git"),
        ("npx -y @modelcontextprotocol/server-everything", "everything"),
        ("/opt/venv/bin/mcp-server-time --local-timezone UTC", "time"),
        ("node modules/@modelcontextprotocol/server-filesystem/dist/index.js /srv", "filesystem"),
        ("python3 /srv/billing/server.py", "billing"),
        ("python server.py", "server"),
        ("docker run -i mcp/time", "time"),
        ("https://mcp.example.com/v1", "example"),
        ("http://127.0.0.1:8000/mcp", "server"),
    ],
)
def test_a_server_is_named_after_its_program_or_host(target: str, name: str) -> None:
    assert mcp(target).name == name


def test_a_given_name_is_kept() -> None:
    assert mcp("uvx mcp-server-git", name="repo").name == "repo"


@pytest.mark.parametrize("address", ["ftp://host/mcp", "ws://host/mcp", " file:///mcp"])
def test_an_address_of_another_scheme_is_no_command(address: str) -> None:
    with pytest.raises(UsageError, match=r"no transport for (ftp|ws|file)\. Give an address that begins with http"):
        mcp(address)


def test_a_server_without_a_command_and_an_address_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a command or a url"):
        McpServer(name="x")
