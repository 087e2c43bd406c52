"""The tools of an engine: registered by name in three layers, looked up built-in first, then capability, then MCP.

Registration checks a tool once and computes everything that does not change per call. A tool is refused if it is incomplete or if another
tool of its layer has its name. A tool that is hidden by one of an earlier layer is listed in `shadowed`.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any, Literal

from msgspec import Struct

from callgate._engine_limits import Limits
from callgate._json import canonical, strict_object
from callgate._option_checks import shown
from callgate._schema import CompiledSchema, compile_schema
from callgate.calls import Category, Effect, Scope
from callgate.errors import UsageError
from callgate.tools.argument_cleaning import Keywords
from callgate.tools.declaration_checks import check_declaration, effect_of
from callgate.tools.effect_key import EffectKey
from callgate.tools.required_approval import ApprovalRequirement
from callgate.tools.resource_conflicts import TouchedKeys
from callgate.tools.retry_policy import NO_RETRY, RetryPolicy
from callgate.tools.tool_declaration import CacheScope, RunnerName, Tool

__all__ = ["LAYERS", "BoundTool", "Layer", "ToolOrigin", "ToolRegistry", "instance_of", "prepared_tool"]

Layer = Literal["builtin", "capability", "mcp"]
LAYERS: tuple[Layer, ...] = ("builtin", "capability", "mcp")


class ToolOrigin(Struct, frozen=True):
    """The tool server that has a tool, and the tool's name there, which the other servers of an engine cannot change."""

    server: str = ""
    """Empty for a tool of this process."""
    name: str = ""


_OF_THIS_PROCESS = ToolOrigin()


