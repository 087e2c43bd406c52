from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from callgate import Limits, ProcessLimits
from callgate._clock import SystemClock
from callgate._runners.process import ProcessRunner
from tests.runners.far_side import Far

LIMITS = ProcessLimits(memory_bytes=1024**3, file_bytes=64 * 1024**2, workers=1, environment=("TEST_MARKER",))


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    """Provide a marker that is in the environment of every process that this test's runner starts."""
    value = f"marker-{secrets.token_hex(8)}"
    monkeypatch.setenv("TEST_MARKER", value)
    return value


@pytest.fixture
async def processes(marker: str) -> AsyncIterator[ProcessRunner]:
    """Provide a process runner with one worker, so that every call runs in the worker of the call before it."""
    runner = ProcessRunner(Limits(), SystemClock(), LIMITS)
    yield runner
    await runner.close()


@pytest.fixture(scope="session")
def far() -> Iterator[Far]:
    """Provide a far side for all tests that do not end it."""
    with Far() as far:
        yield far
