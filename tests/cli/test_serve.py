"""`callgate serve` as a process of its own, with the client of the official SDK over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client, StdioServerParameters
from tests.cli.command_process import start_command
from tests.cli.mcp_server_programs import SHOP, write_servers
from tests.cli.shell import command, environment, shell
from tests.waiting import COMMAND_S, until

pytestmark = pytest.mark.process

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
_TOOLS = '''
import os, subprocess, sys, time
from callgate import tool

print("printed while the module is loaded")

@tool(effect="none")
def loud(name: str) -> str:
    """Print in every way, and answer."""
    print("printed by a tool")
    os.write(1, b"written to descriptor 1\\n")
    subprocess.run(["echo", "printed by a child"])
    return f"hello {name}"

@tool(effect="none")
def reads_input() -> str:
    """Return what is on standard input."""
    return repr(sys.stdin.read()) + repr(os.read(0, 10))

@tool(effect="none")
def key() -> str:
    """Return a secret."""
    return f"the key is {os.environ['SHOP_KEY']}"

@tool(runner="process", effect="none")
def wait() -> str:
    """Take long."""
    with open("pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid.new", "pid")
    time.sleep(300)
    return "done"
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with the programs of servers, and tools that print."""
    write_servers(tmp_path)
    (tmp_path / "own.py").write_text(_TOOLS, encoding="utf-8")
    return tmp_path


def write_config(folder: Path, more: str = "") -> None:
    shop = json.dumps(list(SHOP))
    (folder / "gate.toml").write_text(f'name = "team tools"\n{more}\n[servers.shop]\ncommand = {shop}\n', encoding="utf-8")


