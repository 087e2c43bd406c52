"""What `callgate serve check` says of the tools of a server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Ended, shell
from tests.mcp import fake_server
from tests.mcp.fakes import tool

pytestmark = pytest.mark.process


def checked(folder: Path, configured: str = "", **listed: Any) -> Ended:
    """Check a gateway whose server answers `tools/list` with `listed`.

    Args:
        configured: More lines of the server's configuration.
    """
    (folder / "script.json").write_text(json.dumps({"live": listed}), encoding="utf-8")
    command = json.dumps([sys.executable, fake_server.__file__, str(folder / "script.json"), str(folder / "log")])
    (folder / "gate.toml").write_text(f"[servers.fake]\ncommand = {command}\n{configured}", encoding="utf-8")
    return shell(folder, "serve", "check", "--json")


def test_tools_that_cannot_be_registered_are_named_with_the_reason_and_not_counted(tmp_path: Path) -> None:
    done = checked(tmp_path, tools=[tool("good"), tool("bad", inputSchema={"type": "string"})])
    (row,) = done.json["servers"]
    assert (done.code, row["tools"], row["effects"], done.json["tools"]) == (1, ["good"], {"once": 1}, ["good"])
    (problem,) = row["problems"]
    assert "bad cannot be registered: The schema of tool 'bad'" in problem
    assert "its root has type 'string'" in problem


def test_a_cacheable_tool_is_no_problem_if_the_configuration_says_that_it_only_reads(tmp_path: Path) -> None:
    configured = 'effects = {look = "none"}\n[servers.fake.options.look]\ncacheable = true\n'
    done = checked(tmp_path, configured, tools=[tool("look")])
    (row,) = done.json["servers"]
    assert (done.code, row["tools"], row["effects"], row["problems"]) == (0, ["look"], {"none": 1}, [])


def test_a_cacheable_tool_with_an_effect_is_a_problem(tmp_path: Path) -> None:
    (row,) = checked(tmp_path, "[servers.fake.options.pay]\ncacheable = true\n", tools=[tool("pay")]).json["servers"]
    assert "pay cannot be registered: Tool 'pay' (MCP server fake) is cacheable but has effects" in row["problems"][0]


def test_a_list_with_a_cursor_that_is_no_text_is_a_problem_and_its_tools_are_kept(tmp_path: Path) -> None:
    done = checked(tmp_path, tools=[tool("good")], nextCursor=5)
    (row,) = done.json["servers"]
    told = "The server has 5 as nextCursor in its list of tools, which must be a text; what it lists after that is left out."
    assert (done.code, row["tools"], row["problems"]) == (1, ["good"], [told])


def test_what_the_file_of_a_client_says_and_is_not_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"live": {"tools": [tool("pay")]}}), encoding="utf-8")
    command = [fake_server.__file__, str(tmp_path / "script.json"), str(tmp_path / "log")]
    entry = {"command": sys.executable, "args": command, "disabledTools": ["pay"], "agrs": ["--read-only"]}
    (tmp_path / "client.json").write_text(json.dumps({"mcpServers": {"shop": entry}}), encoding="utf-8")
    (tmp_path / "gate.toml").write_text('mcp_files = ["client.json"]\n', encoding="utf-8")
    told = [
        "The MCP server 'shop': 'disabledTools' is not used. Deny these tools with a rule.",
        "The MCP server 'shop': 'agrs' is not used.",
    ]
    done = shell(tmp_path, "serve", "check", "--json")
    assert (done.code, done.json["notes"]) == (0, told)
    done = shell(tmp_path, "serve", "check")
    assert (done.code, [line for line in done.err.splitlines() if "server 'shop'" in line]) == (0, told)
