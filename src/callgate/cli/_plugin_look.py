"""Look at plugins: what their manifests say, whether they start, and which of their tools can be used. Calls nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._run_in_thread import in_thread
from callgate._secret_redaction import RedactedLog
from callgate._server_processes.server_lifecycle import with_last_words
from callgate._terminal_text import one_line
from callgate.cli._console import grid, output, say
from callgate.cli._error_advice import at_terminal
from callgate.errors import UsageError
from callgate.plugins import NotSent, Plugin, PluginManifest, ToolServerError, ToolSettings, read_manifest
from callgate.plugins._described_tools import missing_tools, tools_of
from callgate.plugins._environment_locks import HeldEnvironment, hold_environment
from callgate.plugins._environments import environment_of, is_usable
from callgate.plugins._plugin_session import PluginSession, SessionEvents
from callgate.plugins._source_files import fingerprint
from callgate.plugins._supervised_plugin import command_of
from callgate.plugins._tool_cache import cached_tools
from callgate.plugins.plugin_tool import PluginTool
from callgate.tools import ToolRegistry

__all__ = [
    "EnvironmentLook",
    "PluginLook",
    "UnusablePlugin",
    "as_json_look",
    "as_json_unusable",
    "look_at_environment",
    "look_at_plugin",
    "show_look",
]


class PluginLook(Struct, frozen=True, kw_only=True):
    """The tools and problems of a plugin that was started once, without a call."""

    plugin: Plugin
    version: str
    state: str
    """`starts`, `fails`, or `not started`."""
    tools: tuple[ToolSettings, ...] = ()
    problems: Mapping[str, str] = {}
    """Tools that cannot be used, each with the reason."""
    environment: EnvironmentLook | None = None
    """Its virtual environment; None if it asks for none."""
    failure: str = ""
    """Why it does not start; empty if it does or was not started."""
    seconds: float = 0.0
    noise: int = 0


class UnusablePlugin(Struct, frozen=True, kw_only=True):
    """A plugin whose manifest cannot be used."""

    place: str
    """Its folder, or the name of its entry point."""
    problem: str


class EnvironmentLook(Struct, frozen=True, kw_only=True):
    """The state of a plugin's virtual environment."""

    state: str
    """`installed`, `not installed`, or `broken`: its Python is gone."""
    requires: str
    python: str = ""
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.state != "installed":
            return f"{self.state}: {self.requires}"
        return f"Python {self.python}, {', '.join(self.packages) or 'callgate alone'}"


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
    environment = await in_thread(partial(look_at_environment, manifest))
    if not start:
        known = () if manifest.describes_all else cached_tools(manifest.folder, fingerprint(manifest)) or ()
        tools = tools_of(plugin, manifest, known)
        problems = _problems(plugin, tools)
        return PluginLook(
            plugin=plugin, version=manifest.version, state="not started", tools=tools, problems=problems, environment=environment
        )
    try:
        held = await in_thread(partial(hold_environment, f"the plugin '{plugin.name}'", manifest))
    except NotSent as error:
        return PluginLook(plugin=plugin, version=manifest.version, state="fails", failure=str(error), environment=environment)
    try:
        return replace(await _start(plugin, manifest, held), environment=environment)
    finally:
        if held is not None:
            held.release()


async def _start(plugin: Plugin, manifest: PluginManifest, held: HeldEnvironment | None) -> PluginLook:
    log = RedactedLog(None)
    events = SessionEvents(on_tools=lambda _: None, on_stuck=lambda: None, on_late=lambda *_: None, log=log)
    session = PluginSession(command_of(plugin, manifest, held), manifest.parallel, events)
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


def look_at_environment(manifest: PluginManifest) -> EnvironmentLook | None:
    """Return the state of the environment of a plugin, or None if it asks for none.

    Raises:
        UsageError: The folder of the environments is not this user's alone.
    """
    if manifest.environment is None:
        return None
    found = environment_of(manifest)
    if found is None:
        return EnvironmentLook(state="not installed", requires=manifest.environment.shown)
    state = "installed" if is_usable(found) else "broken"
    return EnvironmentLook(state=state, requires=found.requires, python=found.python, packages=found.packages)


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
    if look.environment is not None:
        say(f"environment  {one_line(str(look.environment), 1_000)}", "dim")
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
        say(f"It wrote {look.noise} lines to its standard output that are not messages. Write them to standard error.", "yellow")


def as_json_look(look: PluginLook) -> dict[str, Any]:
    """Return a look as JSON data."""
    return {
        "plugin": look.plugin.name,
        "version": look.version,
        "path": str(look.plugin.path),
        "state": look.state,
        "environment": look.environment,
        "problem": look.failure or None,
        "seconds": round(look.seconds, 3),
        "tools": [{"name": tool.name, "effect": tool.effect or "once"} for tool in look.tools],
        "unusable": dict(look.problems),
        "noise": look.noise,
    }


def as_json_unusable(one: UnusablePlugin) -> dict[str, Any]:
    """Return a plugin whose manifest cannot be used as JSON data, with the keys of a look."""
    nothing: dict[str, Any] = {
        "plugin": None,
        "version": None,
        "environment": None,
        "seconds": 0.0,
        "tools": [],
        "unusable": {},
        "noise": 0,
    }
    return {**nothing, "path": one.place, "state": "unusable", "problem": one.problem}
