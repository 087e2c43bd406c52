"""Turn the options of an agent into an `AgentConfig`, and refuse invalid values.

The values are checked when the agent is made. A wrong value that is found later would cause an error about something
else, or a limit without an effect. Each error names the option and says what it must be. Knows nothing of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate._option_checks import check, refused, shown
from callgate._runners.await_host_code import HostAwaits
from callgate.agent.agent_options import EngineOptions, TextCallMode, check_list
from callgate.agent.loop_settings import ModelSettings, Settings
from callgate.agent.repetition import StuckLimits
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.models.model_protocol import Model
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.stream import StreamLimits

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction
    from callgate.agent.deliberate_mode import Deliberation
    from callgate.agent.typed_output import OutputType

__all__ = [
    "AgentConfig",
    "check_exits",
    "compaction_of",
    "deliberation_of",
    "engine_of",
    "exits_of",
    "instructions_of",
    "model_of",
    "output_of",
    "request_of",
    "with_text_calls",
]


class AgentConfig(Struct, frozen=True, kw_only=True, eq=False):
    """The configuration of one agent, shared by all of its runs."""

    model: Model
    engine: Engine
    """Runs the calls."""
    settings: Settings
    instructions: str | Callable[[int | None], str]
    """The host's system prompt, or a function that makes it from the number of iterations that are left."""
    system_text: bool
    """Whether the loop puts a system text of its own before the instructions."""
    exits: Mapping[str, ToolSpec]
    """The exit tools, by name."""
    stream_limits: StreamLimits
    """How long a stream may be silent."""
    stuck: StuckLimits | None
    """The numbers of identical calls after which the model gets a hint, further calls are refused, and the turn
    ends. None: repeated calls are not detected.
    """
    output: OutputType | None
    """How the answer is read; None: as text."""
    deliberation: Deliberation | None
    """Deliberate mode's planner. None if the mode is not configured and no tool has a trigger; a run may still turn
    the mode on, and the planner is then made on first use.
    """
    compaction: Compaction | None
    request: ModelRequest
    """The template of every request to the model."""
    host_awaits: HostAwaits
    """Runs code of the host that may not stop when it is cancelled, such as models."""


def model_of(model: Model | str) -> Model:
    if isinstance(model, str):
        from callgate.models.providers import model as from_name

        return from_name(model)
    if not all(hasattr(model, name) for name in ("provider", "name", "native_tools", "stream")):
        raise UsageError(f"Agent(model={shown(model)}) is not a model. Give 'provider:model', or an object with what `Model` has.")
    return model


def with_text_calls(model: Model, mode: TextCallMode, dialect: str | None) -> Model:
    """Return the model, wrapped in `TextCalls` if calls may have to be read from its text."""
    if dialect is not None:
        from callgate.models.dialects import DIALECTS

        if not isinstance(dialect, str) or dialect not in DIALECTS:
            raise refused("Agent", "dialect", dialect, f"one of {', '.join(map(repr, sorted(DIALECTS)))}, or None: found out")
    if mode == "never" or (mode == "auto" and model.native_tools):
        return model
    from callgate.agent.text_call_model import TextCalls

    return TextCalls(model, teach=not model.native_tools, dialect=dialect)


def engine_of(given: Engine | None, settings: Settings, options: EngineOptions) -> Engine:
    """Return the given engine, or make one with these options."""
    if given is None:
        check_list("Agent", "tools", options.get("tools", ()), "a list of tools, also for one: tools=[...]")
        check_list("Agent", "policies", options.get("policies", ()), "a list of policies, also for one: policies=[...]")
        return Engine(**(options | {"limits": _limits_of(options.get("limits", Limits()), settings)}))
    if options:
        raise UsageError(
            f"Agent was given an engine, and {', '.join(options)} for a new one. Give the engine these options when you make it, or leave"
            " it out."
        )
    _check_soft_warn(settings, given.limits)
    _check_dangerous(settings, given.limits)
    return given


def _limits_of(given: Limits, settings: Settings) -> Limits:
    """Return the limits of a new engine: `given`, with the limits that `settings` set where `given` has the default."""
    check("Agent", "limits", given, Limits)
    if given.dangerous_per_tick is None and settings.dangerous_per_tick is not None:
        given = replace(given, dangerous_per_tick=settings.dangerous_per_tick)
    if settings.soft_warn is not None and given.soft_warn_iteration == Limits().soft_warn_iteration:
        return replace(given, soft_warn_iteration=settings.soft_warn)
    _check_soft_warn(settings, given)
    return given


def _check_soft_warn(settings: Settings, limits: Limits) -> None:
    if settings.soft_warn not in (None, limits.soft_warn_iteration):
        raise UsageError(
            f"Settings.soft_warn is {settings.soft_warn}, and the engine's Limits.soft_warn_iteration is {limits.soft_warn_iteration}: the"
            " notice and the kill hint have one threshold. Set the engine's, and leave this out."
        )


