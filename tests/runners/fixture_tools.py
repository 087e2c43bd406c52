"""Tools for the tests of the runner contract, each as a sync and an async function that a worker process can import."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from callgate.errors import NotDone, Retryable
from callgate.tools import FunctionTool, ToolContext, Verified, tool
from tests.effect_ledger import Ledger
from tests.waiting import HANGS_S


@tool
def sync_echo(value: object) -> object:
    """Return the value."""
    return value


@tool
async def async_echo(value: object) -> object:
    """Return the value."""
    await asyncio.sleep(0)
    return value


@tool
def sync_fail(kind: str) -> None:
    """Raise."""
    _fail(kind)


@tool
async def async_fail(kind: str) -> None:
    """Raise."""
    await asyncio.sleep(0)
    _fail(kind)


class BadText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def _fail(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("the account is closed")
        case "retryable":
            raise Retryable("try later", not_started=True, retry_after_s=2.5)
        case "refused":
            raise ConnectionRefusedError("connection refused")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "memory":
            raise MemoryError
        case "group":
            raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])
        case "surrogate":
            raise ValueError("\ud800 bad")
        case "long":
            raise ValueError("x" * 1_000_000)
        case "no text":
            raise BadText


@tool
def sync_hang(context: ToolContext) -> str:
    """Report progress, then wait until stopped."""
    context.progress("begun")
    time.sleep(HANGS_S)
    return "done"


@tool
async def async_hang(context: ToolContext) -> str:
    """Report progress, then wait until stopped."""
    context.progress("begun")
    await asyncio.sleep(HANGS_S)
    return "done"


@tool
def sync_steps(context: ToolContext, count: int) -> int:
    """Report progress a given number of times."""
    for number in range(count):
        context.progress(str(number))
    return count


@tool
async def async_steps(context: ToolContext, count: int) -> int:
    """Report progress a given number of times."""
    for number in range(count):
        context.progress(str(number))
        await asyncio.sleep(0)
    return count


@tool
def sync_spoil(items: list[int]) -> int:
    """Change its own arguments."""
    items.append(99)
    return len(items)


@tool
async def async_spoil(items: list[int]) -> int:
    """Change its own arguments."""
    items.append(99)
    return len(items)


@tool
async def answers_when_stopped(context: ToolContext) -> str:
    """Return a value although it was stopped."""
    context.progress("begun")
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(HANGS_S)
    return "too late"


def pick(flavour: str, name: str) -> FunctionTool:
    found = globals()[f"{flavour}_{name}"]
    assert isinstance(found, FunctionTool)
    return found


def _pay_and_fail(to: str, ledger: str, how: str) -> str:
    Ledger(Path(ledger)).write(to)
    match how:
        case "raise":
            raise TimeoutError("read timed out")
        case "exit":
            sys.exit(3)
        case "crash":
            os.abort()
        case "not_done":
            raise NotDone("the order is closed")
        case "declared":
            raise LookupError("no such order")
    return f"paid {to}"


@tool(runner="process", not_done=LookupError)
def pay_and_fail(to: str, ledger: str, how: str) -> str:
    """Pay, then fail."""
    return _pay_and_fail(to, ledger, how)


def _was_paid(arguments: dict[str, str], key: str) -> Verified:
    paid = arguments["to"] in Ledger(Path(arguments["ledger"])).lines()
    return Verified(happened=paid, result=f"paid {arguments['to']}")


@tool(runner="process", verify=_was_paid)
def pay_and_fail_verified(to: str, ledger: str, how: str) -> str:
    """Pay, then fail."""
    return _pay_and_fail(to, ledger, how)
