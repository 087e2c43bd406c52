"""`PluginTool`: a tool of a plugin, as a tool of the engine.

A call waits until the plugin runs, is sent once, and ends as the answer says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from callgate._server_processes.server_errors import ToolServerError
from callgate._server_processes.server_executions import execution_of_failure
from callgate.plugins._messages import Message, execution_of
from callgate.plugins._plugin_session import Report
from callgate.plugins.manifest import ToolSettings
from callgate.plugins.plugin_config import Plugin
from callgate.protocols import Execution
from callgate.tools import ToolContext
from callgate.tools.prefixed_names import prefixed_name
from callgate.tools.tool_declaration import Tool

__all__ = ["CarriesCalls", "PluginTool"]

_OWN = ("name", "description", "input_schema", "output_schema", "key")


class CarriesCalls(Protocol):
    """Carries calls to a plugin that is kept running."""

    async def call_tool(
        self, tool: ToolSettings, uid: str, arguments: Mapping[str, Any], context: Mapping[str, object], report: Report
    ) -> Message:
        """Send one call; see `PluginSession.call`. A cancelled call that was not sent raises `NotSent`."""
        ...


class PluginTool(Tool):
    """A tool of a plugin.

    Args:
        plugin: The configuration of its plugin.
        settings: The tool as the plugin describes it, as far as that is accepted.
        carrier: Carries its calls.
    """

    wraps_result: ClassVar[bool] = True
    runner = "inline"
    requires_actor = False
    category = "safe_chain"

    def __init__(self, plugin: Plugin, settings: ToolSettings, carrier: CarriesCalls) -> None:
        self.plugin = plugin.name
        self.settings = settings
        self._carrier = carrier
        self.name = prefixed_name(plugin.name, settings.name) if plugin.prefix else settings.name
        self.description = settings.description or f"The tool {settings.name} of the plugin {plugin.name}."
        self.parameters = settings.input_schema if isinstance(settings.input_schema, dict) else {"type": "object"}
        self.output_schema = settings.output_schema if isinstance(settings.output_schema, dict) else None
        self.timeout_s = plugin.timeout_s
        self.effect = "once"
        for field in settings.__struct_fields__:
            value = getattr(settings, field)
            if value is not None and field not in _OWN:
                setattr(self, field, value)
        self.effect_key = settings.key

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        return self._call(context, arguments)

    async def _call(self, context: ToolContext, arguments: dict[str, Any]) -> Execution:
        try:
            answer = await self._carrier.call_tool(self.settings, context.uid, arguments, _context_for_plugin(context), context.report)
            return execution_of(self.plugin, answer)
        except ToolServerError as error:
            return execution_of_failure(error)

    def where(self) -> str:
        return f"plugin {self.plugin}"

    def not_done_advice(self, exception: str) -> str:
        return 'Where nothing happened, the plugin answers by an error with "not_done": true; in Python, raise callgate.NotDone.'


def _context_for_plugin(context: ToolContext) -> dict[str, object]:
    """Return the `context` of a call's message to the plugin."""
    return {
        "conversation": context.conversation,
        "run": context.scope.run,
        "actor": context.actor,
        "principal": context.principal,
        "workspace": context.workspace,
        "locale": context.locale,
        "idempotency_key": context.idempotency_key,
        "deadline_s": round(max(0.0, context.deadline - time.monotonic()), 3),
        "attempt": context.attempt,
    }
