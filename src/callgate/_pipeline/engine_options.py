"""Check the options of an engine when it is made, complete them with defaults, and pass them to the stages.

Invalid settings, and objects that lack a method or are classes instead of instances, are refused here, because they would otherwise fail
during a call. `HostFields` checks `Scope.extra` against the host's declaration; `EngineContext` is shared by all stages. Decides nothing
about calls.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import Struct

from callgate._abort_signals import Control
from callgate._blob_store import MemoryBlobs
from callgate._clock import Clock, SystemClock
from callgate._conversation_queue import TurnQueues
from callgate._deadlines import Deadlines
from callgate._engine_limits import Limits
from callgate._journal import MemoryJournal
from callgate._option_checks import Seconds, check
from callgate._pipeline.call_hooks import HostCode
from callgate._pipeline.journal_checks import check_journal
from callgate._pipeline.normalise import Normaliser
from callgate._run_state.approvals import Approvals
from callgate._run_state.recorder import Recorder
from callgate._runners.offload_to_threads import Offload
from callgate._runners.return_values import ResultReader
from callgate._secret_redaction import Redactor
from callgate.errors import UsageError
from callgate.events import Bus
from callgate.hooks import Hook
from callgate.protocols import BlobStore, CallJudge, HoldsBlobs, Journal, Policy, RequiresJudge, Runner, ToolServer, WithTools
from callgate.tools import BoundTool, Tool
from callgate.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from callgate.mcp import McpServer
    from callgate.plugins import Plugin

__all__ = [
    "EngineContext",
    "HostFields",
    "check_parts",
    "check_policies",
    "check_settings",
    "hooks_of",
    "policies_of",
    "runners_of",
    "server_change_of",
    "servers_of",
]

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


def servers_of(
    tools: Iterable[Tool | type[Tool] | McpServer | Plugin | ToolServer], servers: Iterable[McpServer | Plugin | ToolServer]
) -> tuple[tuple[Tool | type[Tool], ...], tuple[ToolServer, ...]]:
    """Return the tools, and the tool servers among both arguments, each in order.

    Raises:
        UsageError: One of them is neither, or two servers have one name.
    """
    plain: list[Tool | type[Tool]] = []
    found: list[ToolServer] = []
    for one in (*_listed("tools", tools), *_listed("servers", servers)):
        server = _tool_server(one)
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
    plain, servers = servers_of((), _listed("add", add, "change_servers"))
    names = _listed("remove", remove, "change_servers")
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
    found = _listed("policies", policies)
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
    found = _listed("hooks", hooks)
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


def _listed(name: str, given: Iterable[T], owner: str = "Engine") -> tuple[T, ...]:
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
    """Return what to write for a policy, because a plain function is often given for one."""
    if name != "policies":
        return ""
    return (
        " Write policies=[Rules.parse(...)], or an object with 'async def decide(self, call)' that returns Allow(), Deny(...) or Ask(...)."
    )


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


_MISSING: Final = object()


class HostFields:
    """The fields that every `Scope.extra` of one engine has.

    Args:
        declared: A class with annotated fields (such as a dataclass or `msgspec.Struct`), a `TypedDict`, or a union of one of them with
            None.

    Raises:
        UsageError: `declared` is none of these.
    """

    def __init__(self, declared: object) -> None:
        choices = get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)
        self._may_lack = type(None) in choices
        kinds = [kind for kind in choices if kind is not type(None)]
        if len(kinds) != 1 or not isclass(kinds[0]):
            raise UsageError(
                f"Engine(extra={declared!r:.80}): it must be the class of what scopes have as `extra`, with annotated fields, or that class"
                " or None: Engine(extra=Host), Engine(extra=Host | None)."
            )
        self._kind: type[Any] = kinds[0]
        self._fields = _fields_of(self._kind)
        self._required = getattr(self._kind, "__required_keys__", frozenset(self._fields))

    def check(self, extra: object) -> None:
        """Check that `extra` is as declared.

        Raises:
            UsageError: It is of another class, lacks a field, or a field has another type.
        """
        if extra is None and self._may_lack:
            return
        why = self._problem(extra)
        if why:
            raise UsageError(
                f"Scope.extra {why}. Engine(extra={self._kind.__name__}) declares it for every call; give it, or declare less."
            )

    def _problem(self, extra: object) -> str:
        """Return why `extra` is not as declared; empty if it is."""
        read: Callable[[str], object]
        if is_typeddict(self._kind):
            if not isinstance(extra, Mapping):
                return f"is {type(extra).__name__}, and must be a mapping with the keys of {self._kind.__name__}"
            read = lambda name: extra.get(name, _MISSING)  # noqa: E731
        else:
            if not _is(extra, self._kind):
                return f"is {type(extra).__name__}, and must be {self._kind.__name__}"
            read = lambda name: getattr(extra, name, _MISSING)  # noqa: E731
        for name, kind in self._fields.items():
            value = read(name)
            if value is _MISSING:
                if name in self._required:
                    return f"has no field '{name}'"
            elif not _is(value, kind):
                return f"has {type(value).__name__} in its field '{name}', and must have {_named(kind)}"
        return ""


def _fields_of(kind: type[Any]) -> dict[str, object]:
    """Return the annotated fields of a class by name. Fields whose annotations cannot be evaluated accept any value."""
    try:
        hints: dict[str, object] = get_type_hints(kind)
    except (NameError, TypeError, AttributeError):  # annotations with names that do not exist at runtime
        hints = {name: object for one in reversed(kind.__mro__) for name in getattr(one, "__annotations__", {})}
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar and not name.startswith("_")}


def _is(value: object, kind: object) -> bool:
    """Return whether a value is of an annotated type. Only the value itself is checked, not the items that it contains."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in get_args(kind))
    if origin is Literal:
        return value in get_args(kind)
    if kind is None:
        return value is None
    wanted = origin or kind
    if wanted is float:
        wanted = (float, int)
    try:
        return isinstance(value, wanted)  # type: ignore[arg-type]
    except TypeError:  # Any, a type variable, a protocol: no class to check against
        return True


