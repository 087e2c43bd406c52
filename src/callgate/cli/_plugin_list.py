"""`callgate plugin list`: the plugins of installed packages and in folders, with their tools and whether they start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._console import print_json, say
from callgate.cli._plugin_look import PluginLook, as_json_look, look_at_plugin, show_look
from callgate.plugins import Plugin, installed_plugins, plugin
from callgate.plugins.manifest import MANIFEST

__all__ = ["list_plugins", "plugins_in"]


def list_plugins(paths: Sequence[str], *, start: bool, as_json: bool) -> int:
    """List plugins; return the exit code."""
    found = installed_plugins()
    for path in paths:
        refuse_odd_text(path=path)
        found += plugins_in(path)
    looks = asyncio.run(_looks(found, start=start))
    if as_json:
        print_json([as_json_look(look) for look in looks])
        return _exits.OK
    if not looks:
        say("No plugin is installed, and no folder was given. Make one: callgate plugin new NAME")
    for look in looks:
        show_look(look)
    return _exits.OK


def plugins_in(path: str) -> list[Plugin]:
    """Return the plugin in a folder, or those in its subfolders."""
    folder = Path(path)
    if folder.is_dir() and not (folder / MANIFEST).exists():
        below = sorted(one.parent for one in folder.glob(f"*/{MANIFEST}"))
        if below:
            return [plugin(one) for one in below]
    return [plugin(path)]


async def _looks(plugins: Sequence[Plugin], *, start: bool) -> list[PluginLook]:
    return await asyncio.gather(*(look_at_plugin(one, start=start) for one in plugins))
