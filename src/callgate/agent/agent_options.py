"""The keyword options of an agent and of its runs: names, types, and the check of each value's type.

`EngineOptions` and `AgentRunOptions` are TypedDicts, so that type checkers and editors know the keywords of functions that pass them on.
`agent_config` checks more than the type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from callgate._option_checks import check, refused
from callgate.agent.loop_settings import ModelSettings, PresetName, Settings
from callgate.agent.repetition import StuckLimits
from callgate.agent.run_events import AgentEvent
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.messages import Message
from callgate.stream import StreamLimits

if TYPE_CHECKING:
    from callgate._clock import Clock
    from callgate._engine_limits import Limits
    from callgate._runners.process import ProcessLimits
    from callgate._secret_redaction import Redactor
    from callgate.hooks import Hook
    from callgate.mcp import McpServer
    from callgate.plugins import Plugin
    from callgate.protocols import (
        BlobStore,
        CacheStore,
        CallJudge,
        Follower,
        Journal,
        Policy,
        RestartHandler,
        Runner,
        ToolServer,
        WriteLog,
    )
    from callgate.tools import Tool

__all__ = [
    "AgentRunOptions",
    "AgentStreamOptions",
    "EngineOptions",
    "TextCallMode",
    "check_agent_options",
    "check_list",
    "check_run_options",
]


class EngineOptions(TypedDict, total=False):
    """The options of the engine that an agent makes; each has the same meaning as in `Engine`."""

    tools: Iterable[Tool | type[Tool] | McpServer | Plugin | ToolServer]
    servers: Iterable[McpServer | Plugin | ToolServer]
    policies: Iterable[Policy | CallJudge]
    hooks: Iterable[Hook]
    journal: Journal | None
    blobs: BlobStore | None
    persistent_cache: CacheStore | None
    limits: Limits
    process_limits: ProcessLimits | None
    runners: Mapping[str, Runner] | None
    timeout_s: float | None
    coerce: bool
    repair: bool
    restart: RestartHandler | None
    redactor: Redactor | None
    undo: WriteLog | None
    memory: Follower | None
    clock: Clock | None
    run: str
    extra: object


class AgentStreamOptions(TypedDict, total=False):
    """The options of `Agent.stream`; each has the same meaning as in `Agent.run`."""

    conversation: str
    history: Iterable[Message] | None
    scope: Scope
    trigger: str | None
    scene: bool
    reflect: bool
    deliberate: bool | None
    expose: Iterable[str]


class AgentRunOptions(AgentStreamOptions, total=False):
    """The options of `Agent.run_sync`; each has the same meaning as in `Agent.run`."""

    on_event: Callable[[AgentEvent], None] | None


TextCallMode = Literal["auto", "fallback", "never"]

_KINDS: Mapping[str, Any] = {
    "engine": Engine | None,
    "preset": PresetName,
    "settings": Settings | None,
    "model_settings": ModelSettings | None,
    "stream_limits": StreamLimits | None,
    "stuck": StuckLimits | None,
    "text_calls": TextCallMode,
    "system_text": bool | None,
}


def check_agent_options(**options: object) -> None:
    """Check the types of an agent's options.

    Raises:
        UsageError: An option has the wrong type.
    """
    for name, value in options.items():
        check("Agent", name, value, _KINDS[name])


_NOWHERE = Scope()


def check_run_options(
    method: str,
    *,
    conversation: object = "",
    scope: object = _NOWHERE,
    trigger: object = None,
    on_event: object = None,
    history: object = None,
    expose: object = (),
    scene: object = False,
    reflect: object = False,
    deliberate: object = None,
) -> None:
    """Check the types of a run's options.

    Args:
        method: The name of the called method, such as `Agent.run`.

    Raises:
        UsageError: An option has the wrong type.
    """
    check(method, "conversation", conversation, str)
    check(method, "scope", scope, Scope)
    if isinstance(scope, Scope) and conversation and scope.conversation not in ("", conversation):
        raise UsageError(
            f"{method} was given conversation={conversation!r:.80} and a scope with conversation={scope.conversation!r:.80}. Give one of"
            " them."
        )
    check(method, "trigger", trigger, str | None)
    check(method, "on_event", on_event, Callable[..., object] | None)
    if inspect.iscoroutinefunction(on_event):
        raise refused(method, "on_event", on_event, "a plain function, which is told at once; to await something, take agent.stream")
    if history is not None and not isinstance(history, str):  # `History` refuses text, with advice how to make messages
        check_list(method, "history", history, "a list of messages, or None for what the agent remembers")
    check_list(method, "expose", expose, "a list of tools' names")
    if isinstance(expose, (list, tuple, set, frozenset)) and not all(isinstance(name, str) for name in expose):
        raise refused(method, "expose", expose, "a list of tools' names")
    check(method, "scene", scene, bool)
    check(method, "reflect", reflect, bool)
    check(method, "deliberate", deliberate, bool | None)


def check_list(owner: str, name: str, value: object, wanted: str) -> Iterable[object]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refused(owner, name, value, wanted)
    return value
