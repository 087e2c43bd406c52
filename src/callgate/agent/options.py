"""Refuse what an agent and its runs cannot work with, by its name and with what it must be.

Here, before anything begins. What takes more than a look at its kind is refused in `given`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from callgate._options import check, refused
from callgate.agent.settings import PresetName, Settings
from callgate.agent.stuck import StuckLimits
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.stream import StreamLimits

__all__ = ["TextCallMode", "check_asked", "check_list", "check_made"]

TextCallMode = Literal["auto", "fallback", "never"]

_KINDS: Mapping[str, Any] = {
    "engine": Engine | None,
    "preset": PresetName,
    "settings": Settings | None,
    "stream_limits": StreamLimits | None,
    "stuck": StuckLimits | None,
    "text_calls": TextCallMode,
    "bios": bool | None,
}


def check_made(**options: object) -> None:
    """Refuse options of an agent that are not of their kind.

    Raises:
        UsageError: One is not.
    """
    for name, value in options.items():
        check("Agent", name, value, _KINDS[name])


def check_asked(
    door: str,
    *,
    conversation: object = "",
    scope: object = None,
    trigger: object = None,
    on_event: object = None,
    history: object = None,
    expose: object = (),
    scene: object = False,
    reflect: object = False,
    deliberate: object = None,
) -> None:
    """Refuse what cannot be asked of a run.

    Args:
        door: Which method was asked, as in `Agent.run`.

    Raises:
        UsageError: One of them is not of its kind.
    """
    check(door, "conversation", conversation, str)
    check(door, "scope", scope, Scope | None)
    check(door, "trigger", trigger, str | None)
    check(door, "on_event", on_event, Callable[..., object] | None)
    if inspect.iscoroutinefunction(on_event):
        raise refused(door, "on_event", on_event, "a plain function, which is told at once; to await something, take agent.stream")
    if history is not None and not isinstance(history, str):  # a text is refused where messages are, with what makes them
        check_list(door, "history", history, "a list of messages, or None for what the agent remembers")
    check_list(door, "expose", expose, "a list of tools' names")
    if isinstance(expose, (list, tuple, set, frozenset)) and not all(isinstance(name, str) for name in expose):
        raise refused(door, "expose", expose, "a list of tools' names")
    check(door, "scene", scene, bool)
    check(door, "reflect", reflect, bool)
    check(door, "deliberate", deliberate, bool | None)


def check_list(owner: str, name: str, value: object, wanted: str) -> Iterable[object]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refused(owner, name, value, wanted)
    return value
