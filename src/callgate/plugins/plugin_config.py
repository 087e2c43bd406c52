"""`Plugin`: the configuration of one plugin, and `plugin`, which makes one from a folder or a package.

A value: it starts nothing, and each engine makes its own process from it. Wrong settings are refused here, before anything starts.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

from callgate._option_checks import Count, NamedStruct, Seconds, by_name_with, check, refuse_unknown, refused
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.plugins.manifest import ToolSettings, read_manifest

log = logging.getLogger("callgate.plugins")

__all__ = ["ENTRY_POINTS", "Plugin", "PluginOptions", "installed_plugins", "plugin"]

ENTRY_POINTS = "callgate.plugins"
"""The group of the entry points that name packages with a manifest."""

_TOOL_OPTIONS = tuple(
    name for name in ToolSettings.__struct_fields__ if name not in ("name", "description", "input_schema", "output_schema", "effect")
)
_KINDS: Mapping[str, Any] = {
    "name": str,
    "prefix": bool | None,
    "timeout_s": Seconds | None,
    "start_timeout_s": Seconds,
    "parallel": Count | None,
    "required": bool,
}


class Plugin(NamedStruct, frozen=True, kw_only=True, eq=False):
    """The configuration of a plugin.

    Raises:
        UsageError: An option is unknown, or has a wrong value; or the folder has no manifest that can be used.
    """

    path: Path
    """The folder with the manifest."""
    name: str = ""
    """The plugin's name for people, logs and prefixes; if empty, that of the manifest."""
    env: Mapping[str, str] = {}
    """Variables of the plugin's process, in addition to those that its manifest names and to `HOME`, `PATH` and a few others."""
    effects: Mapping[str, Effect] = {}
    """The effects of tools, instead of those that the manifest declares."""
    options: Mapping[str, Mapping[str, Any]] = {}
    """Options of `@tool` by the tool's name, such as `{"send": {"timeout_s": 10, "requires_approval": True}}`."""
    prefix: bool | None = None
    """Whether tools are named `PLUGIN.TOOL`; None: only if another tool has the name already."""
    timeout_s: float | None = None
    """Seconds for a call of a tool that has no timeout of its own; None: the engine's timeout."""
    start_timeout_s: float = 30.0
    """Seconds for a start of the process."""
    parallel: int | None = None
    """How many calls may run in the plugin at the same time; None: as many as the manifest says."""
    required: bool = False
    """Whether `async with Engine` raises if the tools of the plugin are not known. If False, its tools answer with the reason."""

    def __post_init__(self) -> None:
        for option, kind in _KINDS.items():
            check("Plugin", option, getattr(self, option), kind)
        _check_env(self)
        if not isinstance(self.effects, Mapping) or any(effect not in get_args(Effect) for effect in self.effects.values()):
            raise refused("Plugin", "effects", self.effects, "a dict from names of tools to 'none', 'idempotent' or 'once'")
        if not isinstance(self.options, Mapping) or not all(isinstance(one, Mapping) for one in self.options.values()):
            raise refused("Plugin", "options", self.options, "a dict from names of tools to dicts of options")
        for tool, options in self.options.items():
            if "effect" in options:
                raise UsageError(f"Plugin(options={{{tool!r}: ...}}) sets an effect. Write effects={{{tool!r}: {options['effect']!r}}}.")
            refuse_unknown(f"Plugin(options={{{tool!r}: ...}})", options, _TOOL_OPTIONS)
        read_manifest(self.path)

    @property
    def named_tools(self) -> tuple[str, ...]:
        """The names of tools in the operator's effects and options."""
        return (*self.effects, *self.options)

    @property
    def gated_tools(self) -> tuple[str, ...]:
        """The names of tools with `requires_approval` in the operator's options."""
        return tuple(name for name, options in self.options.items() if options.get("requires_approval"))

    def __repr__(self) -> str:
        """Return the name and the folder; the environment may have secrets."""
        return f"Plugin({self.name!r}, {str(self.path)!r})"


class PluginOptions(TypedDict, total=False):
    """The options of `plugin`, which are the attributes of `Plugin` with the same name and default."""

    env: Mapping[str, str]
    effects: Mapping[str, Effect]
    options: Mapping[str, Mapping[str, Any]]
    prefix: bool | None
    timeout_s: float | None
    start_timeout_s: float
    parallel: int | None
    required: bool


@by_name_with(PluginOptions)
def plugin(target: str | os.PathLike[str], *, name: str = "", **options: Unpack[PluginOptions]) -> Plugin:
    """Return the configuration of a plugin.

    Args:
        target: The folder with the manifest, or the name of an installed package that contains it, or of the entry point of one. A text
            without a separator that is not a folder is looked for as a package, then as an entry point.
        name: The plugin's name. If empty, that of the manifest.
        options: See `Plugin`.

    Raises:
        UsageError: There is no manifest that can be used, or an option is wrong.
    """
    if not isinstance(target, (str, os.PathLike)) or not os.fspath(target):
        raise UsageError(f"plugin({target!r:.200}): give the folder of a plugin, or the name of an installed package.")
    folder = _folder(os.fspath(target))
    return Plugin(path=folder, name=name or read_manifest(folder).name, **options)


def installed_plugins(on_unusable: Callable[[str, str], None] | None = None) -> list[Plugin]:
    """Return the plugins of installed packages, found by their entry points, in the order of their names.

    Args:
        on_unusable: Called with the name of an entry point whose package has no manifest that can be used, and the problem; the others are
            returned. None: the problem is logged as a warning. For an error, ask for that very plugin: `plugin(name)`.
    """
    found: list[Plugin] = []
    for entry in _entry_points():
        try:
            found.append(plugin(entry.value))
        except UsageError as error:
            owner = entry.dist.name if entry.dist is not None else "a package"
            problem = f"The entry point {entry.name!r} of {owner} ({ENTRY_POINTS}) cannot be used: {error}"
            if on_unusable is None:
                log.warning("%s", problem)
            else:
                on_unusable(entry.name, problem)
    return found


def _folder(target: str) -> Path:
    path = Path(target).expanduser()
    if path.is_dir() or os.sep in target or target.startswith("."):
        return path.absolute()
    found = _find_package(target) or next((_find_package(entry.value) for entry in _entry_points(target)), None)
    if found is None:
        names = ", ".join(sorted(entry.name for entry in _entry_points()))
        known = f" Entry points of installed plugins are: {names}." if names else ""
        raise UsageError(f"plugin({target!r:.200}): there is no such folder, and no such package or entry point is installed.{known}")
    return found


def _find_package(name: str) -> Path | None:
    """Return the folder of an installed package, which is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def _entry_points(name: str = "") -> list[importlib.metadata.EntryPoint]:
    """Return the entry points of plugins, in the order of their names: all, or those with a name."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return sorted((entry for entry in found if not name or entry.name == name), key=lambda entry: entry.name)


def _check_env(config: Plugin) -> None:
    given: object = config.env
    if not isinstance(given, Mapping) or not all(isinstance(text, str) and "\0" not in text for pair in given.items() for text in pair):
        raise UsageError("Plugin(env=...) must be a dict of texts without null characters. Its values are not shown here.")
    if any(not name or "=" in name for name in given):
        raise UsageError("Plugin(env=...) has a name that is empty or contains '='. Write {'NAME': 'value'}.")