def _named(kind: object) -> str:
    return kind.__name__ if isclass(kind) and get_origin(kind) is None else str(kind).replace("typing.", "")


_BLOB_BYTES: Final = 268_435_456


class EngineContext(Struct, frozen=True, kw_only=True, eq=False):
    """The parts that all stages of one engine share, such as its recorder, clock, limits and control.

    Made once from the host's options. If the host gives no journal, the record is kept in memory only. Holds no state of a single call.
    """

    journal: Journal
    blobs: BlobStore
    clock: Clock
    limits: Limits
    redactor: Redactor | None
    bus: Bus
    conversations: TurnQueues
    control: Control
    recorder: Recorder
    approvals: Approvals
    normaliser: Normaliser
    tools: ToolRegistry
    """The registered tools; empty until the parts that check tools are made."""
    deadlines: Deadlines
    """Of what is no tool: records that become durable, and work in threads."""
    offload: Offload
    host: HostCode
    reader: ResultReader

    @classmethod
    def of(
        cls, *, journal: Journal | None, blobs: BlobStore | None, clock: Clock | None, limits: Limits, redactor: Redactor | None
    ) -> EngineContext:
        clock = SystemClock() if clock is None else clock
        journal = MemoryJournal(clock) if journal is None else journal
        blobs = _blobs_of(journal) if blobs is None else blobs
        bus, conversations, deadlines, tools = Bus(), TurnQueues(), Deadlines(), ToolRegistry()
        recorder, offload = Recorder(journal, bus, redactor, deadlines), Offload(limits, deadlines)
        reader = ResultReader(offload, limits.result_bytes)
        return cls(
            journal=journal,
            blobs=blobs,
            clock=clock,
            limits=limits,
            redactor=redactor,
            bus=bus,
            conversations=conversations,
            control=Control(on_kill=conversations.drain),
            recorder=recorder,
            approvals=Approvals(clock, limits.approval_s),
            normaliser=Normaliser(limits, blobs, redactor, tools),
            tools=tools,
            deadlines=deadlines,
            offload=offload,
            host=HostCode(recorder, reader, offload, limits),
            reader=reader,
        )


def _blobs_of(journal: Journal) -> BlobStore:
    return journal.blobs if isinstance(journal, HoldsBlobs) else MemoryBlobs(max_bytes=_BLOB_BYTES)
