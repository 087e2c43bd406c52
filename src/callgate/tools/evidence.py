"""Decide what an exception of a tool proves about the tool's effect.

Most exceptions prove nothing: the effect may have happened before they were raised. Three kinds say more: `NotDone` and what the tool
declares as `not_done`, failures of HTTP clients and sockets by which no request was sent, and failures by which a reply was lost.
The clients are known by the names of their exception classes, so that none of them is imported here. Knows nothing of calls.

Sources: exception hierarchies of the standard library, httpx 0.28, requests 2.34 with urllib3 2.8, aiohttp 3.14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Literal

from callgate.errors import NotDone, Retryable

__all__ = ["Evidence", "evidence_of", "is_lost_reply"]

Evidence = Literal["", "not_done", "not_sent", "reply_lost"]
"""What a failure proves: nothing; that nothing happened, by the tool's word; that no request was sent; that one may have been answered."""

_NOT_SENT: Final = frozenset(
    {
        "builtins.ConnectionRefusedError",
        "socket.gaierror",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
        "httpx2.ConnectError",
        "httpx2.ConnectTimeout",
        "httpx2.PoolTimeout",
        "requests.exceptions.ConnectTimeout",
        "urllib3.exceptions.NewConnectionError",
        "urllib3.exceptions.ConnectTimeoutError",
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
    }
)
"""Raised before any byte of a request was sent."""

_REPLY_LOST: Final = frozenset(
    {
        "builtins.TimeoutError",
        "builtins.ConnectionError",
        "asyncio.exceptions.IncompleteReadError",
        "http.client.IncompleteRead",
        "httpx.TransportError",
        "httpx2.TransportError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "requests.exceptions.ChunkedEncodingError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
    }
)
"""Raised where a request may have been sent and no whole reply came."""

_WRAPPERS: Final = frozenset({"requests.exceptions.ConnectionError", "urllib3.exceptions.MaxRetryError", "urllib.error.URLError"})
"""Hold the failure that counts as `reason` or as their first argument."""

_FOLLOWS_REDIRECT: Final = frozenset({"resolve_redirects", "http_error_302"})
"""Functions of requests and urllib that send the request after a redirect."""
_KEEPS_HISTORY: Final = frozenset({"_send_handling_redirects", "_request"})
"""Functions of httpx and aiohttp whose local `history` holds the answers that redirected the request."""

_module_of: Final = type.__dict__["__module__"].__get__
_name_of: Final = type.__dict__["__qualname__"].__get__
_MAX_DEPTH: Final = 8
_MAX_LEAVES: Final = 64


def evidence_of(error: BaseException, not_done: tuple[type[BaseException], ...] = ()) -> Evidence:
    """What `error`, raised by a tool, proves about the tool's effect.

    Args:
        error: As the tool raised it. Of a group, every exception has to prove the same.
        not_done: The exceptions by which the tool says that nothing happened. They count before everything else.
    """
    try:
        return _evidence_of(error, not_done)
    except BaseException:  # an exception's class is the tool's code: its metaclass and its properties may raise
        return ""


def _evidence_of(error: BaseException, not_done: tuple[type[BaseException], ...]) -> Evidence:
    if isinstance(error, (NotDone, *not_done)):
        return "not_done"
    if isinstance(error, BaseExceptionGroup):
        return _of_all(_evidence_of(leaf, not_done) for leaf in _leaves(error))
    if isinstance(error, Retryable):
        return "not_sent" if error.not_started else "reply_lost"
    if _is_unsent(error) and not _was_redirected(error.__traceback__):
        return "not_sent"
    return "reply_lost" if is_lost_reply(error) else ""


def is_lost_reply(error: BaseException) -> bool:
    """Whether an exception is of a kind by which a reply is lost: a timeout, a broken connection, an answer that was cut off."""
    return any(name in _REPLY_LOST for name in _names(type(error)))


def _of_all(found: Iterable[Evidence]) -> Evidence:
    kinds = set(found)
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {"not_done", "not_sent"}:
        return "not_sent"
    return "reply_lost" if "reply_lost" in kinds else ""


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(found) < _MAX_LEAVES:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            found.append(error)
    return found


def _is_unsent(error: object, depth: int = _MAX_DEPTH) -> bool:
    if not isinstance(error, BaseException) or depth == 0:
        return False
    names = set(_names(type(error)))
    if names & _NOT_SENT:
        return True
    if names & _WRAPPERS:
        return _is_unsent(getattr(error, "reason", None) or (error.args[0] if error.args else None), depth - 1)
    # asyncio gives the failures of several addresses as one OSError, and no code: only connecting raises it
    return type(error) is OSError and error.errno is None and str(error).startswith("Multiple exceptions: [Errno ")


def _was_redirected(trace: TracebackType | None) -> bool:
    """Whether the request that failed followed a redirect, so that an earlier one was answered."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name in _FOLLOWS_REDIRECT:
            return True
        if code.co_name in _KEEPS_HISTORY and trace.tb_frame.f_locals.get("history"):
            return True
        trace = trace.tb_next
    return False


def _names(kind: type[BaseException]) -> Iterator[str]:
    for base in type.__dict__["__mro__"].__get__(kind):  # past a metaclass that answers otherwise
        yield f"{_module_of(base)}.{_name_of(base)}"
