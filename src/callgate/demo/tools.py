"""The tools of the demonstrations: ordinary tools that write to the ledger, and tools that exit, crash or hang.

They are defined at module level, because a worker process finds a tool by its name.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from typing import Any

from callgate.builtins import command_tools, workspace_tools
from callgate.demo._effect_log import note_effect, note_process, witnessed
from callgate.tools import ToolContext, tool
from callgate.tools.tool_decorator import FunctionTool

__all__ = [
    "book_room",
    "call_exit",
    "charge",
    "check_format",
    "crash",
    "edit_file",
    "legacy_export",
    "look_up",
    "order_history",
    "read_tools",
    "run_command",
    "send_letter",
    "spin",
]


def _function_tools(tools: list[Any]) -> dict[str, FunctionTool]:
    return {item.name: item for item in tools if isinstance(item, FunctionTool)}


_files = _function_tools(workspace_tools())
run_command = witnessed(_function_tools(command_tools())["run_command"], __name__)
edit_file = witnessed(_files["edit_file"], __name__)
_READS = ("read_file", "list_files", "glob_files", "grep_files")


def read_tools() -> list[FunctionTool]:
    """Return the built-in tools that only read files."""
    return [_files[name] for name in _READS]


@tool(effect="none", runner="process", timeout_s=3.0, retryable=False)
def check_format(context: ToolContext, pattern: str, text: str) -> bool:
    """Say whether a text matches a regular expression.

    Args:
        pattern: A Python regular expression.
        text: The text.
    """
    note_process(context, os.getpid())
    _start_orphan(context)
    return re.fullmatch(pattern, text) is not None


@tool(effect="none", runner="process", retryable=False)
def legacy_export(context: ToolContext, customer: str) -> str:
    """Export a customer in the old format.

    Args:
        customer: The customer's number.
    """
    note_process(context, os.getpid())
    os._exit(3)


@tool(effect="none", runner="process", timeout_s=3.0, retryable=False)
def spin(context: ToolContext) -> None:
    """Loop in C code until killed. Starts a child process that would outlive this one."""
    note_process(context, os.getpid())
    _start_orphan(context)
    context.progress("spinning")
    re.fullmatch(r"(a+)+b", "a" * 64)


@tool(effect="none", runner="process", retryable=False)
def call_exit(context: ToolContext) -> None:
    """Call sys.exit, as some command line libraries do."""
    sys.exit("bad usage")


@tool(effect="none", runner="process", retryable=False)
def crash(context: ToolContext) -> None:
    """Crash the process by reading address 0."""
    note_process(context, os.getpid())
    ctypes.string_at(0)


def _start_orphan(context: ToolContext) -> None:
    """Start a process in its own session, which killing the tool's process group would miss."""
    command = [sys.executable, "-c", "import time; time.sleep(300)"]
    orphan = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    note_process(context, orphan.pid)


@tool(effect="none")
def order_history(customer: str, orders: int = 11_000) -> list[dict[str, object]]:
    """Return the orders of a customer, oldest first.

    Args:
        customer: The customer's number.
        orders: The maximum number of orders to return.
    """
    return [_order(customer, number) for number in range(orders)]


def _order(customer: str, number: int) -> dict[str, object]:
    percent, cents = (90, 100) if number == 4711 else (number * 7 % 50, 100 + number * 37 % 9_900)
    paid = cents * (100 - percent) // 100
    order = {"order": f"A-{number:05}", "customer": customer, "price_cents": cents, "discount_percent": percent, "paid_cents": paid}
    return order | ({"complaint": "the shop charged 9 cents, the invoice says 10"} if number == 4711 else {})


@tool(effect="once")
def book_room(context: ToolContext, room: int, nights: int, guests: list[str], breakfast: bool = False) -> str:
    """Book a room.

    Args:
        room: The room's number.
        nights: For how many nights.
        guests: Who stays.
        breakfast: Whether they have breakfast.
    """
    note_effect(context, f"room {room!r} for {nights!r} nights, guests {guests!r}, breakfast {breakfast!r}")
    return f"booked room {room} for {nights} nights"


@tool(effect="none")
def look_up(account: str, seconds: float = 0.3) -> str:
    """Read an account's balance.

    Args:
        account: The account.
        seconds: How long the bank takes.
    """
    time.sleep(seconds)
    return f"account {account}: 100"


@tool(effect="once", writes="account:{account}")
def charge(context: ToolContext, account: str, cents: int, seconds: float = 0.3) -> str:
    """Take money from an account.

    Args:
        account: The account.
        cents: How much.
        seconds: How long the bank takes.
    """
    note_effect(context, f"{account} {cents}")
    time.sleep(seconds)
    return f"took {cents} from {account}"


@tool(effect="once")
def send_letter(context: ToolContext, to: str, seconds: float = 0.3) -> str:
    """Send a letter. Declares no resources, so no other call runs in parallel with it.

    Args:
        to: The recipient.
        seconds: How long sending takes.
    """
    note_effect(context, to)
    time.sleep(seconds)
    return f"sent to {to}"
