"""What is refused before a plugin starts, how installed plugins are found, and how an engine's owner overrides a manifest."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from callgate import Agent, Engine
from callgate.errors import UsageError
from callgate.plugins import installed_plugins, plugin
from callgate.testing import Call, ScriptedModel
from tests.engine_calls import call, said
from tests.plugins.fakes import ANSWER, FakeFolder, table

HEAD = '[plugin]\nname = "p"\nversion = "1"\nprotocol = 1\ncommand = ["x"]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "this is missing: 'plugin'"),
        ("a=" + "[" * 5_000, "nested too deeply"),
        ("#" * 1_048_577, "more than 1048576 bytes"),
        (HEAD.replace('["x"]', '"x y"'), 'plugin.command: expected a list, got a text. Write it as command = ["{python}", "main.py"]'),
        ('[plugin]\nname = "a"', 'plugin: this is missing: \'version\'. A plugin needs: name = "mail", version = "0.1.0", protocol = 1'),
        (HEAD + "env = {A = 1}", 'plugin.env: expected a list, got a table. Write it as env = ["MAIL_TOKEN"]'),
        (HEAD.replace('["x"]', '["{pyhton}", "x"]'), "begins with {pyhton}, which is not known. The only placeholder is {python}"),
        ("[plugin", "cannot be read"),
        (HEAD.replace("protocol = 1", "protocol = 2"), "plugin.protocol is 2; this engine speaks 1"),
        (HEAD.replace('"p"', '"../p"'), "plugin.name"),
        (HEAD.replace('["x"]', "[]"), "plugin.command"),
        (HEAD + "parallel = 0\n", "plugin.parallel is 0"),
        (HEAD + 'env = ["A=b"]\n', "names of variables"),
        (HEAD + "paralel = 1\n", "plugin: this is not known: 'paralel'. The keys of this table are: name, version, protocol, command,"),
        ("plugins = 1\n" + HEAD, "this is not known: 'plugins'. The keys of this table are: plugin, tools"),
        (HEAD + 'requires = "httpx"\n', "requires"),
        (HEAD + 'requires = ["httpx >= "]\n', "'httpx >= ', which is not a requirement"),
        (HEAD + 'requires = ["--index-url=https://example.org"]\n', "not a requirement"),
        (HEAD + 'requires = ["-r other.txt"]\n', "not a requirement"),
        (HEAD + 'requires = ["https://ada:hunter2@example.org/x.whl"]\n', "'https://***@example.org/x.whl', which is not a requirement"),
        (HEAD + 'requires = ["callgate<0.0.1"]\n', "every environment has callgate"),
        (HEAD + 'requires = ["callgate @ https://example.org/callgate.whl"]\n', "every environment has callgate"),
        (HEAD + 'requires = ["../shared"]\n', "must be in the plugin's folder"),
        (HEAD + 'requires = ["."]\n', "no pyproject.toml"),
        (HEAD + 'requires = []\nrequirements_file = "r.txt"\n', "give one of them"),
        (HEAD + 'requirements_file = "r.txt"\n', "plugin.requirements_file is 'r.txt', which cannot be read"),
        (HEAD + 'requirements_file = "/etc/hostname"\n', "must be a file in the plugin's folder"),
        (HEAD + 'requirements_file = ""\n', "must be a file in the plugin's folder"),
        (HEAD + 'python = "3.12"\n', "plugin.python is '3.12'"),
        (HEAD + 'python = ""\n', "plugin.python is ''"),
        (HEAD + '[[tools]]\nname = "t"\neffect = "never"\n', "invalid value 'never'. It must be one of: none, idempotent, once"),
        (HEAD + '[[tools]]\nname = "t"\neffect = 3\n', "got a whole number. It must be one of: none, idempotent, once"),
        (HEAD + '[[tools]]\nname = "t"\nefect = "none"\n', "'efect'. The keys of this table are: name, description, input_schema"),
        (HEAD + '[[tools]]\nname = "t"\n[[tools]]\nname = "t"\n', "'t' is there twice"),
        (HEAD + '[[tools]]\nname = "t"\ninput_schema = "../secret.json"\n', "not in the plugin's folder"),
        (HEAD + '[[tools]]\nname = "t"\ninput_schema = "a\\u0000b"\n', "t.input_schema"),
        (HEAD + '[[tools]]\nname = "t"\ninput_schema = "pipe"\n', "it is not a file"),
        (HEAD + '[[tools]]\nname = "t"\ninput_schema = "large.json"\n', "more than 1048576 bytes"),
        (HEAD + '[[tools]]\nname = "t"\ninput_schema = "missing.json"\n', "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_its_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "callgate-plugin.toml").write_text(text, encoding="utf-8")
    (tmp_path / "large.json").write_text("{}" + " " * 1_048_576, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError) as caught:
        plugin(tmp_path)
    assert told in str(caught.value)
    assert "callgate-plugin.toml" in str(caught.value)


@pytest.mark.parametrize("target", ["", "no_such_package", "./no-such-folder", "json"])
def test_a_target_that_is_no_plugin_is_refused(target: str) -> None:
    with pytest.raises(UsageError):
        plugin(target)


def test_wrong_options_are_refused_with_their_name(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path)
    for options, told in (
        ({"timeout": 1}, "timeout_s"),
        ({"effects": {"work": "never"}}, "effects"),
        ({"options": {"work": {"effect": "none"}}}, "effects="),
        ({"options": {"work": {"timeout": 1}}}, "timeout_s"),
        ({"env": {"A": 1}}, "env"),
    ):
        with pytest.raises(UsageError) as caught:
            fake.plugin(**options)
        assert told in str(caught.value)


@pytest.mark.process
async def test_options_of_the_operator_come_before_those_of_the_manifest(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER, tools=table("work", effect="none", timeout_s=3))
    config = fake.plugin(prefix=True, effects={"work": "once"}, options={"work": {"timeout_s": 7}})
    async with Engine(servers=[config]) as engine:
        (bound,) = engine.tools
        assert (bound.name, bound.effect, bound.tool.timeout_s) == ("fake.work", "once", 7)
        assert (await said(engine, call("fake.work"))).data == "done"


@pytest.mark.process
async def test_names_in_options_that_no_tool_of_the_plugin_has_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped `requires_approval` would let every call of the tool run without a question."""
    fake = FakeFolder(tmp_path, ANSWER)
    config = fake.plugin(effects={"echo": "none", "read": "none"}, options={"wrok": {"requires_approval": True}})
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[config]) as engine:
            assert (await said(engine, call("work"))).data == "done"
    assert [record.getMessage() for record in caplog.records] == [
        "'fake' has no tool read, wrok (did you mean work?), which its configuration names. It has: work, echo. Correct the name."
    ]


