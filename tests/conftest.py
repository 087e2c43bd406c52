from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.abandoned_tools import end_stray_tools
from tests.effect_ledger import Ledger
from tests.journals.postgres_server import Server, Unavailable, running_server

# Without bytecode, each worker of the suite and each interpreter that a test starts would compile every module again.
# `tools/mutants.py` passes `-B`: it changes sources within a second, and Python could not tell that their bytecode is outdated.
if "-B" not in sys.orig_argv:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No deadline: speed is measured by the benchmarks.
settings.register_profile("callgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("callgate")

# A shell starts background jobs with SIGINT ignored, and nohup with SIGHUP, and child processes inherit that: tests could not send them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ON_EVERY_LOOP = {"test_inline.py", "test_nested_calls.py", "test_stopping.py"}
"""Tests of async tools, whose coroutines the engine steps itself: they also run on uvloop."""
MOVES_THE_CLOCK = {"past_deadline", "let_pass"}
"""Functions that move the event loop's clock, which uvloop does not allow."""


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the event loops that a test runs on."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_EVERY_LOOP and MOVES_THE_CLOCK.isdisjoint(item.function.__code__.co_names):
        loops["uvloop"] = uvloop.new_event_loop
    return loops


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, default=math.inf, help="skip the tests that have not begun after so many minutes")


LONGEST = {"conformance", "test_bench.py", "test_documented_types.py", "test_replica_kills.py", "test_server_tasks.py"}
"""The folder and the files of the tests that take more than ten seconds each."""

OUT_OF_TIME = pytest.StashKey[float]()
"""When no test begins any more, on the monotonic clock."""


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[OUT_OF_TIME] = time.monotonic() + 60 * session.config.getoption("minutes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[OUT_OF_TIME]:
        pytest.skip(f"it had not begun when the {item.config.getoption('minutes'):g} minutes of this run were over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first, so that no worker is left with one at the end.

    Refuse test names that contain an object's address: workers would collect different names and run no test.
    """
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"The names of these tests have an address; give `ids=`: {named[:5]}")
    items.sort(key=lambda item: LONGEST.isdisjoint((item.path.parent.name, item.path.name)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection, which would search all that stays again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude the collected tests and modules from garbage collection, because they live until the end.

    Nothing is collected before: to search so many objects takes longer than what it frees is worth.
    """
    gc.freeze()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The one PostgreSQL server of a worker."""
    try:
        with running_server() as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"PostgreSQL: {reason}")


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    """Provide the address of an empty database."""
    with postgres.empty_database() as url:
        yield url


@pytest.fixture
def started_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that were started, in order."""
    names: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return names


@pytest.fixture(scope="session", autouse=True)
def _undo_store_in_a_test_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set `CALLGATE_UNDO` to a temporary folder, so that tests do not write to the user's undo store."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(os.environ, "CALLGATE_UNDO", str(tmp_path_factory.mktemp("undo")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_system_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients find no certificates: tests call servers on this machine, and each client takes 20 ms to read the system's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("SSL_CERT_FILE", raising=False)
        patched.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield


@pytest.fixture(autouse=True)
def _end_abandoned_tools() -> Iterator[None]:
    yield
    end_stray_tools()
