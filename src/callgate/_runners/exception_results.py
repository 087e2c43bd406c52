"""Convert a tool's exception to an `Execution`: bounded, valid text and what it proves about a repetition.

The traceback is beside the text, for the tool's author; the text goes to the model and never contains it.

Shared by all runners and the worker process, so that each reports the same failure in the same way. Must not know who ran the tool.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from types import WrapperDescriptorType
from typing import Protocol

from callgate._abort_signals import AbortSignal
from callgate._json import type_name
from callgate._runners.tracebacks import traceback_of
from callgate._secret_redaction import middle_left_out
from callgate.errors import NotDone, Retryable
from callgate.protocols import Execution
from callgate.tools.effect_evidence import evidence_of
from callgate.tools.retry_policy import is_retryable_error
from callgate.tools.tool_declaration import Tool

__all__ = [
    "TimeBound",
    "awaitable_note",
    "clean",
    "describe",
    "execution_not_begun",
    "execution_not_started",
    "execution_of_exception",
    "execution_of_exception_on_loop",
    "execution_overdue",
    "message_of",
]

_AWAITED = ("the tool is not an async function but returned an awaitable, which was awaited",)


class TimeBound(Protocol):
    """The timeout and the kill signal of an attempt; a `RunRequest` is one."""

    @property
    def timeout_s(self) -> float: ...
    @property
    def kill(self) -> AbortSignal: ...


_MAX_LEAVES = 4
_MAX_QUOTED = 65_536
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_module_of: Callable[[type], str] = type.__dict__["__module__"].__get__
_members_of: Callable[[type], Mapping[str, object]] = type.__dict__["__dict__"].__get__


def clean(text: str) -> str:
    """Return `text` in valid Unicode, with the middle of a very long text left out.

    Keeps more than is shown, because a worker process has no redactor: the engine redacts the text and then cuts it.
    """
    return middle_left_out(text).encode("utf-8", "backslashreplace").decode()


def describe(error: BaseException) -> tuple[str, str]:
    """Return the type name and the text of an exception, even if its class or its `__str__` raises."""
    kind = clean(type_name(error))
    try:
        text = _text_of(error, lambda leaf: ": ".join(describe(leaf)))
    except BaseException:  # foreign code may raise anything; in a thread, nothing else would catch it
        return kind, f"{kind}, whose text cannot be shown: its __str__ fails"
    return kind, text or f"{kind}, without a message"


def message_of(error: BaseException) -> str:
    """Return the text of a tool's exception for the model, which is never told its type."""
    try:
        text = _text_of(error, message_of)
        if text and _is_quoted_key(error):
            return f"the key {text} was not found"
        return text or "it gave no message"
    except BaseException:  # see `describe`
        return "its message cannot be shown"


def _is_quoted_key(error: BaseException) -> bool:
    """Return whether an exception's text is only the `repr` of the key that was not found. A text of several words is a message."""
    mro = _mro_of(type(error))
    if KeyError not in mro or len(error.args) != 1 or " " in str(error):
        return False
    return next(kind for kind in mro if "__str__" in _members_of(kind)) is KeyError


def _text_of(error: BaseException, told: Callable[[BaseException], str]) -> str:
    if isinstance(error, SystemExit):
        return f"called sys.exit({clean(repr(error.code)) if error.code is not None else ''})"
    text = clean(str(error))
    return clean(f"{text}: {'; '.join(map(told, _leaves(error)))}") if isinstance(error, BaseExceptionGroup) else text


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the first few exceptions of a group, with nested groups flattened."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(found) < _MAX_LEAVES:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting[:0] = error.exceptions
        else:
            found.append(error)
    return found


def execution_of_exception(error: BaseException, not_done: tuple[type[BaseException], ...] = ()) -> Execution:
    """Return the execution of a tool that raised.

    Args:
        not_done: Exceptions that prove that nothing happened.
    """
    try:
        return _as_execution(error, not_done)
    except BaseException:  # the exception's class is foreign code; even asking for its attributes may raise
        return Execution(status="raised", error_type=clean(type_name(error)), error=message_of(error), traceback=_trace(error))


def _as_execution(error: BaseException, not_done: tuple[type[BaseException], ...]) -> Execution:
    kind, text = clean(type_name(error)), message_of(error)
    evidence, trace = evidence_of(error, not_done), _trace(error)
    if isinstance(error, Retryable):
        return Execution(
            status="raised",
            error_type=kind,
            error=text,
            traceback=trace,
            retryable=True,
            not_started=error.not_started,
            evidence=evidence,
            retry_after_s=error.retry_after_s,
        )
    if isinstance(error, asyncio.CancelledError):
        text = "the tool cancelled itself; nobody had asked it to stop"
        return Execution(status="raised", error_type=kind, error=text, traceback=trace, evidence=evidence)
    retryable = not isinstance(error, NotDone) and is_retryable_error(error)
    return Execution(status="raised", error_type=kind, error=text, traceback=trace, retryable=retryable, evidence=evidence)


def execution_not_begun(error: BaseException) -> Execution:
    """Return the execution of a tool that could not be imported or given its arguments. Its code did not run, and a retry would not
    help."""
    kind, text = clean(type_name(error)), message_of(error)
    return Execution(status="raised", error_type=kind, error=text, traceback=_trace(error), evidence="not_sent")


def _trace(error: BaseException) -> str:
    return clean(traceback_of(error, lambda one: ": ".join(describe(one)) if _has_builtin_text(one) else type_name(one)))


def execution_of_exception_on_loop(error: BaseException, not_done: tuple[type[BaseException], ...] = ()) -> Execution:
    """Return the execution of a tool that raised on an event loop. Text from an exception's own `__str__` is read later, in a thread."""
    if _has_builtin_text(error):
        return execution_of_exception(error, not_done)
    return Execution(status="raised", value=error, evidence=evidence_of(error, not_done))


def _has_builtin_text(error: BaseException) -> bool:
    """Return whether Python alone makes the exception's text, without foreign code."""
    if any("__getattribute__" in _members_of(kind) and _module_of(kind) != "builtins" for kind in _mro_of(type(error))):
        return False
    str_method = next(_members_of(kind)["__str__"] for kind in _mro_of(type(error)) if "__str__" in _members_of(kind))
    if type(str_method) is not WrapperDescriptorType or isinstance(error, BaseExceptionGroup):
        return False
    said = [*error.args, error.filename, error.filename2] if isinstance(error, OSError) else error.args
    if not all(type(one) in _PLAIN for one in said):
        return False
    return len(said) <= 1 or sum(len(one) for one in said if isinstance(one, (str, bytes))) <= _MAX_QUOTED


def execution_not_started(why: str) -> Execution:
    """Return the execution of a call whose tool certainly did not start."""
    return Execution(status="not_started", error=why, not_started=True)


def execution_overdue(request: TimeBound, killed: bool, **facts: bool | str) -> Execution:
    """Return the execution of a call that its deadline or a kill has ended."""
    if killed:
        return Execution(status="killed", error=request.kill.reason or "cancelled", **facts)  # type: ignore[arg-type]
    return Execution(status="timed_out", error=f"it did not end within {request.timeout_s:.3g} s", **facts)  # type: ignore[arg-type]


def awaitable_note(tool: Tool) -> tuple[str, ...]:
    """Return the note for a tool that returned an awaitable; none if it is an async function."""
    return () if inspect.iscoroutinefunction(tool.execute) else _AWAITED
