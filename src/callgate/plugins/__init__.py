"""Plugins: folders or packages with a manifest, whose tools run in a process of their own.

In reading order:

A plugin and its tools
    `manifest` reads the manifest, and `plugin_config` has the configuration of a plugin, from which each engine makes its own
        `_supervised_plugin`. `_plugin_session` is one run of its process, and `_messages` has the messages of the protocol. `plugin_tool`
        is one of its tools; `_described_tools` says which it has, and `_tool_cache` keeps them while `_source_files` are unchanged.

Environments
    `environment_requirements` has what a plugin requires, and `_environments` its virtual environments; `_environment_locks` keeps one
        while it is used. `_environment_build` builds one, with an `_installer_process` for each step and `_own_wheel` for callgate
        itself, and `_environment_removal` removes those that nobody needs.

For authors
    `serving` is the other end of the protocol, for plugins in Python.
"""

from __future__ import annotations

from callgate._server_processes.server_errors import ConnectionLost, NotSent, ProtocolError, ToolServerError
from callgate.plugins.environment_requirements import EnvironmentRequirements
from callgate.plugins.manifest import PluginManifest, ToolSettings, read_manifest
from callgate.plugins.plugin_config import Plugin, installed_plugins, plugin

__all__ = [
    "ConnectionLost",
    "EnvironmentRequirements",
    "NotSent",
    "Plugin",
    "PluginManifest",
    "ProtocolError",
    "ToolServerError",
    "ToolSettings",
    "installed_plugins",
    "plugin",
    "read_manifest",
]
