"""`callgate tools`: show the tools that a model can call and the declarations of these tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.text import Text

from callgate._blob_store import MemoryBlobs
from callgate._terminal_text import one_line, printable
from callgate._tool_loading import load_tools
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import grid, output, print_json
from callgate.errors import UsageError
from callgate.tools import BoundTool, ToolRegistry

__all__ = ["list_tools", "show_tool"]


def list_tools(specs: Sequence[str], *, as_json: bool) -> int:
    registry = _registry(specs)
    if as_json:
        print_json([_facts(tool) for tool in registry])
        return _exits.OK
    table = grid("tool", "effect", "category", "runner", "touches", "")
    for tool in registry:
        about = one_line(tool.description.split("\n", 1)[0].split(". ", 1)[0], 70)
        table.add_row(Text(one_line(tool.name), style="bold"), tool.effect, tool.category, tool.runner, _describe_access(tool), about)
    output().print(table, soft_wrap=False)
    return _exits.OK


def show_tool(name: str, specs: Sequence[str], *, as_json: bool) -> int:
    registry = _registry(specs)
    tool = registry.get(name)
    if tool is None:
        raise UsageError(f"No tool is named '{name[:80]}'. The tools are: {', '.join(registry.names())}. Give other sources with --tools.")
    if as_json:
        print_json(_facts(tool) | {"openai": tool.openai()})
        return _exits.OK
    screen = output()
    screen.print(Text(one_line(tool.name), style="bold"))
    screen.print(Text(printable(tool.description)))
    table = grid("", "")
    for key, value in _facts(tool).items():
        if key not in ("name", "description", "parameters", "output") and value not in (None, "", ()):
            table.add_row(Text(key, style="dim"), one_line(str(value)))
    screen.print()
    screen.print(table)
    screen.print(Text("\nparameters", style="dim"))
    screen.print(Text(printable(_as_pretty_json(tool.schema.source))))
    return _exits.OK


def _registry(specs: Sequence[str]) -> ToolRegistry:
    return ToolRegistry(load_tools(specs, MemoryBlobs()))


def _facts(tool: BoundTool) -> dict[str, object]:
    return {
        "name": tool.name,
        "description": tool.description,
        "effect": tool.effect,
        "category": tool.category,
        "runner": tool.runner,
        "reads": _describe_keys(tool.tool.reads),
        "writes": _describe_keys(tool.tool.writes),
        "requires_approval": _approval(tool),
        "timeout_s": tool.timeout_s,
        "cache": tool.cache_scope,
        "aliases": tuple(tool.tool.aliases),
        "defined": tool.tool.where(),
        "identity": tool.identity,
        "parameters": tool.schema.source,
        "output": tool.output.source if tool.output is not None else None,
    }


def _describe_keys(keys: object) -> str | None:
    if keys is None:
        return None
    if callable(keys):
        return "computed from the arguments"
    return keys if isinstance(keys, str) else ", ".join(str(key) for key in keys) if isinstance(keys, tuple) else str(keys)


def _approval(tool: BoundTool) -> str | None:
    if tool.approval is None:
        return None
    return "for every call" if tool.approval.asks is None else "computed from the arguments"


def _describe_access(tool: BoundTool) -> str:
    words = [word for word, keys in (("reads", tool.tool.reads), ("writes", tool.tool.writes)) if keys is not None]
    return "+".join(words) or "-"


def _as_pretty_json(schema: object) -> str:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
