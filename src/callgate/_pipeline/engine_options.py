"""Check the options of an engine when it is made, complete them with defaults, and pass them to the stages.

Invalid settings, and objects that lack a method or are classes instead of instances, are refused here, because they would otherwise fail
during a call. Decides nothing about calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from callgate._engine_limits import Limits
from callgate._option_checks import Seconds, check
from callgate._pipeline.journal_checks import check_journal
from callgate.errors import UsageError
from callgate.hooks import Hook
from callgate.protocols import CallJudge, Policy, RequiresJudge, Runner, ToolServer, WithTools
from callgate.tools import BoundTool, Tool

if TYPE_CHECKING:
    from callgate.mcp import McpServer
    from callgate.plugins import Plugin

__all__ = ["check_parts", "check_policies", "check_settings", "hooks_of", "policies_of", "runners_of", "server_change_of", "servers_of"]

T = TypeVar("T")

_KINDS: Mapping[str, Any] = {"limits": Limits, "timeout_s": Seconds | None, "run": str, "coerce": bool, "repair": bool}
_PARTS: Mapping[str, tuple[str, ...]] = {
    "journal": ("append", "durable", "read", "close"),
    "blobs": ("put", "get"),
    "persistent_cache": ("get", "put", "drop_written", "close"),
    "redactor": ("redact",),
    "undo": ("begin", "finish", "leave_out"),
    "memory": ("follow", "close"),
    "restart": ("__call__",),
    "clock": ("monotonic", "wall_ns", "sleep", "jitter", "new_id"),
}
"""The protocol that an object must implement, by the name of the option."""


def check_settings(process_limits: object, **settings: object) -> None:
    """Refuse invalid settings, including text instead of a bool, because any text would count as true.

    Raises:
        UsageError: A setting has the wrong type.
    """
    if process_limits is not None:
        from callgate._runners.process import ProcessLimits

        check("Engine", "process_limits", process_limits, ProcessLimits)
    for name, value in settings.items():
        check("Engine", name, value, _KINDS[name])


def check_parts(**parts: object) -> None:
    """Refuse objects that do not implement their protocol. Options that are None are skipped.

    Raises:
        UsageError: An object lacks a method, or is a class.
    """
    for name, part in parts.items():
        if name == "journal" and not isinstance(part, type):
            check_journal(part)
        elif part is not None:
            _check_part(name, part, _PARTS[name])


_HOW_TO_WRITE = {
    "policies": (
        " Write policies=[Rules.parse(...)], or an object with 'async def decide(self, call)' that returns Allow(), Deny(...) or Ask(...)."
    ),
    "redactor": " Write an object with 'def redact(self, body: bytes) -> bytes', which gets JSON and returns it without secrets.",
}


def servers_of(
    tools: Iterable[Tool | type[Tool] | McpServer | Plugin | ToolServer], servers: Iterable[McpServer | Plugin | ToolServer]
) -> tuple[tuple[Tool | type[Tool], ...], tuple[ToolServer, ...]]:
    """Return the tools, and the tool servers among both arguments, each in order.

    Raises:
        UsageError: One of them is neither, or two servers have one name.
    """
    plain: list[Tool | type[Tool]] = []
    found: list[ToolServer] = []
    for one in (*_as_tuple("tools", tools), *_as_tuple("servers", servers)):
        server = _tool_server(one)
        if isinstance(one, (str, Path)):
            raise UsageError(f"{one!r} is neither a tool nor a server. Write mcp('uvx mcp-server-git') or plugin('./invoices').")
        if server is None:
            plain.append(one)  # type: ignore[arg-type]
        else:
            found.append(server)
    names = [server.name for server in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Engine(servers=...) has two servers with the name {twice!r}. Give one of them another name: mcp(..., name='...')."
        )
    return tuple(plain), tuple(found)


def server_change_of(
    add: Iterable[McpServer | Plugin | ToolServer], remove: Iterable[str]
) -> tuple[tuple[ToolServer, ...], tuple[str, ...]]:
    """Return the servers to add, and the names of those to remove.

    Raises:
        UsageError: One of them is no server or no name, or two servers have one name.
    """
    plain, servers = servers_of((), _as_tuple("add", add, "change_servers"))
    names = _as_tuple("remove", remove, "change_servers")
    odd = next((one for one in (*plain, *(name for name in names if not isinstance(name, str)))), None)
    if odd is not None:
        raise UsageError(
            f"change_servers was given a {_kind(odd)}. Write add=[mcp(...)] or add=[plugin(...)] to add servers, and remove=['NAME'] to"
            " remove them. Single tools are added with engine.register."
        )
    return servers, names


def _tool_server(given: object) -> ToolServer | None:
    """Return the tool server that is given or configured; None if it is something else."""
    if isinstance(given, (type, Tool)):
        return None
    if all(callable(getattr(given, method, None)) for method in ("start", "close")) and hasattr(given, "layer"):
        return cast("ToolServer", given)
    if type(given).__module__.startswith("callgate.mcp"):
        from callgate.mcp import McpServer
        from callgate.mcp._supervisor import SupervisedServer

        return SupervisedServer(given) if isinstance(given, McpServer) else None
    if type(given).__module__.startswith("callgate.plugins"):
        from callgate.plugins import Plugin
        from callgate.plugins._supervised_plugin import SupervisedPlugin

        return SupervisedPlugin(given) if isinstance(given, Plugin) else None
    return None


def policies_of(policies: Iterable[Policy | CallJudge]) -> tuple[Policy | CallJudge, ...]:
    """Return the policies in order.

    Raises:
        UsageError: `policies` is not an iterable of policies, or one requires judgments but none is a judge.
    """
    found = _as_tuple("policies", policies)
    for policy in found:
        _check_part("policies", policy, ("judge", "wants") if hasattr(policy, "wants") else ("decide",))
    judged = any(isinstance(policy, CallJudge) for policy in found)
    for policy in found:
        if not judged and isinstance(policy, RequiresJudge) and policy.judge_required_by:
            raise UsageError(
                f"{policy.judge_required_by} wants calls judged, and there is no judge. Add one: policies=[..., Judge(model)]."
            )
    return found


def check_policies(policies: Sequence[Policy | CallJudge], tools: Sequence[BoundTool]) -> None:
    """Refuse policies that refer to something that these tools do not have.

    Raises:
        UsageError: A policy could never have the effect that it describes.
    """
    for policy in policies:
        if isinstance(policy, WithTools):
            policy.check_tools(tools)


def hooks_of(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Return the hooks in order.

    Raises:
        UsageError: `hooks` is not an iterable of hooks.
    """
    found = _as_tuple("hooks", hooks)
    for hook in found:
        if not isinstance(hook, Hook):
            raise UsageError(f"Engine(hooks=...) was given a {_kind(hook)}. Decorate the function with @before_call or @after_call.")
    return found


