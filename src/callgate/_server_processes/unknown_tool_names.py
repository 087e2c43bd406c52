"""The names of tools in the configuration of a tool server, compared with the tools that the server has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from callgate._terminal_text import one_line
from callgate.argument_checks import closest_names

__all__ = ["describe_unknown_tools"]


def describe_unknown_tools(server: str, named: Iterable[str], tools: Sequence[str]) -> str:
    """Return a sentence about names that no tool of a server has, with the next step; empty if there are none.

    Args:
        named: The names in the server's configuration.
        tools: The names of the tools that the server has.
    """
    unknown = [name for name in dict.fromkeys(named) if name not in tools]
    if not unknown:
        return ""
    listed, offered = ", ".join(_with_suggestion(name, tools) for name in unknown), one_line(", ".join(tools), 500)
    return f"'{one_line(server)}' has no tool {listed}, which its configuration names. It has: {offered or 'none'}. Correct the name."


def _with_suggestion(name: str, tools: Sequence[str]) -> str:
    near = closest_names(name, tools)
    return f"{one_line(name, 128)}{f' (did you mean {one_line(near[0], 128)}?)' if near else ''}"
