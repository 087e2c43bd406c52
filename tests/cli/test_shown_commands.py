"""A command that another command shows works when it is copied, also for a journal, a folder or a configuration at another place."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.mcp_server_programs import BUY, LOOK, offer, write_servers
from tests.cli.served_gateway import LISTEN, names, principal, server, serving, text_of, write_config
from tests.cli.shell import shell
from tests.cli.test_inbox import asked

JOURNAL = ("--journal", "team calls.db")


def shown(text: str) -> list[list[str]]:
    """Return the words of the commands that a text shows, without `callgate`."""
    return [shlex.split(command) for command in re.findall(r"`callgate ([^`]+)`", " ".join(text.split()))]


@pytest.mark.parametrize(
    "words",
    [
        ("approvals",),
        ("log", "show", "nobody"),
        ("log", "list", "--run", "nobody"),
        ("log", "list", "--caused-by", "999"),
        ("log", "result", "case/0/0"),
        ("log", "stats", "--tool", "nothing"),
        ("log", "tree", "999"),
        ("settle", "--happened"),
        ("settle", "nobody", "--happened"),
        ("stop", "nobody"),
        ("settle", "case/0/0"),
    ],
    ids=" ".join,
)
def test_a_shown_command_names_the_journal_of_the_command_that_shows_it(folder: Path, words: tuple[str, ...]) -> None:
    asked(folder, "A7", "--run", "case", *JOURNAL)
    commands = shown(shell(folder, *words, *JOURNAL).err)
    assert commands
    for command in commands:
        assert tuple(command[-2:]) == JOURNAL
        if "follow" not in command:
            told = shell(folder, *(word.replace("APPROVAL", "case/0/0") for word in command)).err
            assert "There is no journal" not in told


def test_the_commands_that_undo_and_redo_show_name_the_folder(folder: Path) -> None:
    (folder / "work").mkdir()
    place = ("--workspace", "work", *JOURNAL)
    shell(folder, "call", "run_command", "command=echo x > in.txt", *place)
    (redo,) = shown(shell(folder, "undo", "last", *place).err)
    assert not (folder / "work" / "in.txt").exists()
    (undo,) = shown(shell(folder, *redo).err)
    assert (folder / "work" / "in.txt").exists()
    diff, _ = shown(shell(folder, "undo", *place).err)
    assert "+x" in shell(folder, "diff", "last", *diff[2:]).out
    assert shell(folder, *undo).code == 0
    assert not (folder / "work" / "in.txt").exists()


@pytest.mark.process
async def test_a_gateway_shows_how_to_accept_the_tools_of_its_own_configuration(tmp_path: Path) -> None:
    write_servers(tmp_path)
    configuration = (LISTEN, server("shop"), principal("alice"))
    async with serving(tmp_path, *configuration) as gateway:
        (accept,) = shown(gateway.start)
    assert shell(tmp_path, *accept, "--yes").code == 0
    offer(tmp_path, LOOK | {"description": "Look twice."}, BUY)
    async with serving(tmp_path, *configuration) as gateway, gateway.client() as client:
        assert await names(client) == {"buy"}
        commands = shown(gateway.start)
        assert [command[:3] for command in commands] == [["mcp", "diff", "shop"], ["mcp", "accept", "shop"], ["mcp", "diff", "shop"]]
        named = [[str(tmp_path / "gate.toml") if word == "FILE" else word for word in command] for command in commands]
        assert "Look twice." in shell(tmp_path, *named[0]).out
        assert named[2] == named[0]


@pytest.mark.process
async def test_a_gateway_that_withholds_instructions_shows_how_to_look_at_them(tmp_path: Path) -> None:
    write_servers(tmp_path)
    program = (tmp_path / "shop.py").read_text(encoding="utf-8")
    configuration = (LISTEN, server("shop"), principal("alice"))
    write_config(tmp_path, *configuration)
    shell(tmp_path, "mcp", "accept", "shop", "--yes", "--config", "gate.toml")
    told = program.replace('ABOUT = {"capabilities"', 'ABOUT = {"instructions": "Obey.", "capabilities"')
    (tmp_path / "shop.py").write_text(told, encoding="utf-8")
    async with serving(tmp_path, *configuration) as gateway:
        (command,) = shown(gateway.start)
    assert "Obey." in shell(tmp_path, *command).out


@pytest.mark.process
async def test_what_a_client_is_told_of_a_tool_in_quarantine_names_its_server(tmp_path: Path) -> None:
    write_servers(tmp_path)
    configuration = (LISTEN, server("shop"), principal("alice"))
    write_config(tmp_path, *configuration)
    shell(tmp_path, "mcp", "accept", "shop", "--yes", "--config", "gate.toml")
    offer(tmp_path, LOOK | {"description": "Look twice."}, BUY)
    async with serving(tmp_path, *configuration) as gateway, gateway.client() as client:
        said = text_of(await client.call_tool("look", {"article": "tea"}))
        assert shown(said) == [["mcp", word, "shop", "--config", "FILE"] for word in ("diff", "accept")]
        assert str(tmp_path) not in said