@asynccontextmanager
async def served(folder: Path, *words: str, mode: str = "auto", **more: str) -> AsyncIterator[Client]:
    """Let the client of the SDK start `callgate serve` in another folder, as clients do, and speak to it."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    name, *arguments = command(("serve", *words))
    server = StdioServerParameters(command=name, args=arguments, env=environment(**more), cwd=elsewhere)
    async with Client(server, mode=mode) as client:
        yield client


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@ERAS
async def test_a_client_of_each_era_uses_the_servers_of_a_configuration(place: Path, mode: str) -> None:
    """Paths of the file begin in its folder, wherever the client starts the command."""
    write_config(place, 'tools = ["own.py:loud"]')
    async with served(place, "--config", str(place / "gate.toml"), mode=mode) as client:
        assert client.server_info is None or client.server_info.name == "team tools"
        assert {tool.name for tool in (await client.list_tools()).tools} == {"look", "buy", "loud"}
        assert text_of(await client.call_tool("look", {"article": "tea"})).startswith('look {"article": "tea"}')
    assert (place / "bought.txt").read_text(encoding="utf-8").split() == ["look"]
    done = shell(place, "log", "list", "--journal", str(place / ".callgate" / "journal.db"), "--json")
    assert [line["tool"] for line in done.lines] == ["look"]


@pytest.mark.parametrize(("key", "is_kept"), [("undo = true", True), ("", False), ('undo = false\ntools = ["own.py:loud"]', False)])
async def test_what_a_server_writes_in_the_workspace_can_be_undone_if_the_file_says_so(place: Path, key: str, is_kept: bool) -> None:
    write_config(place, key)
    async with served(place, "--config", str(place / "gate.toml")) as client:
        await client.call_tool("buy", {"article": "tea"})
    assert (place / "bought.txt").read_text(encoding="utf-8").split() == ["buy"]
    done = shell(place, "undo", "last", "--journal", str(place / ".callgate" / "journal.db"))
    assert (done.code, (place / "bought.txt").exists()) == ((0, False) if is_kept else (2, True)), done


async def test_servers_can_be_given_without_a_file(place: Path) -> None:
    words = shlex.join([SHOP[0], str(place / SHOP[1]), str(place / SHOP[2])])
    async with served(place, "--mcp", words, "--tools", str(place / "own.py:loud")) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"look", "buy", "loud"}


@ERAS
async def test_nothing_but_the_protocol_reaches_the_client(place: Path, mode: str) -> None:
    """A tool may print, write to descriptor 1 and start programs that print. The client would stumble over one such line."""
    async with served(place, "--tools", str(place / "own.py"), mode=mode) as client:
        assert text_of(await client.call_tool("loud", {"name": "Ann"})) == "hello Ann"
        assert text_of(await client.call_tool("reads_input", {})) == "''b''"
    process = await start_command(place, "serve", "--tools", str(place / "own.py"), stdin=PIPE)
    out, err = await asyncio.wait_for(process.communicate(CALL), COMMAND_S)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2]
    for words in (b"printed while the module is loaded", b"printed by a tool", b"written to descriptor 1", b"printed by a child"):
        assert words in err
    assert process.returncode == 0


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n" for message in messages)


CALL = lines(
    {"id": 1, "method": "initialize", "params": INITIALIZE},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {"name": "loud", "arguments": {"name": "Ann"}}},
)
WAIT = lines(
    {"id": 1, "method": "initialize", "params": INITIALIZE},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}},
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_ends_the_running_calls_and_the_command(place: Path, number: signal.Signals) -> None:
    """The tool of the call is a process that sleeps for five minutes."""
    process = await start_command(place, "serve", "--tools", "own.py", stdin=PIPE)
    assert process.stdin is not None
    process.stdin.write(WAIT)
    await until((place / "pid").exists)
    pid = int((place / "pid").read_text(encoding="utf-8"))
    process.send_signal(number)
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_values_of_variables_reach_neither_client_nor_journal(place: Path) -> None:
    (place / "gate.toml").write_text('tools = ["own.py:key"]\nredact_env = ["SHOP_KEY"]\n', encoding="utf-8")
    async with served(place, "--config", str(place / "gate.toml"), SHOP_KEY="SECRET-KEY-1") as client:
        assert text_of(await client.call_tool("key", {})) == "the key is ***"
    exported = shell(place, "log", "export", "--journal", str(place / ".callgate" / "journal.db")).out
    assert "the key is ***" in exported
    assert "SECRET-KEY-1" not in exported


async def test_rules_judge_the_calls_of_clients(place: Path) -> None:
    (place / "rules.toml").write_text('[[rule]]\nid = "closed"\nverdict = "deny"\ntool = "buy"\nreason = "The shop is closed."\n')
    write_config(place, 'rules = "rules.toml"')
    async with served(place, "--config", str(place / "gate.toml")) as client:
        denied = await client.call_tool("buy", {})
    assert denied.is_error
    assert "The shop is closed." in text_of(denied)
    assert not (place / "bought.txt").exists()


async def test_clients_cannot_write_the_configuration_with_the_file_tools(place: Path) -> None:
    """The workspace is its folder by default. Else a model could allow itself what the rules deny, at the next start or reload."""
    (place / "rules.toml").write_text('[[rule]]\nid = "closed"\nverdict = "deny"\ntool = "buy"\n')
    (place / ".mcp.json").write_text('{"mcpServers": {}}')
    (place / "link").symlink_to("rules.toml")
    write_config(place, 'rules = "rules.toml"\ntools = "builtin"\nmcp_files = ".mcp.json"')
    files = ("gate.toml", "rules.toml", "link", ".mcp.json", "gate.accepted.json", "./.mcp.accepted.json")
    before = contents(place)
    async with served(place, "--config", str(place / "gate.toml")) as client:
        for path in files:
            written = await client.call_tool("write_file", {"path": path, "content": "{}"})
            assert "only its operator changes" in text_of(written)
        edited = await client.call_tool("edit_file", {"path": "rules.toml", "old": "deny", "new": "allow"})
        assert "only its operator changes" in text_of(edited)
        assert before == contents(place)
        assert not (await client.call_tool("read_file", {"path": "gate.toml"})).is_error
        assert not (await client.call_tool("write_file", {"path": "notes.txt", "content": "x"})).is_error


async def test_a_rule_about_a_tool_in_quarantine_does_not_keep_the_gateway_from_starting(place: Path) -> None:
    """Else a server could end the gateway by describing a tool anew."""
    (place / "rules.toml").write_text('[[rule]]\nid = "closed"\nverdict = "deny"\ntool = "buy"\nreason = "The shop is closed."\n')
    write_config(place, 'rules = "rules.toml"')
    assert shell(place, "mcp", "accept", "shop", "look", "--yes", "--config", "gate.toml").code == 0
    async with served(place, "--config", str(place / "gate.toml")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["look"]
        assert not (await client.call_tool("look", {})).is_error


# The check


def test_the_check_shows_each_server_with_its_protocol_and_effects(place: Path) -> None:
    write_config(place, 'tools = ["own.py"]')
    with (place / "gate.toml").open("a", encoding="utf-8") as file:
        file.write('[servers.shop.effects]\nlook = "none"\n[servers.off]\ncommand = "no-such-program"\nenabled = false\n')
    done = shell(place, "serve", "check")
    assert done.code == 0, done.err
    shown = {line.split()[0]: line for line in done.out.splitlines()}
    assert "ready" in shown["shop"]
    assert "2026-07-28" in shown["shop"]
    assert "1 none, 1 once" in shown["shop"]
    assert "disabled" in shown["off"]
    assert "4 none" in shown["Python"]
    assert not (place / ".callgate").exists()


def test_the_check_fails_for_a_server_that_cannot_start_and_for_names_of_no_tool(place: Path) -> None:
    write_config(place)
    with (place / "gate.toml").open("a", encoding="utf-8") as file:
        file.write('[servers.shop.effects]\nlok = "none"\n[servers.dead]\ncommand = ["python3", "dead.py"]\n')
    done = shell(place, "serve", "check", "--json")
    assert done.code == 1
    rows = {row["name"]: row for row in done.json["servers"]}
    assert "no licence found" in rows["dead"]["problems"][0]
    assert "has no tool lok" in rows["shop"]["problems"][0]
    assert set(done.json["tools"]) == {"look", "buy"}


def test_the_check_fails_for_options_of_a_plugin_that_name_no_tool(place: Path) -> None:
    assert shell(place, "plugin", "new", "hello").code == 0
    write_config(place)
    with (place / "gate.toml").open("a", encoding="utf-8") as file:
        file.write('[plugins.hello]\npath = "hello"\n[plugins.hello.options.gret]\nrequires_approval = true\n')
    done = shell(place, "serve", "check", "--json")
    assert done.code == 1
    (row,) = (row for row in done.json["servers"] if row["name"] == "hello")
    assert row["problems"] == [
        "'hello' has no tool gret (did you mean greet?), which its configuration names. It has: greet. Correct the name."
    ]


def test_the_check_fails_for_a_pattern_that_fits_no_tool_and_an_issuer_whose_keys_are_not_found(place: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        issuer = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        write_config(place)
        with (place / "gate.toml").open("a", encoding="utf-8") as file:
            file.write(f'[principals.ann]\ntools = ["look", "bye*"]\n[jwt]\nissuer = "{issuer}"\nresource = "{issuer}/mcp"\n')
            file.write('[jwt.tool_scopes]\n"b*" = "buy"\n"sel*" = "sell"\n')
        done = shell(place, "serve", "check", "--json")
    assert done.code == 1
    keys, *patterns = done.json["problems"]
    assert keys.startswith(
        f"[jwt]: the keys of {issuer} cannot be fetched: {issuer}/.well-known/oauth-authorization-server cannot be asked"
    )
    assert patterns == [
        "[principals.ann] tools has 'bye*', which fits no tool. Correct it.",
        "[jwt.tool_scopes] has 'sel*', which fits no tool. Correct it.",
    ]


def test_a_key_with_an_undeclared_parameter_is_told_once_with_what_the_file_can_say(place: Path) -> None:
    write_config(place, '[servers.shop.options.buy]\nkey = "buy:{nothing}"\n')
    done = shell(place, "serve", "check")
    assert done.code == 1
    assert done.err.count("'nothing' is none of its parameters") == 1
    assert "Name one of these. In Python, the key may also be a function" in done.err


def test_a_required_server_that_cannot_start_is_told_with_what_the_file_can_say(place: Path) -> None:
    (place / "gate.toml").write_text('[servers.dead]\ncommand = "no-such-program-here"\nrequired = true\n', encoding="utf-8")
    done = shell(place, "serve", "check")
    assert done.code == 1
    assert "It is required, so nothing starts without it. Correct that, or set `required` to false." in done.err


@pytest.mark.parametrize(
    ("named", "words", "warnings"),
    [("", (), 1), ('workspace = "."\n', (), 0), ("", ("--workspace", "."), 0)],
    ids=["neither", "file", "option"],
)
def test_replicas_without_a_workspace_are_warned_that_it_has_to_be_the_same(
    place: Path, named: str, words: tuple[str, ...], warnings: int
) -> None:
    """Shown before the journal is opened, which fails here."""
    replicas = '[replicas]\nname = "a"\nurl = "http://10.0.0.3:8765"\nsecret_env = "GATE_SECRET"\n'
    write_config(place, f'journal = "postgresql://127.0.0.1:1/d"\n{named}{replicas}')
    done = shell(place, "serve", "--config", "gate.toml", "--http", "127.0.0.1:0", *words, GATE_SECRET="s" * 32)
    assert done.code == 2, done.err
    assert done.err.count("[replicas] is configured without `workspace`") == warnings


# Tokens and wrong usage


def test_a_token_is_printed_with_the_lines_for_the_file(place: Path) -> None:
    done = shell(place, "serve", "token", "alice")
    token, *config = done.out.splitlines()
    (place / "gate.toml").write_text("\n".join(("[http]", *config)), encoding="utf-8")
    assert token not in "\n".join(config)
    assert config[0] == "[principals.alice]"
    assert shell(place, "serve", "token", "alice").out.splitlines()[0] != token
    assert "There is nothing to serve" in shell(place, "serve", "check").err  # the file itself is accepted


def test_without_a_pipe_as_input_the_command_says_what_to_do(place: Path) -> None:
    write_config(place)
    done = shell(place, "serve")
    assert done.code == 2
    assert "serve with --http" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "There is nothing to serve. Give MCP servers with --mcp"),
        (("--config", "none.toml"), "There is no file none.toml"),
        (("--mcp", shlex.join(SHOP), "--workspace", "nowhere"), "The workspace nowhere is not a folder"),
        (("--mcp", shlex.join(SHOP), "--rules", "nowhere.toml"), "The rule file nowhere.toml cannot be read"),
        (("--mcp", shlex.join(SHOP), "--http", "1:2:3"), "--http is '1:2:3', which is not an address to listen on"),
        (("--mcp", shlex.join(SHOP), "--http", "0.0.0.0:1"), "nobody has a token"),
        (("--tools", "nowhere.py"), "There is no file nowhere.py"),
    ],
)
def test_wrong_options_are_one_sentence_and_exit_code_2(place: Path, words: tuple[str, ...], told: str) -> None:
    done = shell(place, "serve", "check", *words)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("journal", "told"),
    [
        (".", "it is a folder"),
        ("books/journal.db", "books does not exist"),
        ("other.db", "is a database, but no journal"),
        ("gate.toml", "cannot be a database"),
        ("postgresql://127.0.0.1:1/none", "PostgreSQL|cannot be reached"),
    ],
)
def test_the_check_finds_a_journal_that_the_gateway_could_not_write(place: Path, journal: str, told: str) -> None:
    with closing(sqlite3.connect(place / "other.db")) as other:
        other.execute("CREATE TABLE things (name)")
    write_config(place, f'journal = "{journal}"')
    before = sorted(place.rglob("*"))
    done = shell(place, "serve", "check")
    assert (done.code, bool(re.search(told, done.err))) == (1, True), done.err
    assert "delete" not in done.err
    assert sorted(place.rglob("*")) == before


async def test_a_key_that_other_users_can_read_is_reported(place: Path) -> None:
    write_config(place)
    (place / ".callgate").mkdir()
    key = place / ".callgate" / "gateway.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    told = f"gateway.key can be read by other users. Run: chmod 600 {key}"
    checked = shell(place, "serve", "check")
    assert (checked.code, told in checked.err) == (0, True), checked.err
    process = await start_command(place, "serve", stdin=PIPE)
    assert process.stderr is not None
    said = (await asyncio.wait_for(process.stderr.readuntil(b"Journal:"), COMMAND_S)).decode()
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert told in said
    key.chmod(0o600)
    assert "other users" not in shell(place, "serve", "check").err


def test_the_check_accepts_the_journal_of_a_gateway_and_makes_none(place: Path) -> None:
    write_config(place)
    assert shell(place, "serve", "check").code == 0
    assert not (place / ".callgate").exists()
    assert shell(place, "call", "loud", "name=you", "--tools", "own.py").code == 0
    assert (place / ".callgate" / "journal.db").exists()
    assert shell(place, "serve", "check").code == 0


def test_the_tools_of_its_servers_are_accepted_like_those_of_other_files(place: Path) -> None:
    """`callgate mcp` reads the gateway's configuration too; what is not accepted is in quarantine, and fails the check."""
    write_config(place)
    assert shell(place, "mcp", "accept", "shop", "look", "--effect", "none=look", "--yes", "--config", "gate.toml").code == 0
    assert (place / "gate.accepted.json").exists()
    done = shell(place, "serve", "check")
    assert done.code == 1
    assert "buy" in done.err
    assert shell(place, "mcp", "accept", "shop", "--yes", "--config", "gate.toml").code == 0
    done = shell(place, "serve", "check")
    assert done.code == 0, done.err
    assert "1 none, 1 once" in done.out
    assert shell(place, "mcp", "diff", "--config", "gate.toml").code == 0


