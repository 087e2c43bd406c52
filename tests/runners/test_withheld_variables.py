"""A tool in a worker process that misses an environment variable: the host reads which one, and how to pass it on."""

from __future__ import annotations

import os

import pytest

from callgate import Engine, ProcessLimits, Tool, tool
from tests.engine_calls import bodies, call, said

pytestmark = pytest.mark.process
HINT = "Pass it on with Engine(process_limits=ProcessLimits(environment=('STRIPE_KEY',)))"


@tool(runner="process")
def charge() -> str:
    """Charge."""
    return os.environ["STRIPE_KEY"]


@tool(runner="process")
def charge_by_client() -> str:
    """Charge."""
    try:
        return os.environ["STRIPE_KEY"]
    except KeyError as error:
        raise RuntimeError("the client is not configured") from error


@pytest.mark.parametrize("paying", [charge, charge_by_client], ids=["KeyError", "a wrapped KeyError"])
async def test_the_host_reads_which_variable_the_tool_did_not_get(
    paying: Tool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("STRIPE_KEY", "sk-1")
    async with Engine([paying]) as engine:
        result = await said(engine, call(paying.name))
        (raised,) = bodies(engine, "call.raised")
    assert HINT in caplog.text
    assert HINT in str(raised["traceback"])
    assert "ProcessLimits" not in f"{result.text}{result.structured}"


async def test_a_variable_that_was_passed_on_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_KEY", "sk-1")
    async with Engine([charge], process_limits=ProcessLimits(environment=("STRIPE_KEY",))) as engine:
        assert (await said(engine, call("charge"))).text == "sk-1"


async def test_a_variable_that_the_host_has_not_either_gets_no_hint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("STRIPE_KEY", raising=False)
    async with Engine([charge]) as engine:
        await said(engine, call("charge"))
    assert "ProcessLimits" not in caplog.text