def runners_of(runners: Mapping[str, Runner] | None) -> dict[str, Runner]:
    """Return the host's own runners by name.

    Raises:
        UsageError: `runners` is not a mapping, or a value is not a runner.
    """
    if runners is not None and not isinstance(runners, Mapping):
        raise UsageError(f"Engine(runners=...) was given a {_kind(runners)}; it must be a dict of them by the names that tools give.")
    found = dict(runners or {})
    for name, runner in found.items():
        if not isinstance(name, str):
            raise UsageError(f"Engine(runners=...) has the name {name!r:.80}; it must be text.")
        _check_part("runners", runner, ("run", "close"))
    return found


def _as_tuple(name: str, given: Iterable[T], owner: str = "Engine") -> tuple[T, ...]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise UsageError(f"{owner}({name}=...) was given a {_kind(given)}; it must be a list of them.{_how_to_write(name)}")
    return tuple(given)


def _check_part(name: str, part: object, methods: tuple[str, ...]) -> None:
    if isinstance(part, type):
        raise UsageError(f"Engine({name}=...) was given the class {part.__name__}; it must be an instance. Write {part.__name__}(...).")
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing:
        raise UsageError(f"Engine({name}=...) was given a {_kind(part)}, which has no method {', '.join(missing)}.{_how_to_write(name)}")


def _how_to_write(name: str) -> str:
    """Return what to write for the parts for which a plain function is often given."""
    return _HOW_TO_WRITE.get(name, "")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
