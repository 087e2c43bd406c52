"""Plugins: folders or packages with a manifest, whose tools run in a process of their own.

`manifest.py` reads the manifest and `plugin_config.py` has the configuration of a plugin, from which each engine makes its own supervised
plugin. `_messages.py` has the messages of the protocol, `_plugin_session.py` one run of the process. `serving.py` is for authors in Python.
`environment_requirements.py` has what a plugin requires, `_environments.py` its virtual environments; `_environment_build.py` builds them.
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
