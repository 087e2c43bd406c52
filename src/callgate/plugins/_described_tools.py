"""Which tools a plugin has: what its manifest says, what its process describes, and what the operator has set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from callgate._terminal_text import one_line
from callgate.plugins.manifest import PluginManifest, ToolSettings
from callgate.plugins.plugin_config import Plugin

__all__ = ["describe_tool_changes", "missing_tools", "tools_of"]

_ALWAYS = ("name", "description", "input_schema", "output_schema", "timeout_s")
"""The fields that an untrusted process may set for its tools. It may also ask for approval, which is only stricter."""

_SHOWN = ("effect", "requires_approval")
"""The fields whose values a description of a change has."""


def tools_of(config: Plugin, manifest: PluginManifest, described: Sequence[ToolSettings]) -> tuple[ToolSettings, ...]:
    """Return the settings of all tools that can be called.

    Args:
        described: The tools that the process describes; not used if the manifest describes all.
    """
    if manifest.describes_all:
        found = list(manifest.tools.values())
    else:
        found = [_apply_manifest(manifest, tool) for tool in described]
        names = {tool.name for tool in found}
        found += [tool for tool in manifest.tools.values() if tool.name not in names and tool.input_schema is not None]
    return tuple(_set(config, tool) for tool in found)


def missing_tools(manifest: PluginManifest, tools: Sequence[ToolSettings]) -> dict[str, str]:
    """Return why tools that the manifest names cannot be called, by their name."""
    known = {tool.name for tool in tools}
    return {
        name: f"The manifest of the plugin '{manifest.name}' names this tool, but the plugin does not describe it. Use another one."
        for name in manifest.tools
        if name not in known
    }


def describe_tool_changes(before: Mapping[str, ToolSettings], after: Mapping[str, ToolSettings]) -> str:
    """Return what differs between two descriptions of a plugin's tools, for the operator; empty if nothing does."""
    changes = [(name, _describe_change(before.get(name), after.get(name))) for name in dict.fromkeys((*before, *after))]
    return "; ".join(f"{one_line(name, 128)} {what}" for name, what in changes if what)


def _describe_change(before: ToolSettings | None, after: ToolSettings | None) -> str:
    if before is None or after is None:
        return "is new" if before is None else "is gone"
    changed = [field for field in ToolSettings.__struct_fields__ if getattr(before, field) != getattr(after, field)]
    shown = [f"{field} (was {getattr(before, field)}, is {getattr(after, field)})" if field in _SHOWN else field for field in changed]
    return f"has another {', '.join(shown)}" if shown else ""


def _apply_manifest(manifest: PluginManifest, tool: ToolSettings) -> ToolSettings:
    """Return the trusted fields of a described tool, overridden by those of the manifest."""
    if not manifest.trust_effects:
        approval = True if tool.requires_approval else None
        tool = ToolSettings(**{field: getattr(tool, field) for field in _ALWAYS}, requires_approval=approval)
    declared = manifest.tools.get(tool.name)
    if declared is None:
        return tool
    said = {field: value for field in declared.__struct_fields__ if (value := getattr(declared, field)) is not None}
    return replace(tool, **said)


def _set(config: Plugin, tool: ToolSettings) -> ToolSettings:
    chosen = dict(config.options.get(tool.name, {}))
    if tool.name in config.effects:
        chosen["effect"] = config.effects[tool.name]
    return replace(tool, **chosen) if chosen else tool
