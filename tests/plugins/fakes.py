"""Scripted plugins for tests, and what they have seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Unpack

import callgate.plugins
from callgate.plugins import Plugin
from callgate.plugins.plugin_config import PluginOptions
from tests.plugins import fake_plugin

__all__ = ["ANSWER", "FakeFolder", "table"]

ANSWER: dict[str, Any] = {"answer": {"kind": "result", "value": "done"}}
"""A step that answers a call with the text `done`."""


def table(name: str, **settings: Any) -> str:
    """Return a tool of a manifest, whose arguments are any."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(["[[tools]]", f'name = "{name}"', f'description = "{name}"', "input_schema = {type = 'object'}", *lines, ""])


class FakeFolder:
    """The folder of a scripted plugin with the tools `work`, which goes through the steps, and `echo`.

    Args:
        tools: The tables of its tools in the manifest. None: both.
        head: More of the table `[plugin]`.
        script: More of its script, see `FakePlugin`.
    """

    def __init__(self, folder: Path, *steps: Any, name: str = "fake", tools: str | None = None, head: str = "", **script: Any) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.log = folder / f"{name}.log"
        self.head = head
        self.write(steps=steps, **script)
        self.write_manifest(table("work") + table("echo") if tools is None else tools)

    def write(self, **script: Any) -> None:
        (self.folder / "script.json").write_text(json.dumps(script), encoding="utf-8")

    def write_manifest(self, tools: str, head: str | None = None) -> None:
        words = json.dumps(["{python}", fake_plugin.__file__, "script.json", str(self.log)])
        top = f'[plugin]\nname = "{self.name}"\nversion = "1"\nprotocol = 1\ncommand = {words}\n{self.head if head is None else head}\n'
        (self.folder / "callgate-plugin.toml").write_text(top + tools, encoding="utf-8")

    def plugin(self, **options: Unpack[PluginOptions]) -> Plugin:
        return callgate.plugins.plugin(self.folder, **options)

    def seen(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a kind that the plugin got."""
        return [fact["got"] for fact in self._facts() if fact.get("got", {}).get("kind") == kind]

    @property
    def pids(self) -> list[int]:
        """The processes of the plugin, in the order of their starts."""
        return [fact["started"] for fact in self._facts() if "started" in fact]

    def _facts(self) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
