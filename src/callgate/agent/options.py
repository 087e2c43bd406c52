"""Refuse what an agent and its runs cannot work with, by its name and with what to give instead.

Here, before anything begins: later it would be an error about something else, a limit that limits nothing, or no error at all. Says nothing
about what is right for a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.models.wire.request import ToolSpec

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction
    from callgate.agent.deliberate import Deliberate

__all__ = [
    "check_asked",
    "check_choice",
    "check_left_out",
    "check_limits",
    "check_planned",
    "check_request",
    "check_shown",
    "check_type",
    "check_types",
    "check_values",
    "shown",
]

_LEAST = {"errors_in_a_row": 1, "hint": 1, "refuse": 1, "stop": 1, "remembered": 1, "at_tokens": 1}
"""Of numbers where 0 would not do."""
_WAITS = frozenset({"idle_s", "first_s", "timeout_s"})
"""Times that must be above 0: what may take no time at all never happens."""


def check_choice(name: str, given: str, known: Iterable[str]) -> None:
    if not isinstance(given, str) or given not in known:
        raise UsageError(f"Agent({name}={given!r}) is not known. Choose one of: {', '.join(known)}.")


def check_type(name: str, given: object, kind: type | tuple[type, ...], what: str) -> None:
    """Refuse what is not of a type.

    Args:
        name: Whose parameter, and its name, as in `Agent.run(scope`.
        what: What to give instead.

    Raises:
        UsageError: It is of another type.
    """
    if not isinstance(given, kind):
        raise UsageError(f"{name}={shown(given)}) cannot work. Give {what}.")


def check_types(**given: tuple[object, type]) -> None:
    """The same for parameters of `Agent` that may be None.

    Raises:
        UsageError: One is of another type.
    """
    for name, (value, kind) in given.items():
        if value is not None:
            check_type(f"Agent({name}", value, kind, f"{_article(kind)} {kind.__name__}, or None")


def check_values(values: Struct) -> None:
    """Refuse a value that is not of its field's type, or a number that is no limit; values within values too, what is called too.

    Raises:
        UsageError: There is one.
    """
    kind = type(values)
    for field in fields(kind):
        value, owner = getattr(values, field.name), f"{kind.__name__}({field.name}"
        inner = _struct_of(field.type)
        if value is None and type(None) in get_args(field.type):
            continue
        if inner is not None:
            check_type(owner, value, inner, f"{_article(inner)} {inner.__name__}{_or_none(field)}")
            check_values(value)
        elif Callable in {get_origin(one) for one in _choices(field.type)}:
            _check_callable(owner, value, f"a function{_or_none(field)}")
        elif float in _choices(field.type) or int in _choices(field.type):
            _check_number(owner, value, field)
        else:
            _check_plain(owner, value, field)


def check_left_out(tools: Iterable[object], policies: Iterable[object], *parts: object) -> None:
    """Refuse what an engine that is given has of its own already."""
    if any(True for _ in (*tools, *policies)) or any(one is not None for one in parts):
        raise UsageError(
            "Agent(engine=...) takes the engine's own tools, policies, restart and undo. Give them to it, or leave the engine out."
        )


def check_limits(*limits: Struct | None) -> None:
    """Refuse limits that are none, where they are given."""
    for one in limits:
        if one is not None:
            check_values(one)


def check_planned(deliberate: Deliberate | None, compact: Compaction | None) -> None:
    """Refuse a deliberate mode or a compaction that is none: both are a value that says how, never a yes or a number."""
    if deliberate is not None:
        from callgate.agent.deliberate import Deliberate

        check_type("Agent(deliberate", deliberate, Deliberate, "a Deliberate, as in Deliberate(always={'search'}), or None")
    if compact is not None:
        from callgate.agent.compaction import Compaction

        check_type("Agent(compact", compact, Compaction, "a Compaction, as in Compaction(compact=keep_last(20), at_tokens=50_000), or None")
    check_limits(deliberate, compact)


def check_shown(tools: object, policies: object, exit_tools: object, instructions: object, bios: object) -> None:
    """Refuse tools that come without a list around them, and instructions that are none."""
    _check_list("Agent(tools", tools, "a list of tools, also for one: tools=[...]")
    _check_list("Agent(policies", policies, "a list of policies, also for one: policies=[...]")
    _check_list("Agent(exit_tools", exit_tools, "a list of ToolSpecs")
    for one in exit_tools:  # type: ignore[attr-defined]
        check_type("Agent(exit_tools", one, ToolSpec, "a list of ToolSpecs: an exit tool has a name and a schema, and no code")
    if not callable(instructions):
        check_type("Agent(instructions", instructions, str, "text, or a function that takes the iterations left and returns text")
    _check_yes("Agent(bios", bios, none=True)


def check_request(max_tokens: object, temperature: object, extra: object, dialect: object) -> None:
    """Refuse what would go into a request and come back as the provider's complaint, or be taken for nothing."""
    if max_tokens is not None and not (type(max_tokens) is int and max_tokens > 0):
        raise UsageError(f"Agent(max_tokens={shown(max_tokens)}) is no limit. Give a whole number above 0, or None for the provider's own.")
    if temperature is not None and not _is_number(temperature):
        raise UsageError(f"Agent(temperature={shown(temperature)}) is no number. Give one, or None for the provider's own.")
    if extra is not None and not (isinstance(extra, dict) and all(isinstance(name, str) for name in extra)):
        raise UsageError(f"Agent(extra={shown(extra)}) cannot work. Give a dict by the names of the provider's request body.")
    if dialect is not None:
        from callgate.models.dialects import DIALECTS

        if not isinstance(dialect, str) or dialect not in DIALECTS:
            raise UsageError(
                f"Agent(dialect={shown(dialect)}) is not known. Choose one of: {', '.join(sorted(DIALECTS))}; or None: found out."
            )


