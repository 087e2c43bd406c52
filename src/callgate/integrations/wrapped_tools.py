"""The tools of a wrapper in its engine: registered if the engine does not have them, and compared with those that it has.

Frameworks allow two agents to have different tools of one name; an engine has one tool of a name. So a wrapper compares each tool once,
when it first sees it. Must not know any framework.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

from callgate.calls import Effect
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.integrations.external_tool import ExternalTool
from callgate.integrations.given_options import GivenOptions
from callgate.integrations.import_tools import ToolDescription
from callgate.tools import ToolOptions
from callgate.tools.registry import BoundTool

__all__ = ["WrappedTools"]

log = logging.getLogger("callgate")

_ADVICE = "Give one of them another name, or give the agents engines of their own."
_SAME = (
    "An engine has one tool of a name, with the options of the wrapper that registered it first: of two capabilities in a list, the last."
    " Give all wrappers of it the same effects and options, or only the engine: Engine(import_tools([...], options={...})). For another"
    " tool, use another name or an engine of its own."
)


_warned: WeakKeyDictionary[Engine, set[tuple[str, str]]] = WeakKeyDictionary()
"""The entries for tools that an engine does not have, which were logged."""


class WrappedTools:
    """The tools of one wrapper.

    Args:
        wrapper: The name of the wrapper, for messages.
        engine: The engine.
        effects: The effects of tools that the engine does not have. A tool without an entry is `once`.
        options: More options of those tools.

    Raises:
        UsageError: `engine` is not an engine, or an effect or option cannot be used.
    """

    def __init__(
        self,
        wrapper: str,
        engine: Engine,
        effects: Mapping[str, Effect] | None = None,
        options: Mapping[str, ToolOptions] | None = None,
    ) -> None:
        self._engine = _check_engine(wrapper, engine)
        self._given = GivenOptions(wrapper, effects, options)
        self._has_chosen_tools = len(engine.tools) > 0
        """Whether the host has given the engine tools, so that one that is missing may have been forgotten."""
        self._known: dict[str, object] = {}
        """The framework's tools that were added, by name."""

    def add(self, descriptions: Iterable[ToolDescription]) -> None:
        """Register the tools that the engine does not have, and compare the others.

        Raises:
            UsageError: A tool cannot be registered, or the engine has another tool of its name.
        """
        for one in descriptions:
            registered = self._engine.tools.get(one.name)
            if registered is None:
                self._register(one)
            else:
                _refuse_other_tool(registered, one, self._given.of(one.name))

    def add_once(self, name: str, item: object, describe: Callable[[object], Iterable[ToolDescription] | None]) -> None:
        """Add a framework's tool, unless this very tool was added before."""
        if self._known.get(name) is not item:
            self.add(describe(item) or ())
            self._known[name] = item

    def is_external(self, name: str) -> bool:
        """Return whether the framework's own code runs for calls of the tool; else the engine has another tool of its name."""
        registered = self._engine.tools.get(name)
        return registered is not None and isinstance(registered.tool, ExternalTool)

    def final(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return the arguments with which a call of the tool with these would run, for comparisons; themselves if that is not known."""
        registered = self._engine.tools.get(name)
        tool = registered.tool if registered is not None else None
        return (tool.final(arguments) if isinstance(tool, ExternalTool) else None) or arguments

    def are_about(self, name: str) -> bool:
        """Return whether the engine has a tool of this name, or an effect or option is given for one."""
        return name in self._engine.tools or any(name == one for _, one in self._given.entries)

    def unregistered(self) -> bool:
        """Return whether an effect or option is given for a tool that the engine does not have."""
        return any(name not in self._engine.tools for _, name in self._given.entries)

    def refuse_other_names(self, names: Iterable[str], advice: str = "") -> None:
        """Raise `UsageError` if an effect or option is given for a tool that is none of these. Its message ends with `advice`."""
        self._given.refuse_other_names(list(dict.fromkeys(names)), advice)

    def warn_of_unregistered(self) -> None:
        """Log each effect or option for a tool that the engine does not have, once for an engine: its tool may still come."""
        warned = _warned.setdefault(self._engine, set())
        for mapping, name in self._given.entries:
            if name not in self._engine.tools and (mapping, name) not in warned:
                warned.add((mapping, name))
                log.warning(
                    "%s has an entry for '%s', but no tool of that name has come yet. If it is misspelled, the tool that is meant runs"
                    " without it.",
                    mapping,
                    name,
                )

    def _register(self, one: ToolDescription) -> None:
        given = self._given.of(one.name)
        self._engine.register(one.tool(given))
        if given:
            return
        if self._has_chosen_tools:
            log.warning(
                "The engine has other tools, but not %s (%s). It was registered with the effect `once`, without a key, an approval or a"
                " timeout of yours. If that was not meant, add it where the engine is made: Engine(import_tools([...], options={...})).",
                one.name,
                one.source,
            )
        else:
            log.info(
                "The tool %s (%s) was registered with the effect `once`, because the engine did not have it. To say what its calls may do,"
                " give Engine(import_tools(tools, effects={...})).",
                one.name,
                one.source,
            )


def _check_engine(wrapper: str, given: object) -> Engine:
    if not isinstance(given, Engine):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
        raise UsageError(f"{wrapper} was given {what} as its engine. Give callgate.Engine(import_tools(tools, effects={{...}})).")
    return given


def _refuse_other_tool(registered: BoundTool, wanted: ToolDescription, given: ToolOptions) -> None:
    """Raise `UsageError` if calls of a tool would take the route of another one, whose name it has."""
    found = registered.tool
    if isinstance(found, ExternalTool) and found.parameters != wanted.parameters:
        raise UsageError(f"The engine already has another tool '{wanted.name}' ({found.where()}) than {wanted.source}. {_ADVICE}")
    own, theirs = (set((schema or {}).get("properties", {})) for schema in (registered.schema.source, wanted.parameters))
    if own != theirs:
        raise UsageError(
            f"The engine's tool '{wanted.name}' ({found.where()}) takes {', '.join(sorted(own)) or 'nothing'}, and {wanted.source} takes"
            f" {', '.join(sorted(theirs)) or 'nothing'}, so that its calls would lose arguments. {_ADVICE}"
        )
    effect = given.get("effect")
    if effect is not None and effect != registered.effect:
        raise UsageError(
            f"effects says that '{wanted.name}' is `{effect}`, but the engine already has the tool with the effect `{registered.effect}`"
            f" ({found.where()}). {_SAME}"
        )
    other = [name for name in given if name != "effect" and not (isinstance(found, ExternalTool) and found.has_option(name, given))]
    if other:
        asked = ", ".join(f"{name}={dict(given)[name]!r:.80}" for name in other)
        has = ", ".join(map(found.shown_option, other)) if isinstance(found, ExternalTool) else "options of its own"
        raise UsageError(
            f"options sets {asked} of '{wanted.name}', but the engine already has the tool with {has} ({found.where()}). {_SAME}"
        )
