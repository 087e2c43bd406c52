"""`callgate plugin uninstall` and `prune`: remove virtual environments of plugins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._console import print_json, say
from callgate.errors import UsageError
from callgate.plugins import plugin, read_manifest
from callgate.plugins._environment_removal import remove_environment, sweep_all
from callgate.plugins._environments import InstalledEnvironment, environment_name, is_usable, read_records
from callgate.plugins.manifest import MANIFEST

__all__ = ["prune_environments", "uninstall_plugins"]


def uninstall_plugins(paths: Sequence[str], *, as_json: bool) -> int:
    """Remove all environments of these plugins; return the exit code."""
    if not paths:
        raise UsageError("Give the folder of a plugin: callgate plugin uninstall ./invoices. Its files stay.")
    refuse_odd_text(**{f"path_{number}": path for number, path in enumerate(paths)})
    folders = {_folder(path) for path in paths}
    found = [one for one in read_records() if one.plugin_folder in folders]
    if not found:
        say(f"No environment is installed for {', '.join(map(one_line, paths))}.")
    return _report_removed(found, [], as_json=as_json)


def prune_environments(*, as_json: bool) -> int:
    """Remove the environments that no plugin would use now, and the remains of builds; return the exit code."""
    old = [one for one in read_records() if _is_old(one)]
    return _report_removed(old, sweep_all(), as_json=as_json)


def _folder(path: str) -> str:
    """Return the folder of a plugin, as environments have it. The folder may be gone."""
    if os.sep in path or path.startswith(".") or Path(path).is_dir():
        return os.fspath(Path(path).expanduser().resolve())
    return os.fspath(plugin(path).path.resolve())


def _is_old(environment: InstalledEnvironment) -> bool:
    """Return whether the plugin is gone, requires something else now, or would use another environment with this callgate and Python."""
    folder = Path(environment.plugin_folder)
    if not (folder / MANIFEST).is_file() or not is_usable(environment):
        return True
    try:
        manifest = read_manifest(folder)
        return manifest.environment is None or environment_name(manifest) != environment.name
    except (UsageError, OSError):
        return False  # another process is changing it


def _report_removed(found: Sequence[InstalledEnvironment], remains: Sequence[str], *, as_json: bool) -> int:
    gone, kept = list[InstalledEnvironment](), list[InstalledEnvironment]()
    for one in found:
        (gone if remove_environment(one) else kept).append(one)
    for one in gone:
        say(f"Removed the environment of {one_line(one.plugin)} for {one_line(one.plugin_folder, 500)} ({one_line(one.requires, 300)}).")
    if remains:
        say(f"Removed {len(remains)} folders of builds that did not end or were replaced.")
    for one in kept:
        say(f"The environment of {one_line(one.plugin)} is in use by an engine or a build, and stays. Stop it, and try again.", "yellow")
    if as_json:
        print_json({"removed": [one.path.name for one in gone] + list(remains), "in_use": [one.path.name for one in kept]})
    elif not (gone or kept or remains):
        say("Nothing to remove.")
    return _exits.FAILED if kept else _exits.OK