class BoundTool(Struct, frozen=True, kw_only=True):
    """A registered tool with everything that the stages read, computed once."""

    tool: Tool
    name: str
    layer: Layer
    server: str
    """The MCP server or the plugin that has the tool; empty for other tools."""
    description: str
    category: Category
    effect: Effect
    schema: CompiledSchema
    output: CompiledSchema | None
    identity: str
    """The tool's identity: a hash of name, layer, server, description, schemas, effect and category."""
    runner: RunnerName
    timeout_s: float | None
    attempt_timeout_s: float | None
    retry: RetryPolicy
    cache_scope: CacheScope | None
    """The cache's scope; None if the tool is not cacheable."""
    cache_ttl: float | None
    effect_key: EffectKey | None
    approval: ApprovalRequirement | None
    """Which calls a human has to allow; None if the tool requires that of none."""
    requires_actor: bool
    parallel: int | None
    coerce: bool | None
    takes: frozenset[str] | None
    """The accepted arguments, if all others are dropped; None if only the schema decides."""
    keywords: Keywords
    """The arguments that its code accepts; all others are dropped at the end."""
    defaults: Mapping[str, Any]
    """The defaults of omitted arguments."""
    own_validator: bool
    """Whether the tool has its own validator."""
    exacting: bool
    """Whether arguments that match the schema may still be changed or refused by the tool."""

    def touched(self, arguments: Mapping[str, object], scope: Scope) -> TouchedKeys | None:
        """Return the resources of a call with these arguments; None if they are not declared."""
        return TouchedKeys.of(arguments, scope, self.tool.reads, self.tool.writes)

    def openai(self) -> dict[str, Any]:
        """Return the tool as an item of an OpenAI request's `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema.source}
        return {"type": "function", "function": function}


Check = Callable[[Sequence[BoundTool]], None]


def instance_of(tool: object) -> Tool:
    """Return the tool, or an instance of a tool class.

    Raises:
        UsageError: It is neither, or the class needs arguments.
    """
    if isinstance(tool, MethodType) and hasattr(tool.__func__, "bound_to"):  # a tool below @classmethod, since Python 3.13
        tool = tool.__func__.bound_to(tool.__self__)
    if not (isinstance(tool, type) and issubclass(tool, Tool)):
        if not isinstance(tool, Tool):
            raise UsageError(
                f"{_describe(tool)} is not a tool. Put @tool over the function, or give a subclass of Tool or an instance of one. Tools of"
                " other frameworks become tools with callgate.integrations.import_tools([...])."
            )
        return tool
    try:
        return tool()
    except Exception as error:
        where, why = f"{tool.__module__}.{tool.__qualname__}", f"{type(error).__name__}: {str(error)[:200]}"
        raise UsageError(f"The tool {where} cannot be made without arguments ({why}). Make it yourself, and give the instance.") from error


def _describe(item: object) -> str:
    """Return what an object is, for messages: its class and name, or its shortened repr."""
    name, kind = getattr(item, "name", None), type(item)
    return f"{kind.__name__} '{name:.80}' ({kind.__module__})" if isinstance(name, str) else shown(item)


class ToolRegistry:
    """Tools by name. Not thread-safe; register on the event loop's thread.

    Args:
        tools: The tools to register as built-in.
        check: Called with all tools after these are registered, and after each later one; an exception refuses the tool.
    """

    def __init__(self, tools: Iterable[Tool | type[Tool]] = (), *, check: Check | None = None) -> None:
        self._layers: dict[Layer, dict[str, BoundTool]] = {layer: {} for layer in LAYERS}
        self.visible: dict[str, BoundTool] = {}
        """The tools by name, without those that another layer hides."""
        self.may_ask = False
        """Whether one of them may ask a human about its calls."""
        self._aliases: dict[str, str] = {}
        self.shadowed: list[str] = []
        """One sentence for each tool that is hidden by another layer."""
        self.withdrawn: Mapping[str, str] = {}
        """Why tools cannot be called that a tool server has or had, by name."""
        self.unavailable: Mapping[str, str] = {}
        """Why the tools of a tool server are not known, by the server's name."""
        self._listeners: list[Callable[[], None]] = []
        self._check: Check | None = None
        self.add_all(tools, check)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time that the tools have changed, from now on."""
        self._listeners.append(listener)

    def add_all(self, tools: Iterable[Tool | type[Tool]], check: Check | None) -> None:
        """Register tools as built-in, and call `check` with all tools now and after each later one.

        Raises:
            UsageError: One of them cannot be registered, or the check refuses them.
        """
        for tool in tools:
            self.register(tool)
        if check is not None:
            check(tuple(self))
        self._check = check

    def register(self, tool: Tool | type[Tool], *, layer: Layer = "builtin") -> BoundTool:
        """Add a tool, or an instance of a tool class.

        Raises:
            UsageError: The tool is incomplete, its schema cannot be used, its name or an alias is taken in this layer (names both places),
                or a policy's rules cannot match it.
        """
        tool = instance_of(tool)
        if layer not in self._layers:
            raise UsageError(f"There is no layer {layer!r:.80}. Take one of {', '.join(map(repr, self._layers))}.")
        bound = _bind(tool, layer)
        self._admit(bound)
        self._rebuild()
        if self._check is not None:
            self._keep_checked(bound, self._check)
        return bound

    def _admit(self, bound: BoundTool) -> None:
        """Add a tool to its layer, unless its name or an alias is taken there."""
        tool, names = bound.tool, self._layers[bound.layer]
        if bound.name in names and names[bound.name].tool is tool:
            raise UsageError(f"Tool '{bound.name}' ({tool.where()}) is registered already. Give each tool once.")
        if bound.name in names:
            raise UsageError(
                f"Tool '{bound.name}' is defined twice ({names[bound.name].tool.where()}, {tool.where()}). Rename one of them."
            )
        if tool.aliases:
            self._rebuild()
        for alias in tool.aliases:
            self._check_alias(alias, bound, tool)
        other = names.get(self._aliases.get(bound.name, ""))
        if other is not None and bound.name in other.tool.aliases:
            raise UsageError(
                f"Tool '{bound.name}' ({tool.where()}) has the name of an alias of '{other.name}' ({other.tool.where()})."
                " Rename the tool or drop the alias."
            )
        names[bound.name] = bound
        self._aliases.update(dict.fromkeys(tool.aliases, bound.name))

    def replace(self, layer: Layer, tools: Mapping[Tool, ToolOrigin], check: Check, prepared: Mapping[Tool, BoundTool]) -> dict[str, str]:
        """Replace all tools of a layer. A tool object that is registered already is kept as it is.

        Args:
            tools: The tools, each with its server.
            prepared: What `prepared_tool` has returned for some of the tools.
            check: Called with all tools after each change; an exception refuses the tool.

        Returns:
            Why tools were refused, by name.
        """
        before, refused, bound = self._layers[layer], {}, []
        for tool, origin in tools.items():
            known = before.get(tool.name)
            try:
                bound.append(known if known is not None and known.tool is tool else prepared.get(tool) or _bind(tool, layer, origin))
            except UsageError as error:
                refused[tool.name] = str(error)
        self._clear(layer)
        refused |= self._add_all(bound, None)
        try:
            check(tuple(self))
        except UsageError:  # find out which of them it is about
            self._clear(layer)
            refused |= self._add_all(bound, check)
        return refused

    def _clear(self, layer: Layer) -> None:
        aliases = {alias for bound in self._layers[layer].values() for alias in bound.tool.aliases}
        self._aliases = {alias: name for alias, name in self._aliases.items() if alias not in aliases}
        self._layers[layer] = {}
        self._rebuild()

    def _add_all(self, tools: Iterable[BoundTool], check: Check | None) -> dict[str, str]:
        refused = {}
        for bound in tools:
            try:
                self._admit(bound)
                if check is not None:
                    self._rebuild()
                    self._keep_checked(bound, check)
            except UsageError as error:
                refused[bound.name] = str(error)
        self._rebuild()
        return refused

    def _keep_checked(self, bound: BoundTool, check: Check) -> None:
        """Run `check` on all tools; if it raises `UsageError`, remove the new tool and its aliases.

        The error is raised again.
        """
        try:
            check(tuple(self))
        except UsageError:
            del self._layers[bound.layer][bound.name]
            for alias in bound.tool.aliases:
                del self._aliases[alias]
            self._rebuild()
            raise

    def _check_alias(self, alias: str, bound: BoundTool, tool: Tool) -> None:
        if not alias.strip():
            raise UsageError(f"Tool '{bound.name}' ({tool.where()}) has the alias {alias!r:.80}. Give a name that models call it by.")
        taken = self.visible.get(alias) or self.visible.get(self._aliases.get(alias, ""))
        if taken is not None or alias == bound.name:
            where = taken.tool.where() if taken else tool.where()
            raise UsageError(f"Alias '{alias}' of tool '{bound.name}' ({tool.where()}) is taken ({where}). Choose another alias.")

    def _rebuild(self) -> None:
        self.visible = {}
        self.shadowed = []
        for layer in LAYERS:
            for name, bound in self._layers[layer].items():
                first = self.visible.setdefault(name, bound)
                if first is not bound:
                    self.shadowed.append(f"{layer} tool '{name}' ({bound.tool.where()}) is hidden by the {first.layer} one")
        self.may_ask = any(bound.approval is not None for bound in self.visible.values())
        for listener in self._listeners:
            listener()

    def get(self, name: str) -> BoundTool | None:
        """Return the tool with exactly this name or alias, or None."""
        found = self.visible.get(name)
        return found if found is not None else self.visible.get(self._aliases.get(name, ""))

    def by_category(self, category: Category) -> list[str]:
        return [name for name, bound in self.visible.items() if bound.category == category]

    def names(self) -> list[str]:
        return list(self.visible)

    def openai(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Return the tools as an OpenAI request's `tools`: all, or the named ones."""
        chosen = self.visible.values() if names is None else [self.visible[name] for name in names]
        return [bound.openai() for bound in chosen]

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self.visible.values())

    def __len__(self) -> int:
        return len(self.visible)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