def _check_dangerous(settings: Settings, limits: Limits) -> None:
    wanted, most = settings.dangerous_per_tick, limits.dangerous_per_tick
    if wanted is not None and (most is None or most > wanted):
        raise UsageError(
            f"Settings.dangerous_per_tick is {wanted}, as in the presets 'chat' and 'tick', and the engine's Limits.dangerous_per_tick is"
            f" {most}: the engine limits these calls. Set the engine's to {wanted}, or give settings with dangerous_per_tick=None."
        )


def instructions_of(given: str | Callable[[int | None], str]) -> str | Callable[[int | None], str]:
    if not callable(given) and not isinstance(given, str):
        raise refused("Agent", "instructions", given, "text, or a function that takes the iterations left and returns text")
    return given


def exits_of(given: Iterable[ToolSpec | Mapping[str, object]], engine: Engine) -> dict[str, ToolSpec]:
    """Return the exit tools by name."""
    wanted = "a list of ToolSpecs or of OpenAI tool dictionaries: an exit tool has a name and a schema, and no code"
    exits: dict[str, ToolSpec] = {}
    for entry in check_list("Agent", "exit_tools", given, wanted):
        one = _exit_from_openai(entry) if isinstance(entry, Mapping) else entry
        if not isinstance(one, ToolSpec):
            raise refused("Agent", "exit_tools", given, wanted)
        _check_exit(one, exits)
        exits[one.name] = one
    check_exits(exits, engine)
    return exits


def check_exits(exits: Iterable[str], engine: Engine) -> None:
    """Check that no exit tool has the name of a tool. Called for each turn, because tools may be registered at any time.

    Raises:
        UsageError: An exit tool has the name of a tool.
    """
    for name in exits:
        if name in engine.tools:
            raise UsageError(f"'{name}' is both a tool and an exit tool. An exit tool is never run; rename one of them.")


def _exit_from_openai(entry: Mapping[str, object]) -> ToolSpec:
    """Read a tool definition of OpenAI's Chat Completions, or of its Responses API, whose definitions have no inner `function`."""
    function = entry.get("function", entry)
    if entry.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise UsageError(
            f"The exit tool {shown(entry)} is not a function. "
            "Give {'type': 'function', 'function': {'name': ..., 'parameters': {...}}}."
        )
    description, parameters = function.get("description"), function.get("parameters")
    if not isinstance(description, str | None):
        raise UsageError(f"The exit tool {shown(entry)} has a description that is not text.")
    name, schema = function.get("name"), {} if parameters is None else parameters
    return ToolSpec(name=name, description=description or "", schema=schema)  # type: ignore[arg-type]  # looked at below


def _check_exit(tool: ToolSpec, others: Collection[str]) -> None:
    """Raise `UsageError` if the exit tool has no name, a name that is already used, or no schema."""
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise UsageError(f"An exit tool has no name: {shown(tool)}. Give it one, as in ToolSpec(name='report').")
    if tool.name in others:
        raise UsageError(f"Two exit tools are named '{tool.name}'. Rename one of them.")
    if not isinstance(tool.schema, Mapping):
        raise UsageError(f"The exit tool '{tool.name}' has the schema {shown(tool.schema)}. Give a JSON Schema, as a dict.")


def output_of(kind: Any) -> OutputType | None:
    """Return the type as which answers are read; None: text."""
    if kind is None or kind is str:
        return None
    from callgate.agent.typed_output import OutputType

    return OutputType(kind)


def deliberation_of(given: object, engine: Engine) -> Deliberation | None:
    """Return deliberate mode's planner; None if the mode is not configured and no tool has a trigger."""
    if given is None and not any(bound.tool.triggers for bound in engine.tools):
        return None
    from callgate.agent.deliberate_mode import Deliberate, Deliberation

    if given is not None and not isinstance(given, Deliberate):
        raise refused("Agent", "deliberate", given, "a Deliberate, as in Deliberate(always={'search'}), or None")
    return Deliberation(given or Deliberate(active=False), engine.tools)


def compaction_of(given: object) -> Compaction | None:
    if given is None:
        return None
    from callgate.agent.compaction import Compaction

    if not isinstance(given, Compaction):
        raise refused("Agent", "compact", given, "a Compaction, as in Compaction(compact=keep_last(20), at_tokens=50_000), or None")
    return given


def request_of(model: Model, output: OutputType | None, settings: ModelSettings | None) -> ModelRequest:
    """Return the template of every request to the model: its name and settings, without messages."""
    settings = settings or ModelSettings()
    return ModelRequest(
        model=model.name,
        messages=(),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        extra=settings.extra or {},
        output_schema=output.schema if output is not None else None,
    )
