"""`callgate doctor`: show what is installed, and test how far each guarantee holds on this machine."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct
from rich.text import Text

import callgate
from callgate._journal import SqliteJournal
from callgate._limits_from_environment import silence_from_environment, timeout_from_environment
from callgate._terminal_text import one_line
from callgate._workspace import strength as workspace_strength
from callgate.calls import Answered, RawCall, Scope
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import grid, output, print_json
from callgate.cli._journal_location import default_journal
from callgate.engine import Engine
from callgate.errors import UsageError

__all__ = ["Check", "doctor"]

_NEEDED = ("msgspec", "jsonschema-rs", "apsw", "psutil", "docstring-parser")
_GRAMMARS = (
    "tree-sitter",
    *(f"tree-sitter-{name}" for name in ("c", "c-sharp", "cpp", "go", "java", "javascript", "php", "ruby", "rust", "typescript")),
)
_EXTRAS = {
    "cli": ("cyclopts", "rich"),
    "gateway": ("prometheus-client", "pyjwt", "uvicorn"),
    "models": ("httpx2",),
    "otel": ("opentelemetry-api",),
    "postgres": ("psycopg",),
    "pydantic": ("pydantic",),
    "symbols": _GRAMMARS,
}


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    name: str
    state: Literal["ok", "weak", "broken", "absent"]
    """`weak`: works, but without the full guarantee. `absent`: belongs to an extra that is not installed."""
    fact: str


def doctor(*, as_json: bool) -> int:
    checks = list(_run_checks())
    healthy = all(check.state != "broken" for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": checks})
    else:
        _print(checks, healthy)
    return _exits.OK if healthy else _exits.FAILED


def _print(checks: list[Check], healthy: bool) -> None:
    styles = {"ok": "green", "weak": "yellow", "broken": "bold red", "absent": "dim"}
    table = grid("", "", "")
    for check in checks:
        table.add_row(Text(check.state, style=styles[check.state]), check.name, one_line(check.fact, 300))
    screen = output()
    screen.print(table, soft_wrap=False)
    end = "All required parts work." if healthy else "A required part is broken: see the lines above."
    screen.print(Text(f"\n{end}", style="green" if healthy else "bold red"))


def _run_checks() -> Iterator[Check]:
    yield _check_python()
    yield Check(name="callgate", state="ok", fact=f"{callgate.__version__} at {Path(callgate.__file__).parent}")
    yield Check(name="platform", state="ok" if sys.platform == "linux" else "weak", fact=platform.platform())
    yield _check_packages()
    yield from _check_extras()
    yield _check_sqlite()
    yield _check_journal()
    yield _place()
    yield _check_confinement()
    yield from _check_process_tools()
    yield _bound("call deadline", timeout_from_environment, "TOOL_EXECUTION_TIMEOUT_MS")
    yield _bound("model's silence", silence_from_environment, "STREAM_SDK_CALL_TIMEOUT_MS")
    yield Check(name="PATH of commands", state="ok" if os.environ.get("PATH") else "weak", fact=os.environ.get("PATH", "not set"))


def _bound(name: str, seconds: Callable[[], float], variable: str) -> Check:
    try:
        return Check(name=name, state="ok", fact=f"{seconds():g} s ({variable})")
    except UsageError as error:
        return Check(name=name, state="broken", fact=str(error))


def _check_python() -> Check:
    new_enough = sys.version_info >= (3, 11)
    return Check(name="python", state="ok" if new_enough else "broken", fact=f"{platform.python_version()} at {sys.executable}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_packages() -> Check:
    missing = [name for name in _NEEDED if _version(name) is None]
    if missing:
        return Check(name="packages", state="broken", fact=f"missing: {', '.join(missing)}. Install with: pip install callgate")
    return Check(name="packages", state="ok", fact=", ".join(f"{name} {_version(name)}" for name in _NEEDED))


def _check_extras() -> Iterator[Check]:
    for extra, packages in _EXTRAS.items():
        there = [f"{name} {version}" for name in packages if (version := _version(name))]
        complete = len(there) == len(packages)
        fact = ", ".join(there) if complete else f"not installed; get it with: pip install 'callgate[{extra}]'"
        yield Check(name=f"extra [{extra}]", state="ok" if complete else "absent", fact=fact)


def _check_sqlite() -> Check:
    import apsw

    return Check(name="sqlite", state="ok", fact=f"{apsw.sqlite_lib_version()} (through apsw {apsw.apsw_version()})")


def _check_journal() -> Check:
    """Write, commit, read back and verify one event."""
    try:
        with tempfile.TemporaryDirectory(prefix="callgate-doctor-") as folder:
            holds = asyncio.run(_journal_holds(Path(folder) / "journal.db"))
    except Exception as error:
        return Check(name="journal", state="broken", fact=f"{type(error).__name__}: {error}")
    fact = "durable before it is shown (WAL, synchronous FULL, one writer), linked by hashes"
    return Check(name="journal", state="ok" if holds else "broken", fact=fact if holds else "what was written does not verify")


async def _journal_holds(path: Path) -> bool:
    from callgate.events import Draft

    journal = SqliteJournal(path)
    await journal.durable(journal.append(Draft(kind="doctor.tried", run="doctor", body=b"{}")))
    holds = journal.verify() is None
    await journal.close()
    return holds


def _place() -> Check:
    """Check whether the default journal can be written. Does not create it."""
    path = Path(default_journal()).absolute()
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    if os.access(nearest, os.W_OK) and nearest.is_dir() == (nearest != path):
        return Check(name="journal's place", state="ok", fact=str(path))
    return Check(name="journal's place", state="weak", fact=f"{path} cannot be written. Give another file with --journal.")


def _check_confinement() -> Check:
    if workspace_strength() == "kernel":
        return Check(name="workspace", state="ok", fact="paths are kept inside by the kernel (openat2), without a race")
    return Check(name="workspace", state="weak", fact="paths are checked name by name; a folder moved out at the same time is not noticed")


def _check_process_tools() -> Iterator[Check]:
    from callgate._runners.process import strength

    promises = strength()
    full = "subreaper" in promises.get("stop", "") and "no subreaper" not in promises["stop"]
    for name, promise in promises.items():
        yield Check(name=f"process: {name}", state="ok" if full else "weak", fact=promise)
    yield _check_worker()


def _check_worker() -> Check:
    """Run one command in a worker process."""
    try:
        outcome = asyncio.run(_run_one_command())
    except Exception as error:
        return Check(name="process: test call", state="broken", fact=f"{type(error).__name__}: {error}")
    if isinstance(outcome, Answered) and outcome.result.success:
        return Check(name="process: test call", state="ok", fact=f"a worker ran a command in {outcome.result.metadata.duration_ms:.0f} ms")
    return Check(name="process: test call", state="broken", fact=str(outcome.result.error if isinstance(outcome, Answered) else outcome))


async def _run_one_command() -> object:
    from callgate.builtins import command_tools

    async with Engine(command_tools(), timeout_s=20) as engine:
        raw = RawCall(name="run_command", arguments={"command": [sys.executable, "-c", "print('here')"]})
        return await engine.call(raw, Scope(workspace=tempfile.gettempdir()))
