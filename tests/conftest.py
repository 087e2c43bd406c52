from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.abandoned_tools import end_stray_tools
from tests.effect_ledger import Ledger

# Without bytecode, each worker of the suite, and each of the hundreds of interpreters that it starts, compiles everything anew.
# What changes sources within a second, as `tools/mutants.py` does, says `-B`: bytecode of the second before would pass for theirs.
if "-B" not in sys.orig_argv:
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How fast something is belongs to the benchmarks.
settings.register_profile("callgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("callgate")

# A shell starts its background jobs with Ctrl-C ignored, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


COLLECTED = pytest.StashKey[list[str]]()
"""The names of the tests as they were collected, before they are put in a random order."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Refuse a name that is another one in each process: workers that collect different tests run none."""
    config.stash[COLLECTED] = [item.nodeid for item in items]
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"The names of these tests have an address; give `ids=`: {named[:5]}")
    return (yield)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through all tests and modules, which live to the end, again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.txt")


@pytest.fixture(scope="session", autouse=True)
def _undo_store_in_a_test_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the command line keeps for undo goes to a folder of the tests, not to the user's own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(os.environ, "CALLGATE_UNDO", str(tmp_path_factory.mktemp("undo")))
        yield


@pytest.fixture(autouse=True)
def _end_abandoned_tools() -> Iterator[None]:
    yield
    end_stray_tools()
