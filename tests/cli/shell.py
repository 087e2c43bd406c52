"""Run the real command line as a user's shell does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import callgate
from tests.cli.forked_commands import Forks
from tests.waiting import COMMAND_S

__all__ = ["POLICY", "TOOLS", "Ended", "as_any_user", "command", "environment", "forks", "pytest_of", "shell", "transcript", "write_tools"]

TOOLS = '''
import os, time
from callgate import ToolContext, tool

@tool
def refund(order: str, cents: int) -> str:
    """Pay money back. Ask nobody.

    Args:
        order: Which order.
        cents: How much.
    """
    with open("paid.txt", "a") as ledger:
        ledger.write(f"{order} {cents}\\n")
    return f"paid {cents} for {order}"

@tool(effect="none")
def odd_text() -> str:
    """Say something that a terminal would obey."""
    return "a\\x1b[31mb\\u202ec\\U000e0041"

@tool(effect="none")
def broken() -> None:
    """Fail."""
    raise ValueError("no such thing")

@tool(runner="process")
def wait(context: ToolContext, seconds: float = 300.0) -> str:
    """Begin, and take long."""
    context.progress(f"begun \\x1b[2J {os.getpid()}\\n")
    time.sleep(seconds)
    return "done"

both = [refund, odd_text]
'''
POLICY = """
[[rule]]
id = "ask-first"
verdict = "ask"
tool = "refund"
reason = "Really pay?"

[[rule]]
id = "no-odd-text"
verdict = "deny"
tool = "odd_text"
"""


_CHOOSES = re.compile(r"CALLGATE_(?!UNDO$)\w+|COLUMNS|\w+_API_KEY|\w+_BASE_URL|\w+_MODEL|HF_TOKEN")
"""Variables on a developer's machine that would change a command, for example to ask a real model. The place of undo stays."""


class Ended:
    """The exit code and the output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Each line of the output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


def command(words: Iterable[str]) -> list[str]:
    return [sys.executable, "-m", "callgate.cli", *words]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command. A pytest that it starts loads no plugins, which take most of its time."""
    source = str(Path(callgate.__file__).parent.parent)
    passed = {name: value for name, value in os.environ.items() if not _CHOOSES.fullmatch(name)}
    return passed | {"PYTHONPATH": source, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | more


@cache
def forks() -> Forks:
    """Return the process that starts commands, one for all tests."""
    return Forks(environment())


def shell(folder: Path, *words: str, stdin: str = "", **more: str) -> Ended:
    """Run `callgate` with these words in a folder, without a terminal."""
    if sys.platform != "linux":
        return _started(command(words), folder, environment(**more), stdin)
    code, out, err = forks().run(words, folder, environment(**more), stdin, COMMAND_S)
    assert "Traceback" not in err, err
    return Ended(code, out, err)


def transcript(folder: Path, *words: str, program: str = "callgate", **more: str) -> tuple[int, str]:
    """Return the exit code of a program without input, and what it has written to both of its streams, in order.

    Args:
        program: `callgate`, `pytest`, or `python`, whose first word is a script.
    """
    environ = environment(**more)
    with open(os.devnull, "rb") as nothing, TemporaryFile() as written:
        if sys.platform == "linux":
            streams = (nothing.fileno(), written.fileno(), written.fileno())
            code = forks().start(words, folder, environ, streams, program).wait(COMMAND_S)
        else:
            modules = {"callgate": ["-m", "callgate.cli"], "pytest": ["-m", "pytest"], "python": []}
            line = [sys.executable, *modules[program], *words]
            code = subprocess.run(line, cwd=folder, stdin=nothing, stdout=written, stderr=written, env=environ).returncode
        written.seek(0)
        return code, written.read().decode()


def pytest_of(folder: Path, tests: str) -> tuple[int, str]:
    """Run pytest on these tests of a folder, in a process of its own; return its exit code and its output."""
    return transcript(folder, "-q", "-p", "no:cacheprovider", tests, program="pytest", COLUMNS="300")


def as_any_user(folder: Path, *words: str) -> Ended:
    """Run the command as a user who is bound by file permissions: root gives up the capabilities that bypass them."""
    before = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    return _started([*before, *command(words)], folder, environment())


def _started(line: list[str], folder: Path, environment: Mapping[str, str], stdin: str = "") -> Ended:
    """Run the command in a newly started Python."""
    done = subprocess.run(line, cwd=folder, input=stdin, capture_output=True, text=True, timeout=COMMAND_S, env=environment, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


def write_tools(folder: Path) -> None:
    (folder / "crm.py").write_text(TOOLS, encoding="utf-8")
    (folder / "rules.toml").write_text(POLICY, encoding="utf-8")
