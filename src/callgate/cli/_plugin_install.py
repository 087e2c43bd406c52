"""`callgate plugin install`: build the virtual environments that plugins ask for. The only command that does."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path

from callgate._server_processes.shown_command import shown_word
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._console import print_json, say
from callgate.cli._plugin_list import plugins_in
from callgate.errors import UsageError
from callgate.plugins import Plugin, read_manifest
from callgate.plugins._environment_build import BuildFailed, BuildOptions, Installation, install_environment

__all__ = ["install_plugins"]

_SHOWN = ("Collecting ", "Obtaining ", "Building ", "Installing collected packages", "Another process ")
"""The lines of pip that are shown while it runs."""
_LAST_LINES = 15


def install_plugins(paths: Sequence[str], *, upgrade: bool, offline: bool, find_links: Sequence[str], as_json: bool) -> int:
    """Build what is missing; return the exit code.

    Raises:
        UsageError: A manifest cannot be used, or a folder of packages does not exist.
    """
    options = BuildOptions(upgrade=upgrade, offline=offline, find_links=tuple(map(_place_of_packages, find_links)))
    found: list[Plugin] = []
    for path in paths:
        refuse_odd_text(path=path)
        found += plugins_in(path)
    if not found:
        raise UsageError("Give the folder of a plugin, or the name of an installed package: callgate plugin install ./invoices.")
    rows = [_install(one, options) for one in found]
    if as_json:
        print_json(rows)
    return _exits.OK if all(row["problem"] is None for row in rows) else _exits.FAILED


def _place_of_packages(word: str) -> str:
    """Return a page, or the full path of a folder, because pip runs in the plugin's folder."""
    refuse_odd_text(find_links=word)
    if "://" in word:
        return word
    place = Path(word).expanduser().absolute()
    if not word or not place.exists():
        raise UsageError(f"--find-links {one_line(word, 200)}: there is no such folder. Give one with wheels, or the address of a page.")
    return str(place)


def _install(plugin: Plugin, options: BuildOptions) -> dict[str, object]:
    """Build the environment of one plugin; return the result as JSON data."""
    manifest = read_manifest(plugin.path)
    row: dict[str, object] = {
        "plugin": plugin.name,
        "path": str(plugin.path),
        "built": False,
        "python": None,
        "packages": [],
        "problem": None,
    }
    if manifest.environment is None:
        say(f"{one_line(plugin.name)} asks for no environment: its manifest has no requires, requirements_file or python.")
        return row
    try:
        done = asyncio.run(install_environment(manifest, options, _tell))
    except BuildFailed as error:
        _show_failure(plugin, error, options)
        return row | {"problem": str(error)}
    _show(plugin, done)
    environment = done.environment
    return row | {"built": done.built, "python": environment.python, "packages": environment.packages}


def _tell(line: str) -> None:
    if line.startswith("Building the environment of "):
        say(one_line(line, 1_000))
    elif line.lstrip().startswith(_SHOWN):
        say(f"  {one_line(line, 300)}", "dim")


def _show(plugin: Plugin, done: Installation) -> None:
    environment = done.environment
    again = "" if done.built else " It was there already; --upgrade builds it anew."
    packages = ", ".join((*environment.packages, f"callgate {environment.callgate}"))
    say(f"{one_line(plugin.name)} has its environment: Python {environment.python}, {one_line(packages, 2_000)}.{again}", "green")


def _show_failure(plugin: Plugin, error: BuildFailed, options: BuildOptions) -> None:
    for line in error.lines[-_LAST_LINES:]:
        say(f"  {one_line(line, 500)}", "dim")
    say(str(error), "red")
    offline = "with --offline only the folders of --find-links are searched, and callgate's own dependencies must be in them too; "
    say(
        f"Nothing is left of it. Correct what the manifest requires or what pip is told by its configuration and PIP_INDEX_URL; "
        f"{offline if options.offline else ''}then run: callgate plugin install {shlex.quote(shown_word(str(plugin.path)))}"
    )