def check_asked(
    door: str,
    *,
    conversation: object = "",
    scope: object = None,
    trigger: object = None,
    on_event: object = None,
    history: object = None,
    expose: object = (),
    reflect: object = False,
    deliberate: object = None,
) -> None:
    """Refuse what cannot be asked of a run.

    Args:
        door: Which method was asked, as in `Agent.run`.

    Raises:
        UsageError: One of them is not of its kind.
    """
    check_type(f"{door}(conversation", conversation, str, "its name; an empty one for a conversation of its own")
    if scope is not None:
        check_type(f"{door}(scope", scope, Scope, "a Scope")
    if trigger is not None:
        check_type(f"{door}(trigger", trigger, str, "the id of the message that asks, as text, or None")
    if on_event is not None:
        _check_callable(f"{door}(on_event", on_event, "a function that takes an event, or None")
    if history is not None and not isinstance(history, str):  # a text is refused where messages are, with what makes them
        _check_list(f"{door}(history", history, "a list of messages, or None for what the agent remembers")
    _check_list(f"{door}(expose", expose, "a list of tools' names")
    for name in expose if isinstance(expose, (list, tuple, set, frozenset)) else ():
        check_type(f"{door}(expose", name, str, "tools' names")
    _check_yes(f"{door}(reflect", reflect)
    _check_yes(f"{door}(deliberate", deliberate, none=True)


def _check_number(owner: str, value: object, field: FieldInfo) -> None:
    least, whole = _LEAST.get(field.name, 0), float not in _choices(field.type)
    fits = type(value) is int if whole else _is_number(value, endless=True)
    if fits and (value > 0 if field.name in _WAITS else value >= least):  # type: ignore[operator]
        return
    kind = "a whole number, " if whole else ""
    size = "more than 0" if field.name in _WAITS else f"{least} or more"
    raise UsageError(f"{owner}={shown(value)}) is no limit. Give {kind}{size}{', or None for none' if _or_none(field) else ''}.")


def _check_plain(owner: str, value: object, field: FieldInfo) -> None:
    try:
        msgspec.convert(value, field.type)
    except msgspec.ValidationError:
        raise UsageError(f"{owner}={shown(value)}) cannot work. {_instead(field.type)}.") from None


def _instead(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"Choose one of: {', '.join(get_args(kind))}"
    if kind is bool:
        return "Give True or False"
    return "Give a dict of lists of texts" if get_origin(kind) is Mapping else "Give a list of texts"


def _check_list(owner: str, value: object, what: str) -> None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise UsageError(f"{owner}={shown(value)}) cannot work. Give {what}.")


def _check_callable(owner: str, value: object, what: str) -> None:
    if not callable(value):
        raise UsageError(f"{owner}={shown(value)}) cannot work. Give {what}.")


def _check_yes(owner: str, value: object, *, none: bool = False) -> None:
    if not (isinstance(value, bool) or (none and value is None)):
        raise UsageError(f"{owner}={shown(value)}) cannot work. Give True or False{', or None' if none else ''}.")


def _is_number(value: object, *, endless: bool = False) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and (endless or math.isfinite(value))  # type: ignore[arg-type]


def _choices(kind: Any) -> tuple[Any, ...]:
    return (kind,) if get_origin(kind) in (Literal, frozenset, tuple, Mapping) or not get_args(kind) else (kind, *get_args(kind))


def _struct_of(kind: Any) -> type[Struct] | None:
    return next((one for one in _choices(kind) if isinstance(one, type) and issubclass(one, Struct)), None)


def _or_none(field: FieldInfo) -> str:
    return ", or None" if type(None) in get_args(field.type) else ""


def _article(kind: type) -> str:
    return "an" if kind.__name__[0] in "AEIOU" else "a"


def shown(value: object) -> str:
    """What was given, as long as anybody wants to read."""
    try:
        return f"{value!r:.80}"
    except Exception:
        return f"a {type(value).__name__}"