# HTTP


@asynccontextmanager
async def served_over_http(folder: Path, *words: str) -> AsyncIterator[tuple[str, str]]:
    """Start the command; yield its address and the token that it has printed. End it with SIGTERM."""
    process = await start_command(folder, "serve", *words, stdin=PIPE)
    assert process.stderr is not None
    url = token = ""
    try:
        while not (url and token):
            line = (await asyncio.wait_for(process.stderr.readline(), COMMAND_S)).decode()
            assert line, "the command has ended"
            url = url or next((word.rstrip(".") for word in line.split() if word.startswith("http://")), "")
            token = token or next((word for word in line.split() if word.startswith("cg_")), "")
        yield url, token
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 0


@ERAS
async def test_without_principals_one_token_is_made_and_printed(place: Path, mode: str) -> None:
    async with served_over_http(place, "--tools", "own.py:loud", "--http", "127.0.0.1:0") as (url, token):
        async with httpx2.AsyncClient() as without:
            assert (await without.post(url, json={})).status_code == 401
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert text_of(await client.call_tool("loud", {"name": "Ann"})) == "hello Ann"


async def test_an_address_that_is_taken_is_one_sentence(place: Path) -> None:
    async with served_over_http(place, "--tools", "own.py:loud", "--http", "127.0.0.1:0") as (url, _):
        address = url.split("/")[2]
        done = await asyncio.to_thread(shell, place, "serve", "--tools", "own.py:loud", "--http", address, "--journal", ":memory:")
        assert done.code == 2
        assert f"The gateway cannot listen on {address}" in done.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gate.toml", ""),
        ("rules.toml", 'rules = "rules.toml"\n'),
        ("clients.json", 'mcp_files = ["clients.json"]\n'),
        ("accepted.json", 'accepted = "accepted.json"\n'),
        ("gateway.key", 'journal = "calls.db"\n'),
    ],
)
def test_a_pipe_or_device_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, name: str, text: str) -> None:
    write_servers(tmp_path)
    (tmp_path / "gate.toml").write_text(f"{text}[servers.shop]\ncommand = {json.dumps(SHOP)}\n", encoding="utf-8")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    refused = shell(tmp_path, "serve", "--config", "gate.toml", "--http", "127.0.0.1:0")
    assert refused.code == 2, refused.err
    assert name in refused.err
    assert "it is a pipe or a device, and no file" in refused.err.replace("\n", " ")


def test_a_pipe_in_the_place_of_the_configuration_that_is_looked_for_is_refused_as_that(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate.toml")
    refused = shell(tmp_path, "serve", "--http", "127.0.0.1:0")
    assert refused.code == 2, refused.err
    assert "gate.toml cannot be used as the configuration of a gateway: it is a pipe or a device" in refused.err.replace("\n", " ")


def test_a_pipe_in_the_place_of_a_file_of_variables_leaves_only_its_server_out(tmp_path: Path) -> None:
    write_servers(tmp_path)
    entry = {"type": "stdio", "command": "x", "envFile": str(tmp_path / ".env")}
    (tmp_path / "clients.json").write_text(json.dumps({"servers": {"x": entry}}), encoding="utf-8")
    (tmp_path / "gate.toml").write_text(f'mcp_files = ["clients.json"]\n[servers.shop]\ncommand = {json.dumps(SHOP)}\n', encoding="utf-8")
    os.mkfifo(tmp_path / ".env")
    checked = shell(tmp_path, "serve", "check")
    assert "it is a pipe or a device, and no file" in (checked.out + checked.err).replace("\n", " ")
    assert "2 tools in all" in checked.err
