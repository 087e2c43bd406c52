"""Tools as the request of each API declares them, and the names that they have there.

A provider accepts fewer names than callgate does. The name that is sent depends only on the tool's own name, so a response is read with the
names that its request declared, also if tools were registered since.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from types import NoneType

from callgate._option_checks import refused
from callgate.errors import UsageError
from callgate.models.wire import codec
from callgate.models.wire.request import ToolSpec
from callgate.models.wire.tool_names import WireNames
from callgate.provider_responses.provider_names import provider_api
from callgate.provider_responses.text_calls import TextCallWarning
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["ToolDefinitions", "tool_specs"]


def tool_specs(tools: Iterable[BoundTool], allowed: Collection[str] | None = None) -> tuple[ToolSpec, ...]:
    """Return tools as a model sees them: all, or those that `allowed` names, also by an alias."""
    return tuple(
        ToolSpec(name=tool.name, description=tool.description, schema=tool.schema.source)
        for tool in tools
        if allowed is None or tool.name in allowed or any(alias in allowed for alias in tool.tool.aliases)
    )


class ToolDefinitions:
    """The definitions and names of registered tools, for each API.

    Args:
        tools: The tools. Tools that are registered later are found, too.
    """

    def __init__(self, tools: ToolRegistry) -> None:
        self.text_calls = TextCallWarning(tools)
        """Says that a model wrote a call of one of the tools as text."""
        self._tools = tools
        self._names: dict[str, tuple[WireNames, object]] = {}
        """By API: the names, and the tools that they were made for."""

    def definitions(
        self, provider: str, names: Iterable[str] | None = None, allowed: Collection[str] | None = None
    ) -> list[dict[str, object]]:
        """Return the value of `tools` in a provider's request; for Bedrock, of `toolConfig.tools`.

        Args:
            provider: A name that `provider_api` knows.
            names: The tools to return, by name or alias, in this order. None: all.
            allowed: The tools that may be returned, by name or alias. None: all.

        Raises:
            UsageError: The provider is unknown, `names` is not an iterable of names, or no tool has one of them.
        """
        api = provider_api(provider)
        if isinstance(names, (str, bytes)) or not isinstance(names, (Iterable, NoneType)):
            raise refused("schemas", "names", names, "a list of names of tools, such as ['search'], or None for all")
        chosen = self._tools if names is None else [self._tool(name) for name in names]
        return codec(api.api).encode_tools(tool_specs(chosen, allowed), self.names(api.api), api.quirks)

    def names(self, api: str) -> WireNames:
        """Return the names of all tools and parameters in an API."""
        names, named = self._names.get(api, (None, None))
        if names is None or named is not self._tools.visible:
            specs = tool_specs(self._tools)
            names = codec(api).wire_names(spec.name for spec in specs)
            codec(api).encode_tools(specs, names, {})  # makes the names of the parameters
            self._names[api] = names, self._tools.visible
        return names

    def _tool(self, name: str) -> BoundTool:
        found = self._tools.get(name)
        if found is None:
            near = difflib.get_close_matches(str(name)[:100], self._tools.names(), n=1, cutoff=0.6)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"No tool is called {name!r:.80}.{meant} Registered are: {', '.join(self._tools.names()) or 'none'}.")
        return found