def test_installed_plugins_are_found_by_their_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, about = tmp_path / "shop_plugin", tmp_path / "shop_plugin-1.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it is not imported')", encoding="utf-8")
    (package / "callgate-plugin.toml").write_text(HEAD, encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-plugin\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[callgate.plugins]\nshop = shop_plugin\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (found,) = installed_plugins()
    assert (found.name, found.path) == ("p", package)
    assert plugin("shop").path == package
    with pytest.raises(UsageError, match="no such package or entry point is installed"):
        plugin("shops")


def test_an_installed_plugin_that_cannot_be_used_is_named_in_the_log_and_the_others_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, manifest in (("broken", "[plugin"), ("good", HEAD)):
        (package := tmp_path / f"{name}_plugin").mkdir()
        (about := tmp_path / f"{name}_plugin-1.dist-info").mkdir()
        (package / "callgate-plugin.toml").write_text(manifest, encoding="utf-8")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1\n", encoding="utf-8")
        (about / "entry_points.txt").write_text(f"[callgate.plugins]\n{name} = {name}_plugin\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert [one.path.name for one in installed_plugins()] == ["good_plugin"]
    assert "The entry point 'broken' of broken-plugin (callgate.plugins) cannot be used" in caplog.text
    with pytest.raises(UsageError, match="cannot be read"):
        plugin("broken")


@pytest.mark.process
async def test_an_agent_calls_a_plugins_tool(tmp_path: Path) -> None:
    fake = FakeFolder(tmp_path, ANSWER)
    model = ScriptedModel([Call("work", {"n": 1}), "finished"])
    async with Agent(model, tools=[fake.plugin()]) as agent:
        answer = await agent.run("Work.")
    assert answer.text == "finished"
    assert len(fake.seen("call")) == 1


@pytest.mark.parametrize("name", ["", "A=B"])
def test_a_name_that_no_variable_can_have_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "callgate-plugin.toml").write_text(HEAD)
    with pytest.raises(UsageError, match="empty or contains '='") as refused:
        plugin(tmp_path, env={name: "s3cr3t"})
    assert "s3cr3t" not in str(refused.value)
