"""Run commands in processes that are forked from one with the command line already imported.

Starting Python and its imports take most of a short command's time, and the tests start hundreds. Each command has its own folder,
environment, standard streams and exit, as from a shell; tests that use `command` start Python itself.

Run as a program, this module is the process that forks, independent of the tests.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

__all__ = ["ForkedCommand", "Forks"]

_MOST_BYTES: Final = 1_048_576
_STREAMS: Final = 3
_ON_DEMAND: Final = ("apsw", "cyclopts.help", "encodings.ascii", "httpx2", "jsonschema_rs", "rich._emoji_codes", "rich.markdown")
"""Modules that libraries and commands import when they are first needed."""


class ForkedCommand(NamedTuple):
    """A command that has been started."""

    pid: int
    tells: socket.socket
    """From here the exit code is received once the command has ended, negative if a signal has ended it."""

    def wait(self, within_s: float) -> int:
        """Return the exit code once the command has ended."""
        with self.tells:
            self.tells.settimeout(within_s)
            return int(self.tells.recv(16))


class Forks:
    """A process with the command line imported. It starts with the first command and ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
        program: str = "callgate",
        constants: Mapping[str, float] | None = None,
    ) -> ForkedCommand:
        """Start one command with these file descriptors as its standard streams; they stay open here.

        Args:
            program: `callgate`; `pytest`; `python`, which runs the script that the first word names; `python -m`, whose first word is a
                module; or `python -c`, whose first word is code.
            constants: Values for constants of modules, by their full names, such as waits that are shorter than for users.
        """
        given = {"folder": str(folder), "environment": dict(environment), "constants": dict(constants or {})}
        order = json.dumps({"words": [program, *words], **given}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._asks, [order], [*streams, theirs.fileno()])
        return ForkedCommand(int(ours.recv(16)), ours)

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stdin: str,
        within_s: float,
        program: str = "callgate",
    ) -> tuple[int, str, str]:
        """Return the exit code of one command, its standard output and its standard error."""
        reads, writes = os.pipe()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = self.start(words, folder, environment, (reads, out.fileno(), err.fileno()), program)
            os.close(reads)
            with open(writes, "w", encoding="utf-8") as typed:
                typed.write(stdin)
            code = command.wait(within_s)
            out.seek(0)
            err.seek(0)
            return code, out.read().decode(), err.read().decode()

    def _end(self) -> None:
        self._asks.close()
        self._process.wait()


def _serve(asked: socket.socket) -> None:
    """Fork for each order until the other end of the socket is closed; return only in the process that becomes the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        order, given, _, _ = socket.recv_fds(asked, _MOST_BYTES, _STREAMS + 1)
        if not order:
            sys.exit(0)
        if os.fork() == 0:
            asked.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (command := os.fork()) != 0:
                _tell_end(command, given)
            for number, stream in enumerate(given[:_STREAMS]):
                os.dup2(stream, number)
            for stream in given:
                os.close(stream)
            return _become(json.loads(order))
        for stream in given:
            os.close(stream)


def _tell_end(command: int, given: Sequence[int]) -> NoReturn:
    for stream in given[:_STREAMS]:
        os.close(stream)
    with socket.socket(fileno=given[_STREAMS]) as tells:
        tells.sendall(str(command).encode())
        _, status = os.waitpid(command, 0)
        tells.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(order: dict[str, object]) -> None:
    """Set up this process as if Python had been started with these words in that folder."""
    folder, environment, words, constants = order["folder"], order["environment"], order["words"], order["constants"]
    assert isinstance(folder, str)
    assert isinstance(environment, dict)
    assert isinstance(words, list)
    assert isinstance(constants, dict)
    for name, value in constants.items():
        module, _, constant = name.rpartition(".")
        assert hasattr(sys.modules[module], constant), name
        setattr(sys.modules[module], constant, value)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = folder
    sys.argv = words


def _end(code: object) -> NoReturn:
    """End as Python does, as a forked process of `multiprocessing` too, but free nothing: that takes longer than most commands."""
    if not isinstance(code, int | None):
        sys.exit(str(code))
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code or 0)


def _import_all() -> None:
    """Import what any command needs, the libraries that commands import on demand included.

    Commands need none of `callgate.integrations`: its modules import whole frameworks, and a large process takes twice as long to fork.
    """
    for found in pkgutil.walk_packages(callgate.__path__, "callgate."):
        if not found.name.endswith("__main__") and not found.name.startswith("callgate.integrations."):
            with suppress(ImportError):
                import_module(found.name)
    for name in _ON_DEMAND:
        import_module(name)


def _load_certificates() -> None:
    """Send a request to nobody: the system's certificates, which every model needs, are read with the first one."""
    with EmbeddingsEndpoint("http://127.0.0.1:1/v1", "none", 3) as endpoint, suppress(EmbedderFailed):
        endpoint(["?"])


def _run_program(name: str) -> object:
    if name == "pytest":
        return pytest.console_main()
    if name == "callgate":
        return callgate.cli.main()
    del sys.argv[0]
    if name == "python -m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif name == "python -c":
        code, sys.argv[0] = sys.argv[0], "-c"
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
    else:
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    import pytest

    import callgate.cli
    from callgate.memory import EmbedderFailed, EmbeddingsEndpoint

    _import_all()
    _load_certificates()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    code: object
    try:
        code = _run_program(sys.argv[0])
    except SystemExit as ended:
        code = ended.code
    _end(code)
