"""`callgate plugin list`: the plugins of installed packages and in folders, with their tools and whether they start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._console import print_json, say
from callgate.cli._error_advice import at_terminal
from callgate.cli._plugin_look import PluginLook, UnusablePlugin, as_json_look, as_json_unusable, look_at_plugin, show_look
from callgate.errors import UsageError
from callgate.plugins import Plugin, installed_plugins, plugin
from callgate.plugins.manifest import MANIFEST

__all__ = ["list_plugins", "plugins_in"]


def list_plugins(paths: Sequence[str], *, start: bool, as_json: bool) -> int:
    """List plugins; return the exit code, which is 1 if a manifest cannot be used."""
    unusable = list[UnusablePlugin]()
    found = installed_plugins(on_unusable=lambda name, problem: unusable.append(UnusablePlugin(place=name, problem=problem)))
    for path in paths:
        refuse_odd_text(path=path)
        for place in _places_in(path):
            try:
                found.append(plugin(place))
            except UsageError as error:
                if not os.path.isdir(place):
                    raise
                unusable.append(UnusablePlugin(place=os.fspath(place), problem=at_terminal(str(error))))
    looks = asyncio.run(_looks(found, start=start))
    if as_json:
        print_json([*map(as_json_look, looks), *map(as_json_unusable, unusable)])
        return _exits.FAILED if unusable else _exits.OK
    if not (looks or unusable):
        say("No plugin is installed, and no folder was given. Make one: callgate plugin new NAME")
    for look in looks:
        show_look(look)
    for one in unusable:
        say(f"{one_line(one.place, 1_000)}  unusable", "red")
        say(one_line(one.problem, 1_000), "red")
    return _exits.FAILED if unusable else _exits.OK


def plugins_in(path: str) -> list[Plugin]:
    """Return the plugin in a folder, or those in its subfolders.

    Raises:
        UsageError: A manifest cannot be used.
    """
    return [plugin(place) for place in _places_in(path)]


def _places_in(path: str) -> list[str | Path]:
    folder = Path(path)
    below: list[str | Path] = []
    if folder.is_dir() and not (folder / MANIFEST).exists():
        below = [*sorted(one.parent for one in folder.glob(f"*/{MANIFEST}"))]
    return below or [path]


async def _looks(plugins: Sequence[Plugin], *, start: bool) -> list[PluginLook]:
    return await asyncio.gather(*(look_at_plugin(one, start=start) for one in plugins))
