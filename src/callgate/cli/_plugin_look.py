"""Look at plugins: what their manifests say, whether they start, and which of their tools can be used. Calls nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_life import with_last_words
from callgate._terminal_text import one_line
from callgate.cli._console import grid, output, say
from callgate.cli._error_advice import at_terminal
from callgate.errors import UsageError
from callgate.plugins import Plugin, ToolServerError, ToolSettings, read_manifest
from callgate.plugins._described_tools import missing_tools, tools_of
from callgate.plugins._plugin_session import PluginSession, SessionEvents
from callgate.plugins._source_files import fingerprint
from callgate.plugins._supervised_plugin import command_of
from callgate.plugins._tool_cache import cached_tools
from callgate.plugins.plugin_tool import PluginTool
from callgate.tools import ToolRegistry

__all__ = ["PluginLook", "as_json_look", "look_at_plugin", "show_look"]


class PluginLook(Struct, frozen=True, kw_only=True):
    """What a plugin shows without a call."""

    plugin: Plugin
    version: str
    state: str
    """`starts`, `fails`, or `not started`."""
    tools: tuple[ToolSettings, ...] = ()
    problems: Mapping[str, str] = {}
    """Tools that cannot be used, each with the reason."""
    failure: str = ""
    """Why it does not start; empty if it does or was not started."""
    seconds: float = 0.0
    noise: int = 0


class _NoPluginCalls:
    """Carries no calls, because a look makes none."""

    async def call_tool(self, *_: Any) -> Any:
        raise AssertionError("a look makes no call")


async def look_at_plugin(plugin: Plugin, *, start: bool) -> PluginLook:
    """Read the manifest, and start the plugin once if asked.

    Raises:
        UsageError: The manifest cannot be used.
    """
    manifest = read_manifest(plugin.path)
    if not start:
        known = () if manifest.describes_all else cached_tools(manifest.folder, fingerprint(manifest)) or ()
        tools = tools_of(plugin, manifest, known)
        return PluginLook(plugin=plugin, version=manifest.version, state="not started", tools=tools, problems=_problems(plugin, tools))
    log = RedactedLog(None)
    events = SessionEvents(on_tools=lambda _: None, on_stuck=lambda: None, on_late=lambda *_: None, log=log)
    session = PluginSession(command_of(plugin, manifest), manifest.parallel, events)
    begun, described, failure = time.monotonic(), tuple[ToolSettings, ...](), ""
    try:
        async with asyncio.timeout(plugin.start_timeout_s):
            described = await session.start(describe=not manifest.describes_all)
            await session.ping()
    except ToolServerError as error:
        failure = at_terminal(str(error))
        if session.lost.done():
            failure = f"The plugin '{plugin.name}' ended before it was ready: {with_last_words(session.lost.result(), session.last_words)}."
    except TimeoutError:
        failure = f"The plugin '{plugin.name}' did not answer hello and ping within {plugin.start_timeout_s:g} s."
    finally:
        await session.close()
    tools = tools_of(plugin, manifest, described) if not failure else ()
    return PluginLook(
        plugin=plugin,
        version=manifest.version,
        state="fails" if failure else "starts",
        tools=tools,
        problems={} if failure else missing_tools(manifest, tools) | _problems(plugin, tools),
        failure=failure,
        seconds=time.monotonic() - begun,
        noise=session.noise,
    )


def _problems(plugin: Plugin, tools: tuple[ToolSettings, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tool in tools:
        try:
            ToolRegistry([PluginTool(plugin, tool, _NoPluginCalls())])
        except UsageError as error:
            found[tool.name] = one_line(at_terminal(str(error)), 1_000)
    return found


def show_look(look: PluginLook) -> None:
    """Print a plugin with its tools and its problems."""
    say(f"{one_line(look.plugin.name)} {one_line(look.version, 40)}  {look.state}  {look.plugin.path}", "red" if look.failure else "")
    if look.failure:
        say(one_line(look.failure, 1_000), "red")
    table = grid("tool", "effect", "")
    for tool in look.tools:
        about = one_line((tool.description or "").split("\n", 1)[0], 70)
        table.add_row(one_line(tool.name, 128), "unusable" if tool.name in look.problems else tool.effect or "once", about)
    if look.tools:
        output().print(table, soft_wrap=False)
    for name, problem in look.problems.items():
        say(f"{one_line(name, 128)} cannot be used: {problem}", "red")
    if look.noise:
        say(f"It wrote {look.noise} lines to its standard output that are no messages. Write them to standard error.", "yellow")


def as_json_look(look: PluginLook) -> dict[str, Any]:
    """Return a look as JSON data."""
    return {
        "plugin": look.plugin.name,
        "version": look.version,
        "path": str(look.plugin.path),
        "state": look.state,
        "problem": look.failure or None,
        "seconds": round(look.seconds, 3),
        "tools": [{"name": tool.name, "effect": tool.effect or "once"} for tool in look.tools],
        "unusable": dict(look.problems),
        "noise": look.noise,
    }
