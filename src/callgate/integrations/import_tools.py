"""`import_tools`: the tools of other frameworks, and plain functions, as tools of an engine, in one line.

A framework's objects are recognised by the module that their class comes from. Only that framework's module of this
package is imported, and with it the framework, which the object shows to be there.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast, get_args

from msgspec import Struct

from callgate.calls import Effect
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.integrations.external_tool import ExternalTool, Run
from callgate.integrations.plain_callables import as_function
from callgate.tools import Tool, ToolOptions, tool
from callgate.tools.registry import BoundTool, instance_of

__all__ = ["ToolDescription", "check_effect", "import_tools", "refuse_other_names", "register_missing"]

log = logging.getLogger("callgate")

T = TypeVar("T")
_MODULES = {
    "langchain_core.tools": "callgate.integrations._langchain_tools",
    "pydantic_ai.tools": "callgate.integrations._pydantic_ai_tools",
    "pydantic_ai.toolsets": "callgate.integrations._pydantic_ai_tools",
    "agents.tool": "callgate.integrations._openai_agents_tools",
    "agent_framework": "callgate.integrations._agent_framework_tools",
}
"""The module of this package for each framework, by the framework's module or package that defines the classes of its tools."""
_LABELS = ("name", "description", "parameters")


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A framework's tool, as its own module of this package describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of the arguments, as the framework shows it to models."""
    run: Run
    """Runs the tool outside of its framework, with as much of its context as there is."""
    source: str = "a tool of another framework"
    content_key: str | None = None
    """`Tool.content_key`: the key of the text for the model in what `run` returns."""

    def tool(self, options: ToolOptions) -> ExternalTool:
        """Return the tool for an engine."""
        given = options.copy()
        given["name"], given["description"], given["parameters"] = self.name, self.description, self.parameters
        if self.content_key is not None:
            given.setdefault("content_key", self.content_key)
        return ExternalTool(self.run, source=self.source, **given)


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


