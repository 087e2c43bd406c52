"""`read_mcp_servers`: the configuration files of other clients, read as they are."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import UsageError
from callgate.mcp import AcceptedTools, McpServer, configured_servers, read_mcp_servers

SECRET = "hunter2-very-secret"
GIT = {"command": "uvx", "args": ["mcp-server-git"]}


def written(folder: Path, content: object, name: str = ".mcp.json") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def only(path: Path) -> McpServer:
    (server,) = read_mcp_servers(path)
    return server


CLIENTS: dict[str, tuple[object, dict[str, Any]]] = {
    "Claude": ({"mcpServers": {"git": GIT | {"env": {"A": "1"}}}}, {"command": ("uvx", "mcp-server-git"), "env": {"A": "1"}}),
    "Claude, HTTP": (
        {"mcpServers": {"git": {"type": "http", "url": "https://host/mcp", "headers": {"X": "y"}}}},
        {"url": "https://host/mcp", "headers": {"X": "y"}},
    ),
    "VS Code": ({"servers": {"git": GIT | {"type": "stdio"}}, "inputs": []}, {"command": ("uvx", "mcp-server-git")}),
    "VS Code, settings": ({"mcp": {"servers": {"git": GIT}, "inputs": []}}, {"command": ("uvx", "mcp-server-git")}),
    "Windsurf": ({"mcpServers": {"git": {"serverUrl": "https://host/mcp"}}}, {"url": "https://host/mcp"}),
    "Cline": ({"mcpServers": {"git": {"type": "streamableHttp", "url": "https://host/mcp"}}}, {"url": "https://host/mcp"}),
    "Gemini CLI": ({"mcpServers": {"git": {"httpUrl": "https://host/mcp", "includeTools": ["a"]}}}, {"tools": ("a",)}),
    "two lists of tools": ({"mcpServers": {"git": GIT | {"includeTools": ["a", "b"], "tools": ["b", "c"]}}}, {"tools": ("b",)}),
    "all tools of one list": ({"mcpServers": {"git": GIT | {"includeTools": ["*"], "tools": ["b"]}}}, {"tools": ("b",)}),
    "isolation": ({"mcpServers": {"git": GIT | {"isolation": "shared"}}}, {"isolation": "shared"}),
    "Copilot CLI": ({"mcpServers": {"git": GIT | {"type": "local", "tools": ["*"]}}}, {"tools": None}),
    "Zed": ({"theme": "One", "context_servers": {"git": GIT | {"source": "custom"}}}, {"command": ("uvx", "mcp-server-git")}),
    "Zed, older": (
        {"context_servers": {"git": {"command": {"path": "uvx", "args": ["x"], "env": {"A": "1"}}}}},
        {"command": ("uvx", "x"), "env": {"A": "1"}},
    ),
    "opencode": (
        {"mcp": {"git": {"type": "local", "command": ["uvx", "x"], "environment": {"A": "1"}, "enabled": True}}},
        {"command": ("uvx", "x"), "env": {"A": "1"}},
    ),
}


@pytest.mark.parametrize(("content", "wanted"), CLIENTS.values(), ids=CLIENTS.keys())
def test_the_files_of_other_clients_are_read_as_they_are(tmp_path: Path, content: object, wanted: dict[str, Any]) -> None:
    server = only(written(tmp_path, content))
    assert server.name == "git"
    assert {key: getattr(server, key) for key in wanted} == wanted
    assert server.problem == ""


def test_comments_and_trailing_commas_are_read(tmp_path: Path) -> None:
    text = '\ufeff{ // servers\n "mcpServers": { /* one\n */ "git": {"command": "a//b", "args": ["/*x*/", ",]",], }, },\n}'
    assert only(written(tmp_path, text)).command == ("a//b", "/*x*/", ",]")


def test_disabled_servers_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, {"mcpServers": {"a": GIT | {"disabled": True}, "b": GIT | {"enabled": False}, "c": GIT | {"disabled": False}}})
    assert [server.name for server in read_mcp_servers(path)] == ["c"]
    assert [(one.name, one.enabled) for one in configured_servers(path)] == [("a", False), ("b", False), ("c", True)]


def test_unknown_keys_are_logged_and_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = GIT | {"gallery": {"deep": [1]}, "alwaysAllow": ["x"], "timeout": 60, "disabledTools": ["y"]}
    with caplog.at_level(logging.WARNING, "callgate.mcp"):
        server = only(written(tmp_path, {"mcpServers": {"git": entry}, "theme": "dark"}))
    assert server.command == ("uvx", "mcp-server-git")
    for key in ("gallery", "alwaysAllow", "timeout", "disabledTools"):
        assert f"'git': '{key}' is not used" in caplog.text


def test_names_that_a_server_cannot_have_are_changed_and_stay_different(tmp_path: Path) -> None:
    path = written(tmp_path, {"mcpServers": {"@a/my server": GIT, "a-my-server": GIT, "a my server": GIT, "日本": GIT}})
    found = configured_servers(path)
    assert [one.server.name for one in found] == ["a-my-server-2", "a-my-server", "a-my-server-3", "server"]
    assert "It is called 'a-my-server-2' here" in found[0].notes[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${TOKEN}", SECRET),
        ("${env:TOKEN}", SECRET),
        ("Bearer ${TOKEN}!", f"Bearer {SECRET}!"),
        ("${TOKEN:-default}", SECRET),
        ("${NOT_SET:-a default}", "a default"),
        ("${env:EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NOT_SET:-}", ""),
        ("$TOKEN ${a b} ${} ${1}", "$TOKEN ${a b} ${} ${1}"),
    ],
)
def test_variables_are_replaced_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, value: str) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET", raising=False)
    path = written(tmp_path, {"mcpServers": {"git": {"command": "x", "args": [text], "env": {"A": text}}}})
    server = only(path)
    assert (server.command, server.env, server.problem) == (("x", value), {"A": value}, "")


def test_the_folder_of_the_workspace_is_replaced(tmp_path: Path) -> None:
    entry = {"command": "${workspaceFolder}/run", "cwd": "${workspaceFolder}${/}src"}
    server = only(written(tmp_path, {"servers": {"git": entry}}, ".vscode/mcp.json"))
    assert (server.command, server.cwd) == ((f"{tmp_path}/run",), f"{tmp_path}/src")


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        (GIT | {"env": {"A": "${NOT_SET}"}}, "env.A uses the environment variable NOT_SET, which is not set"),
        ({"command": "${NOT_SET}"}, "command uses the environment variable NOT_SET"),
        ({"url": "https://${NOT_SET}/mcp"}, "url uses the environment variable NOT_SET"),
        ({"url": "https://host/mcp", "headers": {"X": "${input:key}"}}, "headers.X uses ${input:key}, which callgate cannot look up"),
        ({"type": "sse", "url": "https://host/sse"}, "sse is a transport that callgate does not have"),
        (GIT | {"envFile": "none.env"}, "envFile: none.env cannot be read"),
    ],
)
def test_what_keeps_one_server_from_starting_does_not_concern_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: object, named: str
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    path = written(tmp_path, {"mcpServers": {"bad": entry, "good": GIT}})
    bad, good = read_mcp_servers(path)
    assert good.problem == ""
    for words in (str(path), "'bad'", named):
        assert words in bad.problem


def test_variables_are_read_from_the_env_file_and_overridden_by_env(tmp_path: Path) -> None:
    (tmp_path / "dev.env").write_text("# comment\nexport A=1\nB = 'two words'\nC=\"3\"\n\n!bad\nD=${x}\n", encoding="utf-8")
    path = written(tmp_path, {"servers": {"git": GIT | {"envFile": "${workspaceFolder}/dev.env", "env": {"A": 5, "N": None, "T": True}}}})
    assert only(path).env == {"A": "5", "B": "two words", "C": "3", "D": "${x}", "T": "true"}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "line 1, column 2"),
        ("[]", "not a JSON object"),
        ("{}", "no MCP servers"),
        ({"theme": "dark"}, "It has theme"),
        ({"mcpServers": []}, "mcpServers is not an object"),
        ('{"mcpServers": {"git": {"command": "a"}, "git": {"command": "b"}}}', "mcpServers has 'git' more than once"),
        ('{"mcpServers": {"git": {"command": "a", "command": "b"}}}', "has 'command' more than once"),
        ('{"mcpServers": {"git": {"command": "a"}}, "mcpServers": {}}', "has 'mcpServers' more than once"),
        ({"mcpServers": {"git": []}}, "'git' is not an object"),
        ({"mcpServers": {"git": {}}}, "command is missing, and so is url"),
        ({"mcpServers": {"git": {"command": ""}}}, "command is empty"),
        ({"mcpServers": {"git": {"command": 5}}}, "command is not text"),
        ({"mcpServers": {"git": {"command": "a", "args": "b"}}}, "args is not a list"),
        ({"mcpServers": {"git": {"command": "a", "args": ["b", 5]}}}, "args[1] is not text"),
        ({"mcpServers": {"git": {"command": "a", "tools": "status"}}}, "tools is not a list"),
        ({"mcpServers": {"git": {"command": "a", "includeTools": {"commit": False}}}}, "includeTools is not a list"),
        ({"mcpServers": {"git": {"command": "a", "tools": ["status", 5]}}}, "tools[1] is not text"),
        ({"mcpServers": {"git": {"command": "a", "env": ["B"]}}}, "env is not an object"),
        ({"mcpServers": {"git": {"command": "a", "env": {"B": {}}}}}, "env.B is not text"),
        ({"mcpServers": {"git": {"command": "a", "env": {"B": f"{SECRET}\0"}}}}, "null character"),
        ({"mcpServers": {"git": {"command": "a", "disabled": "yes"}}}, "disabled is neither true nor false"),
        ({"mcpServers": {"git": {"command": "a", "url": "https://host/mcp"}}}, "command and url are both given"),
        ({"mcpServers": {"git": {"command": "a", "type": "http"}}}, "type is http, which needs a url"),
        ({"mcpServers": {"git": {"url": "https://host/mcp", "type": "stdio"}}}, "type is stdio, which needs a command"),
        ({"mcpServers": {"git": {"url": f"ftp://{SECRET}@host"}}}, "url is not the address of a server"),
        ({"mcpServers": {"git": {"url": "https://host/mcp", "headers": {"A": [SECRET]}}}}, "headers.A is not text"),
        ({"mcpServers": {"git": {"url": "https://host/mcp", "headers": {"A": f"{SECRET}\n"}}}}, "line end"),
        ({"mcpServers": dict.fromkeys(map(str, range(1_001)), GIT)}, "at most 1,000"),
    ],
)
def test_a_wrong_value_is_refused_with_file_server_and_key(tmp_path: Path, content: object, named: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        read_mcp_servers(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_does_not_exist_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no file .*none\.json"):
        read_mcp_servers(tmp_path / "none.json")


def test_credentials_are_left_out_of_what_is_shown_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    words = ["--api-key", SECRET, f"--token={SECRET}", "-e", f"DB_PASSWORD={SECRET}", f"postgres://me:{SECRET}@db/x", "--key", "${TOKEN}"]
    process = {"command": "docker", "args": [*words, "--header", f"Authorization: Bearer {SECRET}"], "env": {"A": SECRET}}
    network = {"url": f"https://me:{SECRET}@host/mcp?key={SECRET}", "headers": {"Authorization": f"Bearer {SECRET}"}}
    first, second = configured_servers(written(tmp_path, {"mcpServers": {"a": process, "b": network}}))
    assert first.target == (
        "docker --api-key '***' '--token=***' -e 'DB_PASSWORD=***' 'postgres://***@db/x' --key '${TOKEN}' --header 'Authorization: ***'"
    )
    assert second.target == "https://***@host/mcp?***"
    assert (first.variables, second.variables) == (("A",), ("Authorization",))
    assert SECRET not in first.target + second.target + repr(first.server) + repr(second.server)


def test_the_file_of_accepted_tools_is_the_one_beside_it(tmp_path: Path) -> None:
    path = written(tmp_path, {"mcpServers": {"git": GIT}})
    assert only(path).accepted is None
    AcceptedTools(tmp_path / ".mcp.accepted.json").accept("git", [{"name": "log"}])
    assert only(path).accepted == tmp_path / ".mcp.accepted.json"
    own = AcceptedTools()
    assert read_mcp_servers(path, accepted=own)[0].accepted is own


PIECES = st.lists(st.sampled_from(["/*", "*/", "//", '"', "\\", "\n", ",", "]", "}", "{", "[", ":", "a", "1", " "]), max_size=14)


@given(value=st.recursive(PIECES.map("".join), lambda inner: st.lists(inner) | st.dictionaries(PIECES.map("".join), inner), max_leaves=6))
def test_plain_json_is_read_as_json(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    """Whatever a text contains, nothing in it is taken for a comment or a trailing comma."""
    folder = tmp_path_factory.mktemp("plain")
    args = ["x", json.dumps(value), str(value)]
    assert only(written(folder, {"mcpServers": {"git": {"command": "y", "args": args, "more": value}}})).command[1:] == tuple(args)


@given(text=PIECES.map("".join))
def test_a_file_of_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("any"), text)
    with pytest.raises(UsageError, match=r"\.mcp\.json"):
        read_mcp_servers(path)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"source": "extension", "settings": {}}, "source is extension, which only Zed can start. Give its command, or its url."),
        ({"url": "unix:///tmp/x.sock"}, "url is the address of a local socket, which callgate cannot use. Give an http address."),
        ({"command": "uvx", "args": ["{file:./secret}"]}, "args uses ${file:./secret}, which callgate cannot look up."),
        ({"command": "uvx", "env": {"A": "{env:NOBODY_SETS_THIS}"}}, "env.A uses the environment variable NOBODY_SETS_THIS"),
    ],
)
def test_a_server_that_only_another_client_can_start_keeps_no_other_one_from_starting(
    tmp_path: Path, entry: dict[str, Any], problem: str
) -> None:
    other, git = read_mcp_servers(written(tmp_path, {"context_servers": {"other": entry, "git": GIT}}))
    assert problem in other.problem
    assert git.problem == ""


@pytest.mark.parametrize("entry", [{"command": ""}, {"source": "extension"}, {"url": "no address"}])
def test_what_is_wrong_with_a_server_that_is_turned_off_keeps_no_other_one_from_starting(tmp_path: Path, entry: dict[str, Any]) -> None:
    path = written(tmp_path, {"mcpServers": {"off": entry | {"disabled": True}, "git": GIT}})
    assert [server.name for server in read_mcp_servers(path)] == ["git"]


def test_variables_in_the_form_of_opencode_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", SECRET)
    path = written(tmp_path, {"mcp": {"git": {"type": "local", "command": ["uvx", "x"], "environment": {"A": "{env:TOKEN_OF_TEST}"}}}})
    assert only(path).env == {"A": SECRET}
