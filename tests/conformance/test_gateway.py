"""The gateway conforms to MCP: everything that a revision requires of a server passes through it, in front of a conformant server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.fixture_server import FixtureServer
from tests.conformance.suite import REVISIONS, Suite

pytestmark = [pytest.mark.process, pytest.mark.slow]


@contextmanager
def gateway(upstream: str, folder: Path, more: str = "") -> Iterator[str]:
    """Run `callgate serve` in front of a server, without a prefix and without tokens, and yield its address."""
    config = folder / "gate.toml"
    config.write_text(
        f'journal = "gate.db"\n[http]\nlisten = "127.0.0.1:0"\nanonymous = true\n{more}[servers.fixture]\nurl = "{upstream}"\n'
    )
    command = [sys.executable, "-m", "callgate.cli", "serve", "--config", str(config), "--http"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = next(match for line in process.stderr if (match := re.search(r":(\d+)/mcp", line)))
            yield f"http://localhost:{found[1]}/mcp"
        finally:
            process.terminate()


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_required_scenario_passes_through_the_gateway(suite: Suite, revision: str, tmp_path: Path) -> None:
    with FixtureServer() as fixture, gateway(fixture.url, tmp_path) as url:
        verdicts = suite.server(url, revision, tmp_path / "out")
    assert len(verdicts.required) == {"2025-11-25": 30, "2026-07-28": 37}[revision]
    assert verdicts.conforms, str(verdicts)
    assert all(verdicts.required.values())


_NOT_OF_A_GATEWAY = {"tasks-required-task-error", "tasks-status-notifications"}
"""The first is about a server that cannot answer without a task, and the second has no checks in this version of the suite."""


def test_the_scenarios_of_the_tasks_extension_pass_through_the_gateway(suite: Suite, tmp_path: Path) -> None:
    """The server behind the gateway knows no tasks; the gateway makes tasks of calls that take long."""
    with FixtureServer() as fixture, gateway(fixture.url, tmp_path, "[tasks]\nafter_s = 0.3\n") as url:
        verdicts = suite.server(url, "2026-07-28", tmp_path / "out")
    about_tasks = {name: passed for name, passed in verdicts.optional.items() if name.startswith("tasks-")}
    assert len(about_tasks) >= 8
    failed = {name for name, passed in about_tasks.items() if not passed} - _NOT_OF_A_GATEWAY
    assert not failed, {name: verdicts.failures.get(name) for name in failed}
