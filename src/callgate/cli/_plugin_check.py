"""`callgate plugin check`: everything that is wrong with one plugin, and one call if asked."""

from __future__ import annotations

import asyncio

from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import call_timeout, read_arguments, refuse_odd_text, refuse_unused_arguments
from callgate.cli._console import print_json
from callgate.cli._plugin_look import as_json_look, look_at_plugin, show_look
from callgate.cli._result_output import exit_code
from callgate.cli._unrecorded_call import call_unrecorded, show_unrecorded
from callgate.plugins import plugin

__all__ = ["check_plugin"]


def check_plugin(path: str, tool: str, arguments: str, timeout: float | None, *, as_json: bool) -> int:
    """Check a plugin; return the exit code."""
    refuse_odd_text(path=path, tool=tool)
    refuse_unused_arguments(tool, arguments)
    given, timeout_s = read_arguments((arguments,)), call_timeout(timeout)
    one = plugin(path)
    look = asyncio.run(look_at_plugin(one, start=True))
    if not as_json:
        show_look(look)
    outcome = asyncio.run(call_unrecorded(one, tool, given, timeout_s, quiet=as_json)) if tool and not look.failure else None
    if as_json:
        print_json(as_json_look(look) | ({"call": outcome} if outcome is not None else {}))
    else:
        show_unrecorded(outcome, "a check")
    if look.failure or look.problems:
        return _exits.FAILED
    return _exits.OK if outcome is None else exit_code(outcome)
