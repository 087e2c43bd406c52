"""Runs the programs that build an environment: bounded, without the operator's secrets, and ended with everything that they start.

A package that is built from source runs untrusted code. It gets the variables that pip, compilers and proxies need, and no others, and
none of its processes outlives this one.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.child_process import ProcessExit, ServerCommand, ServerProcess
from callgate._server_processes.server_errors import NotSent
from callgate._server_processes.shown_command import secrets_of, shown_text

__all__ = ["StepEnd", "run_step"]

_PASSED = re.compile(
    r"PIP_\w+|XDG_(CACHE|CONFIG)_(HOME|DIRS)|(HTTPS?|ALL|NO)_PROXY|(https?|all|no)_proxy|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|GIT_SSL_CAINFO"
    r"|SSH_AUTH_SOCK|CC|CXX|CPP|AR|LD|(C|CXX|CPP|LD|ARCH)FLAGS|PKG_CONFIG_PATH|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|MAKEFLAGS|CARGO_HOME"
    r"|RUSTUP_HOME|SDKROOT|MACOSX_DEPLOYMENT_TARGET|SOURCE_DATE_EPOCH|PYENV_(ROOT|VERSION)"
)
"""The variables that a build gets beside `HOME`, `PATH` and a few others."""
_KEPT_LINES = 2_000
_LINE_CHARS = 2_000
_MOST_UNENDED = 65_536
_GRACE_S = 1.0
_DRAIN_S = 1.0


class StepEnd(Struct, frozen=True, kw_only=True):
    """How a program has ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it did not end in time or could not be started."""
    lines: tuple[str, ...]
    """The end of what it wrote, without credentials."""
    problem: str = ""
    """Why it has not done its work, as a part of a sentence; empty if it has."""


async def run_step(words: Sequence[str], folder: Path, timeout_s: float, on_line: Callable[[str], None] = lambda _: None) -> StepEnd:
    """Run a program in a folder to its end.

    Args:
        timeout_s: After this time it is ended.
        on_line: Called with each line that it writes, without credentials.
    """
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    output = _Output(secrets_of([*words, *passed.values()], ()), on_line)
    both = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *words)
    command = ServerCommand(kind="program", name=Path(words[0]).name, command=both, env=passed, cwd=str(folder))
    try:
        process = ServerProcess(command, RedactedLog(None))
    except NotSent as error:
        return StepEnd(code=None, lines=(), problem=str(error).removesuffix("."))
    reading, writing = await process.connect(output, asyncio.BaseProtocol())
    writing.close()
    try:
        end = await asyncio.wait_for(asyncio.shield(process.exited), timeout_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(output.ended), _DRAIN_S)
    except TimeoutError:
        return StepEnd(code=None, lines=tuple(output.lines), problem=f"it did not end within {timeout_s:g} s")
    finally:
        process.stop(_GRACE_S)
        await asyncio.shield(process.exited)
        await asyncio.shield(process.reaped)
        reading.close()
    return StepEnd(code=end.code, lines=tuple(output.lines), problem=_problem(end))


def _problem(end: ProcessExit) -> str:
    return "" if end.code == 0 else str(end)


class _Output(asyncio.Protocol):
    """Splits the output of a program into lines, and keeps the last ones."""

    def __init__(self, secrets: tuple[str, ...], on_line: Callable[[str], None]) -> None:
        self._secrets = secrets
        self._on_line = on_line
        self._rest = b""
        self.lines = deque[str](maxlen=_KEPT_LINES)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > _MOST_UNENDED:
            self._take(self._rest)
            self._rest = b""

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._take(self._rest)
        if not self.ended.done():
            self.ended.set_result(None)

    def _take(self, line: bytes) -> None:
        text = shown_text(line.decode("utf-8", "replace").rstrip(), self._secrets)[:_LINE_CHARS]
        if text.strip():
            self.lines.append(text)
            self._on_line(text)
