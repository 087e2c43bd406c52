"""What a call of a plugin's tool costs over the same message through a bare pipe to the same program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench import plugin_child
from bench.floor import TEXT
from bench.measure import Counts, Row
from callgate import Engine, RawCall
from callgate.plugins import plugin

__all__ = ["PluginCalls"]

_MANIFEST = """\
[plugin]
name = "bench"
version = "1"
protocol = 1
command = ["{python}", "PROGRAM"]

[[tools]]
name = "weather"
description = "Look up nothing."
effect = "none"
input_schema = {type = "object", properties = {city = {type = "string"}, days = {type = "integer"}, metric = {type = "boolean"}}}
"""


class PluginCalls:
    """Wall time throughout: this is what a caller waits."""

    def __init__(self) -> None:
        self.over = Row("plugin: a call over the same message through a bare pipe, wall, p50", unit="ms", most=0.3)
        self.whole = Row("plugin: a call, wall, p50", unit="ms")
        self.rows = (self.over, self.whole)

    async def open(self, counts: Counts) -> None:
        self._folder = tempfile.TemporaryDirectory()
        _write_manifest(Path(self._folder.name))
        self._engine = Engine(servers=[plugin(self._folder.name)], run="bench")
        await self._call()
        command = [sys.executable, plugin_child.__file__]
        self._pipe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: ASYNC220
        self._message = msgspec.json.encode({"kind": "call", "id": 1, "tool": "weather", "arguments": msgspec.json.decode(TEXT)}) + b"\n"
        self._round_trip()

    async def round(self, counts: Counts) -> None:
        calls = sorted([await self._call() for _ in range(counts.tasks)])
        bare = sorted(self._round_trip() for _ in range(counts.tasks))
        self.whole.samples.append(calls[len(calls) // 2])
        self.over.samples.append(calls[len(calls) // 2] - bare[len(bare) // 2])

    async def close(self) -> None:
        await self._engine.close()
        assert self._pipe.stdin is not None
        self._pipe.stdin.close()
        self._pipe.wait()
        self._folder.cleanup()

    async def _call(self) -> float:
        """Milliseconds of one call."""
        began = time.perf_counter()
        await self._engine.call(RawCall(name="weather", arguments=TEXT))
        return (time.perf_counter() - began) * 1000

    def _round_trip(self) -> float:
        """Milliseconds of one message and its answer."""
        assert self._pipe.stdin is not None
        assert self._pipe.stdout is not None
        began = time.perf_counter()
        self._pipe.stdin.write(self._message)
        self._pipe.stdout.readline()
        return (time.perf_counter() - began) * 1000


def _write_manifest(folder: Path) -> None:
    text = _MANIFEST.replace("PROGRAM", plugin_child.__file__)
    (folder / "callgate-plugin.toml").write_text(text, encoding="utf-8")
