"""Scripted servers for tests, and what they have seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Unpack

import callgate.mcp
from callgate.mcp import McpServer
from callgate.mcp.server_config import ServerOptions
from tests.mcp import fake_server
from tests.mcp.fake_server import tool

__all__ = ["ANSWER", "Fake", "tool"]

ANSWER = '{"jsonrpc":"2.0","id":{ID},"result":{"content":[{"type":"text","text":"done"}]}}\n'
"""A frame that answers a call with the text `done`."""


class Fake:
    """A scripted server with the tools `work`, which plays the frames, and `echo`. Of others, `crash` ends it, the rest play the frames.

    Args:
        folder: Where its script and its log are.
        frames: What it does at each call of `work`.
        script: More of its script, see `FakeServer`.
    """

    def __init__(self, folder: Path, *frames: Any, name: str = "fake", tools: list[dict[str, Any]] | None = None, **script: Any) -> None:
        self.name = name
        self.script = folder / f"{name}.json"
        self.log = folder / f"{name}.log"
        self.write(frames=frames, tools=[tool("work"), tool("echo")] if tools is None else tools, **script)

    def write(self, **script: Any) -> None:
        self.script.write_text(json.dumps(script), encoding="utf-8")

    def server(self, **options: Unpack[ServerOptions]) -> McpServer:
        return callgate.mcp.mcp([sys.executable, fake_server.__file__, str(self.script), str(self.log)], name=self.name, **options)

    def seen(self, method: str = "") -> list[dict[str, Any]]:
        """Return the messages that the server got: all, or those of a method."""
        found = [fact["got"] for fact in self._facts() if "got" in fact]
        return [message for message in found if not method or message.get("method") == method]

    @property
    def pids(self) -> list[int]:
        """The processes of the server, in the order of their starts."""
        return [fact["started"] for fact in self._facts() if "started" in fact]

    def calls(self) -> list[dict[str, Any]]:
        """Return the params of all calls of tools that the server got."""
        return [message["params"] for message in self.seen("tools/call")]

    def _facts(self) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