def import_tools(
    items: Iterable[object], effects: Mapping[str, Effect] | None = None, *, options: Mapping[str, ToolOptions] | None = None
) -> list[Tool]:
    """Return the items as tools for an engine, with names, descriptions and schemas unchanged.

    Takes tools of LangChain, tools and function toolsets of Pydantic AI, function tools of the OpenAI Agents SDK and of
    Microsoft Agent Framework, plain functions, methods of objects, partials and other callables, and tools of callgate,
    which stay as they are.

    Args:
        items: The tools.
        effects: The effects by the names of tools: `none` only reads, `idempotent` has one effect per key, `once` must
            not be repeated. A tool without an entry is `once`.
        options: More options of `@tool` by the names of tools, such as `{"refund": {"timeout_s": 20}}`.

    Raises:
        UsageError: An item is not a tool, or a name is not that of one of the tools.
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise UsageError(f"import_tools was given {items!r:.80}; it takes a list of tools.")
    found = [one for item in items for one in _found(item)]
    effects, options = dict(effects or {}), dict(options or {})
    _check_names("effects", effects, found)
    _check_names("options", options, found)
    for name, effect in effects.items():
        check_effect(f"import_tools(effects={{'{name}': ...}})", effect)
    return [one.make(_options_of(one.name, effects, options)) for one in found]


def check_effect(where: str, effect: object) -> None:
    """Raise `UsageError` if this is not an effect."""
    if effect not in get_args(Effect):
        raise UsageError(f"{where} is {effect!r:.80}; it must be one of {', '.join(map(repr, get_args(Effect)))}.")


def register_missing(engine: Engine, descriptions: Iterable[ToolDescription], effects: Mapping[str, Effect] | None = None) -> None:
    """Register the tools that an engine does not have, so that a wrapper can take their calls.

    Args:
        effects: The effects by the names of tools. A tool without an entry is `once`.

    Raises:
        UsageError: `engine` is not an engine, a tool cannot be registered, or the engine has another tool of its name.
    """
    if not isinstance(engine, Engine):
        raise UsageError(f"The wrapper was given {engine!r:.80} as its engine. Give callgate.Engine(import_tools(tools, effects={{...}})).")
    for one in descriptions:
        effect = (effects or {}).get(one.name)
        if effect is not None:
            check_effect(f"The effect of '{one.name}'", effect)
        registered = engine.tools.get(one.name)
        if registered is not None:
            _refuse_other_tool(registered, one, effect)
            continue
        engine.register(one.tool(ToolOptions() if effect is None else ToolOptions(effect=effect)))
        if effect is None:
            log.info(
                "The tool %s (%s) was registered with the effect `once`, because the engine did not have it. To say what its calls may do,"
                " give Engine(import_tools(tools, effects={...})).",
                one.name,
                one.source,
            )


def _refuse_other_tool(registered: BoundTool, wanted: ToolDescription, effect: Effect | None) -> None:
    """Raise `UsageError` if calls of a tool would take the route of another one, whose name it has."""
    found = registered.tool
    advice = "Give one of them another name, or give the agents engines of their own."
    if isinstance(found, ExternalTool) and found.parameters != wanted.parameters:
        raise UsageError(f"The engine already has another tool '{wanted.name}' ({found.where()}) than {wanted.source}. {advice}")
    if effect is not None and effect != registered.effect:
        raise UsageError(
            f"effects says that '{wanted.name}' is `{effect}`, but the engine already has the tool with the effect `{registered.effect}`"
            f" ({found.where()}). Say it in one place, where the tool is registered first. {advice}"
        )


def _found(item: object) -> Iterator[_Found]:
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
            f"import_tools was given {item!r:.80} ({type(item).__module__}.{type(item).__qualname__}), which is not a tool."
            " It takes tools of LangChain, Pydantic AI, the OpenAI Agents SDK and Microsoft Agent Framework, plain functions, and tools of"
            " callgate."
        )
    function = as_function(item)
    label: dict[str, Any] = {} if inspect.getdoc(function) else {"description": function.__name__}
    yield _Found(function.__name__, lambda given: tool(function, **label, **given))


def _modules(kind: type) -> Iterator[DescribesTools]:
    """Import and yield the modules of this package for the frameworks that a class inherits from."""
    homes = [f"{one.__module__}." for one in kind.__mro__]
    for name in dict.fromkeys(ours for theirs, ours in _MODULES.items() if any(home.startswith(f"{theirs}.") for home in homes)):
        yield cast("DescribesTools", import_module(name))


def _check_names(mapping: str, given: Mapping[str, object], found: list[_Found]) -> None:
    """Raise `UsageError` if an entry is not for one of the tools, or is for a tool that declares its options itself."""
    names = {one.name: one for one in found}
    refuse_other_names(f"import_tools({mapping}=...)", given, names)
    for name in given:
        if not names[name].takes_options:
            raise UsageError(
                f"import_tools({mapping}=...) has an entry for '{name}', a tool of callgate. Set it where the tool is declared."
            )


def refuse_other_names(where: str, given: Iterable[str], names: Collection[str]) -> None:
    """Raise `UsageError` if one of the given names is not the name of a tool."""
    for name in given:
        if name not in names:
            near = get_close_matches(str(name)[:100], names, n=1, cutoff=0.6)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            known = ", ".join(names) or "none"
            raise UsageError(f"{where} has an entry for '{name}', which is none of the tools.{meant} They are {known}.")


def _options_of(name: str, effects: Mapping[str, Effect], options: Mapping[str, ToolOptions]) -> ToolOptions:
    given = options.get(name, ToolOptions()).copy()
    for label in _LABELS:
        if label in given:
            raise UsageError(f"import_tools(options=...) sets the {label} of '{name}'. It stays the framework's own; change it there.")
    if name in effects:
        if "effect" in given:
            raise UsageError(f"import_tools has the effect of '{name}' twice, in effects and in options. Give it once.")
        given["effect"] = effects[name]
    return given
