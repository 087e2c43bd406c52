"""`callgate plugin`: new, check and list, with real plugin processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.shell import Ended, shell

pytestmark = pytest.mark.process

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
ADA = '{"name": "Ada"}'


def command(folder: Path, *words: str) -> Ended:
    return shell(folder, "plugin", *words, XDG_CACHE_HOME=str(folder / "cache"))


@pytest.mark.parametrize("more", [(), pytest.param(("--js",), marks=needs_node)], ids=["python", "javascript"])
def test_a_new_plugin_passes_its_check_and_answers_a_call(tmp_path: Path, more: tuple[str, ...]) -> None:
    assert command(tmp_path, "new", "hello", *more).code == 0
    done = command(tmp_path, "check", "./hello", "--tool", "greet", "--arguments", ADA)
    assert done.code == 0, done.err
    assert "Hello, Ada!" in done.out
    listed = command(tmp_path, "list", ".", "--json").json
    assert [(one["plugin"], one["state"], one["tools"]) for one in listed] == [
        ("hello", "starts", [{"name": "greet", "effect": "none"}]),
    ]


@needs_node
@pytest.mark.parametrize(
    ("body", "code", "told"),
    [("{ name.trim(); }", 0, "null"), ('{ throw "no stamp"; }', 3, "no stamp"), ("{ throw null; }", 3, "null")],
)
def test_a_new_tool_in_javascript_may_return_nothing_and_throw_anything(tmp_path: Path, body: str, code: int, told: str) -> None:
    command(tmp_path, "new", "hello", "--js")
    for name, old, new in (("main.js", "`Hello, ${name}!`", body), ("callgate-plugin.toml", 'effect = "none"', 'effect = "once"')):
        path = tmp_path / "hello" / name
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = command(tmp_path, "check", "./hello", "--tool", "greet", "--arguments", ADA)
    assert done.code == code
    assert told in done.out


@pytest.mark.parametrize("name", ["", "../out", "a b", "-x"])
def test_a_name_that_cannot_be_used_makes_nothing(tmp_path: Path, name: str) -> None:
    assert command(tmp_path, "new", "--", name).code == 2
    assert [one.name for one in tmp_path.iterdir() if one.name != "cache"] == []


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()
    done = command(tmp_path, "new", "hello")
    assert done.code == 2
    assert list((tmp_path / "hello").iterdir()) == []


def test_check_names_the_wrong_key_of_a_manifest(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    manifest = tmp_path / "hello" / "callgate-plugin.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace("parallel = 1", 'paralel = "x"'), encoding="utf-8")
    done = command(tmp_path, "check", "hello")
    assert done.code == 2
    assert "paralel" in done.err


def test_check_says_why_a_plugin_does_not_start(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    (tmp_path / "hello" / "main.py").write_text("raise SystemExit('no licence')\n", encoding="utf-8")
    done = command(tmp_path, "check", "hello")
    assert done.code == 1
    assert "no licence" in done.err
    assert command(tmp_path, "list", ".").code == 0


def test_a_list_names_what_is_wrong_with_one_plugin_and_lists_the_others(tmp_path: Path) -> None:
    for name in ("broken", "hello"):
        command(tmp_path, "new", name)
    manifest = tmp_path / "broken" / "callgate-plugin.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8") + "x = [", encoding="utf-8")
    done = command(tmp_path, "list", ".")
    assert done.code == 1
    assert "hello 0.1  starts" in done.err
    assert "callgate-plugin.toml cannot be read: Invalid value" in done.err
    told = command(tmp_path, "list", ".", "--json").json
    assert [(one["plugin"], one["state"], bool(one["problem"])) for one in told] == [("hello", "starts", False), (None, "unusable", True)]
    assert told[0].keys() == told[1].keys()
    assert command(tmp_path, "list", "hello", "no-such-folder").code == 2


def test_a_list_without_a_start_runs_no_plugin(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    (tmp_path / "hello" / "main.py").write_text("open('started', 'w')\n", encoding="utf-8")
    (listed,) = command(tmp_path, "list", ".", "--no-start", "--json").json
    assert listed["state"] == "not started"
    assert not (tmp_path / "hello" / "started").exists()


def test_arguments_without_a_tool_are_refused(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    done = command(tmp_path, "check", "hello", "--arguments", '{"name": "Ada"}')
    assert done.code == 2
    assert "Add --tool NAME" in done.err


def test_the_exit_code_of_a_plugin_that_ends_at_once_is_told(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    manifest = tmp_path / "hello" / "callgate-plugin.toml"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace('["{python}", "main.py"]', '["false"]'), encoding="utf-8")
    assert "exited with code 1" in command(tmp_path, "check", "hello").err


_WRONG_ID = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {
        "hello": {"kind": "ready"},
        "describe": {"kind": "tools", "tools": [{"name": "work", "description": "Work.", "input_schema": {"type": "object"}}]},
        "call": {"kind": "result", "id": str(message.get("id")), "value": "done"},
        "ping": {"kind": "pong"},
    }.get(message["kind"])
    if answer is None:
        break
    print(json.dumps(answer), flush=True)
"""
"""The program of a plugin that answers a call with an id that is a text."""


def _write_plugin(folder: Path, program: str) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "main.py").write_text(program, encoding="utf-8")
    manifest = '[plugin]\nname = "own"\nversion = "0.1"\nprotocol = 1\ncommand = ["{python}", "main.py"]\n'
    (folder / "own" / "callgate-plugin.toml").write_text(manifest, encoding="utf-8")


def test_a_check_says_why_a_call_gets_no_answer_and_ends_at_its_limit(tmp_path: Path) -> None:
    _write_plugin(tmp_path, _WRONG_ID)
    done = command(tmp_path, "check", "./own", "--tool", "work", "--timeout", "1")
    assert done.code == 3, done.err
    assert "Calling work for up to 1 s" in done.err
    assert "The plugin 'own' wrote a message of the unknown kind 'result', or without what belongs to its kind; it is ignored" in done.err
    assert command(tmp_path, "check", "./own", "--tool", "work", "--timeout", "0").code == 2


def test_a_check_says_that_a_tool_was_not_called_because_it_needs_approval(tmp_path: Path) -> None:
    command(tmp_path, "new", "hello")
    program = tmp_path / "hello" / "main.py"
    program.write_text(program.read_text(encoding="utf-8").replace("@tool(", "@tool(requires_approval=True, "), encoding="utf-8")
    done = command(tmp_path, "check", "./hello", "--tool", "greet", "--arguments", ADA)
    assert done.code == 4
    assert "Nothing ran: greet needs approval, and a check asks nobody." in done.err
    assert "Hello" not in done.out
