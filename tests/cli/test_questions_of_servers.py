"""A human who decides about a call sees which server its tool belongs to: another server may offer a tool with the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.mcp_server_programs import write_servers
from tests.cli.served_gateway import LISTEN, principal, server, serving, text_of
from tests.cli.shell import shell

pytestmark = pytest.mark.process

_GATED = "[servers.{name}.options.buy]\nrequires_approval = true\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_servers(tmp_path)
    return tmp_path


async def test_the_question_about_a_call_names_the_server_of_its_tool(place: Path) -> None:
    people = (principal("alice"), principal("bob", role="operator"))
    shops = tuple(part for name in ("north", "south") for part in (server(name), _GATED.format(name=name)))
    async with serving(place, LISTEN, *shops, *people) as gateway, gateway.client() as alice, gateway.client("bob") as bob:
        await alice.call_tool("buy", {"article": "tea"})
        await alice.call_tool("south.buy", {"article": "tea"})
        shown = text_of(await bob.call_tool("callgate_approvals", {}))
        assert "Tool: buy, of the server north" in shown
        listed = (await bob.call_tool("callgate_approvals", {})).structured_content or {}
        assert [one["server"] for one in listed["approvals"]] == ["north", "south"]
        questions = shell(place, "approvals", "--json").lines
        assert [(one["tool"], one["server"]) for one in questions] == [("buy", "north"), ("south.buy", "south")]
        heads, first, _ = shell(place, "approvals").out.splitlines()
        assert (heads.split()[:4], first.split()[1:4]) == (["approval", "tool", "server", "principal"], ["buy", "north", "alice"])
        assert "server: north" in shell(place, "log", "show", questions[0]["approval"]).out


def test_the_list_of_questions_has_no_column_of_servers_without_a_tool_of_one(folder: Path) -> None:
    shell(folder, "call", "refund", "order=A7", "cents=12", "--tools", "crm.py", "--policy", "rules.toml")
    assert "server" not in shell(folder, "approvals").out
