"""`import_tools`: the tools of other frameworks, and plain functions, as tools of an engine, in one line.

A framework's objects are recognised by the module that their class comes from. Only that framework's module of this
package is imported, and with it the framework, which the object shows to be there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from msgspec import Struct

from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.integrations.external_tool import ExternalTool, Forms, Run
from callgate.integrations.given_options import GivenOptions
from callgate.integrations.plain_callables import as_function
from callgate.tools import Tool, ToolOptions, tool
from callgate.tools.registry import instance_of

__all__ = ["ToolDescription", "import_tools"]

_MODULES = {
    "langchain_core.tools": "callgate.integrations._langchain_tools",
    "pydantic_ai.tools": "callgate.integrations._pydantic_ai_tools",
    "pydantic_ai.toolsets": "callgate.integrations._pydantic_ai_tools",
    "agents.tool": "callgate.integrations._openai_agents_tools",
    "agent_framework": "callgate.integrations._agent_framework_tools",
    "anthropic.lib.tools": "callgate.integrations._anthropic_tools",
}
"""The module of this package for each framework, by the framework's module or package that defines the classes of its tools."""


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A framework's tool, as its own module of this package describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of the arguments, as the framework shows it to models."""
    run: Run
    """Runs the tool outside of its framework, with as much of its context as there is."""
    source: str = "a tool of another framework"
    forms: Forms | None = None
    """Checks arguments as the framework does."""
    content_key: str | None = None
    """`Tool.content_key`: the key of the text for the model in what `run` returns."""
    timeout_s: float | None = None
    """The framework's own timeout of the tool, which becomes the engine's, so that the model reads what is known about the effect."""

    def tool(self, options: ToolOptions) -> ExternalTool:
        """Return the tool for an engine."""
        given = options.copy()
        given["name"], given["description"], given["parameters"] = self.name, self.description, self.parameters
        if self.content_key is not None:
            given.setdefault("content_key", self.content_key)
        if self.timeout_s is not None:
            given.setdefault("timeout_s", self.timeout_s)
        return ExternalTool(self.run, source=self.source, forms=self.forms, **given)


class DescribesTools(Protocol):
    """A framework's module of this package."""

    def describe(self, item: Any) -> Iterable[ToolDescription] | None:
        """Return the tools of a framework's object: a tool, or a set of tools; None if it is something else."""
        ...


class _Found(Struct, frozen=True):
    """A tool that was found in the items, and how it is made with options."""

    name: str
    make: Callable[[ToolOptions], Tool]
    takes_options: bool = True
    is_function: bool = False


def import_tools(
    items: Iterable[object], effects: Mapping[str, Effect] | None = None, *, options: Mapping[str, ToolOptions] | None = None
) -> list[Tool]:
    """Return the items as tools for an engine, with names, descriptions and schemas unchanged.

    Takes tools of LangChain, tools and function toolsets of Pydantic AI, function tools of the OpenAI Agents SDK, of
    Microsoft Agent Framework and of Anthropic's SDK (`beta_tool`), plain functions, methods of objects, partials and
    other callables, and tools of callgate, which stay as they are.

    Args:
        items: The tools.
        effects: The effects by the names of tools: `none` only reads, `idempotent` has one effect per key, `once` must
            not be repeated. A tool without an entry is `once`.
        options: More options of `@tool` by the names of tools, such as `{"refund": {"timeout_s": 20}}`.

    Raises:
        UsageError: An item is not a tool, or a name is not that of one of the tools.
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable) or _describes(items):
        raise UsageError(f"import_tools was given {_describe(items)}; it takes a list of tools.{_list_of(items)}")
    found = [one for item in items for one in _find(item)]
    given = GivenOptions("import_tools", effects, options, [one.name for one in found if one.is_function])
    names = {one.name: one for one in found}
    given.refuse_other_names(names)
    for mapping, name in given.entries:
        if not names[name].takes_options:
            raise UsageError(
                f"import_tools({mapping}=...) has an entry for '{name}', a tool of callgate. Set it where the tool is declared."
            )
    return [one.make(given.of(one.name)) for one in found]


def _find(item: object) -> Iterator[_Found]:
    if isinstance(item, Tool) or (isinstance(item, type) and issubclass(item, Tool)):
        made = instance_of(item)
        yield _Found(made.name, lambda _: made, takes_options=False)
        return
    for module in _modules(type(item)):
        described = module.describe(item)
        if described is not None:
            yield from (_Found(one.name, one.tool) for one in described)
            return
    if not callable(item) or isinstance(item, type):
        raise UsageError(
            f"import_tools was given {_describe(item)} in its list, which is not a tool.{_list_of(item)} It takes tools of LangChain,"
            " Pydantic AI, the OpenAI Agents SDK, Microsoft Agent Framework and Anthropic's SDK, plain functions, and tools of callgate."
        )
    function = as_function(item)
    label: dict[str, Any] = {} if inspect.getdoc(function) else {"description": function.__name__}
    yield _Found(function.__name__, lambda given: tool(function, **{**label, **given}), is_function=True)


def _describes(item: object) -> bool:
    """Return whether an object is a framework's tool or set of tools; a tool of LangChain can also be iterated over."""
    return any(module.describe(item) is not None for module in _modules(type(item)))


def _describe(item: object) -> str:
    """Describe what was given instead of a tool or a list of tools, for a message."""
    name = getattr(item, "name", None) or getattr(item, "__name__", None)
    kind = f"a {type(item).__module__}.{type(item).__qualname__}".replace("builtins.", "")
    if isinstance(name, str):
        return f"'{name:.80}' ({kind})"
    return f"{item!r:.80} ({kind})" if isinstance(item, (str, bytes, int, float)) else kind


def _list_of(item: object) -> str:
    """Return advice how to pass the tools of an object as a list; empty if that is not known."""
    if isinstance(getattr(item, "tools_by_name", None), Mapping):  # LangGraph's ToolNode
        return " Give the tools of the node: import_tools(list(node.tools_by_name.values()))."
    if isinstance(item, (list, tuple, set, frozenset)):
        return " Give one list without lists in it: [*tools, *more_tools]."
    one = isinstance(item, Tool) or (isinstance(item, type) and issubclass(item, Tool)) or inspect.isroutine(item) or _describes(item)
    return " Give a list also for one tool: import_tools([...])." if one else ""


def _modules(kind: type) -> Iterator[DescribesTools]:
    """Import and yield the modules of this package for the frameworks that a class inherits from."""
    homes = [f"{one.__module__}." for one in kind.__mro__]
    for name in dict.fromkeys(ours for theirs, ours in _MODULES.items() if any(home.startswith(f"{theirs}.") for home in homes)):
        yield cast("DescribesTools", import_module(name))