def prepared_tool(tool: Tool, layer: Layer, origin: ToolOrigin) -> BoundTool | None:
    """Return what registration computes of a tool, which takes a millisecond; None if it cannot be registered. Runs in any thread."""
    try:
        return _bind(tool, layer, origin)
    except UsageError:
        return None


def _bind(tool: Tool, layer: Layer, origin: ToolOrigin = _OF_THIS_PROCESS) -> BoundTool:
    tool.check_complete()
    check_declaration(tool)
    where = f"tool '{tool.name}' ({tool.where()})"
    schema = tool.compiled_schema()
    result = tool.result_schema()
    output = compile_schema(result, where, any_root=True) if result is not None else None
    category: Category = tool.category or "safe_chain"
    effect = effect_of(tool)
    defaults = _defaults(tool)
    return BoundTool(
        tool=tool,
        name=tool.name,
        layer=layer,
        server=origin.server,
        description=tool.description,
        category=category,
        effect=effect,
        schema=schema,
        output=output,
        identity=_identity(tool, layer, origin.server, category, effect),
        runner=tool.runner or ("inline" if inspect.iscoroutinefunction(tool.execute) else "thread"),
        timeout_s=tool.timeout_s,
        attempt_timeout_s=tool.attempt_timeout_s,
        retry=NO_RETRY if tool.retryable is False else tool.retry or RetryPolicy(),
        cache_scope=tool.cache_scope if tool.cacheable else None,
        cache_ttl=tool.cache_ttl,
        effect_key=_effect_key(tool, origin, effect, schema),
        approval=ApprovalRequirement.of(tool.requires_approval, where[0].upper() + where[1:], schema.properties),
        requires_actor=tool.requires_actor,
        parallel=tool.parallel,
        coerce=tool.coerce,
        takes=tool.only(schema),
        keywords=tool.keywords(),
        defaults=defaults,
        own_validator=tool.has_validator(),
        exacting=tool.has_validator() or bool(defaults),
    )


def _effect_key(tool: Tool, origin: ToolOrigin, effect: Effect, schema: CompiledSchema) -> EffectKey | None:
    declared, where = tool.effect_key, f"Tool '{tool.name}' ({tool.where()})"
    misnamed: object = getattr(tool, "key", None)
    if declared is None and isinstance(misnamed, str) and "{" in misnamed:
        raise UsageError(f"{where} has key={misnamed!r:.80}. In a class, the key of the effect is effect_key; rename it.")
    if declared is None:
        return None
    return EffectKey.of(declared, tool.name, effect, schema, where, server=origin.server, offered_as=origin.name)


def _defaults(tool: Tool) -> dict[str, Any]:
    try:
        return strict_object(tool.defaults(), Limits())
    except Exception as error:
        raise UsageError(
            f"The defaults of tool '{tool.name}' ({tool.where()}) cannot be used ({type(error).__name__}: {error}). Return JSON data."
        ) from error


def _identity(tool: Tool, layer: Layer, server: str, category: Category, effect: Effect) -> str:
    shape: dict[str, object] = {
        "name": tool.name,
        "layer": layer,
        "description": tool.description,
        "parameters": tool.parameters,
        "output": tool.output_schema,
        "category": category,
        "effect": effect,
    }
    if server:
        shape["server"] = server
    return hashlib.sha256(canonical(shape)).hexdigest()[:32]
