"""Tests of what a process tool sees of the host's environment, and of the limits on its live output."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from callgate import Engine, ProcessLimits, Scope
from callgate._runners.output_limits import LIVE_CHARS_PER_S, TAIL_CHARS
from callgate.builtins.command import run_command
from callgate.events import Progress
from tests.acceptance.process_tools import environment, floods, run_by
from tests.engine_calls import call, said

pytestmark = pytest.mark.process

ALLOWED = {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
HIDDEN = {"DATABASE_URL": "postgres://", "PYTHONPATH": "/", "EDITOR": "ed", "LD_PRELOAD_NOT": "1", "MAIL": "a"}
OWN = {"CALLGATE_WORKER", "CALLGATE_CALL"}
SHELLS = {"PWD", "OLDPWD", "SHLVL", "_"}
"""Variables that a shell sets."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set environment variables with harmless names; their values may still be secret."""
    for name, value in HIDDEN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("WANTED", "yes")


@pytest.mark.usefixtures("host")
async def test_a_process_tool_sees_only_allowed_environment_variables() -> None:
    async with Engine([run_by(environment, "process")], process_limits=ProcessLimits(environment=("WANTED",))) as engine:
        seen = (await said(engine, call("environment"))).structured
    assert isinstance(seen, dict)
    assert {name for name in seen if not name.startswith("LC_")} <= ALLOWED | OWN | {"WANTED"}
    assert (seen["LC_TIME"], seen["WANTED"]) == ("C", "yes")


@pytest.mark.usefixtures("host")
async def test_a_command_sees_only_allowed_environment_variables(tmp_path: Path) -> None:
    async with Engine([run_command]) as engine:
        result = await said(engine, call("run_command", command="env"), Scope(workspace=str(tmp_path)))
    assert isinstance(result.structured, dict)
    seen = {line.partition("=")[0] for line in str(result.structured["stdout"]).splitlines()}
    assert {name for name in seen if not name.startswith("LC_")} <= ALLOWED | OWN | SHELLS
    assert "PATH" in seen


@pytest.mark.parametrize("stream", ["progress", "stdout"])
async def test_output_of_a_process_tool_is_rate_limited(stream: str) -> None:
    """The limit is per second, and the end of the omitted output is always shown. The bound allows for slow machines."""
    shown: list[str] = []

    def listen(topic: str, item: object) -> None:
        assert isinstance(item, Progress)
        shown.append(item.text)

    async with Engine([run_by(floods, "process")]) as engine:
        engine.bus.subscribe(listen, "call.progress")
        began = time.monotonic()
        result = await said(engine, call("floods", pieces=640, piece_chars=100_000, stream=stream))
        seconds = time.monotonic() - began
    assert result.text == "the end"
    assert "left out" in "".join(shown)
    assert sum(map(len, shown)) <= (seconds + 2) * (LIVE_CHARS_PER_S + 2 * TAIL_CHARS)
