"""Decide what an exception of a tool proves about the tool's effect.

Most exceptions prove nothing: the effect may have happened before they were raised. There are three exceptions to this: `NotDone` and the
tool's `not_done`; failures of HTTP clients and sockets before a request was sent; failures that lost a reply. The clients' exceptions are
recognised by class name, so that no client is imported. Knows nothing of calls.

Sources: exception hierarchies of the standard library, httpx 0.28, requests 2.34 with urllib3 2.8, aiohttp 3.14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final, Literal

from callgate.errors import NotDone, Retryable

__all__ = ["Evidence", "evidence_of", "is_lost_reply"]

Evidence = Literal["", "not_done", "not_sent", "reply_lost"]
"""What a failure proves: nothing; that nothing happened, as the tool says; that no request was sent; that a reply may be lost."""

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
"""Exceptions raised before any byte of a request was sent."""

_REPLY_LOST: Final = frozenset(
    {
        "builtins.TimeoutError",
        "builtins.ConnectionError",
        "asyncio.exceptions.IncompleteReadError",
        "http.client.IncompleteRead",
        "ssl.SSLEOFError",
        "ssl.SSLZeroReturnError",
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
"""Exceptions raised when a request may have been sent and no complete reply arrived."""

_WRAPPERS: Final = frozenset({"requests.exceptions.ConnectionError", "urllib3.exceptions.MaxRetryError", "urllib.error.URLError"})
"""Exceptions whose cause is their `reason` or first argument."""

_ALSO_CONNECTING: Final = frozenset({"builtins.TimeoutError", "builtins.ConnectionResetError"})
"""As the cause of a client's exception, these also mean that no connection was made."""

_FOLLOWS_REDIRECT: Final = frozenset({"resolve_redirects", "http_error_302"})
"""Functions of requests and urllib that send the request after a redirect."""
_KEEPS_HISTORY: Final = frozenset({"_send_handling_redirects", "_request"})
"""Functions of httpx and aiohttp whose local `history` holds the answers that redirected the request."""
_SENT_AGAIN: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that aiohttp repeats on its own if the connection breaks."""

_module_of: Final = type.__dict__["__module__"].__get__
_name_of: Final = type.__dict__["__qualname__"].__get__
_MAX_DEPTH: Final = 8
_MAX_LEAVES: Final = 64
_MAX_CHAIN: Final = 32


def evidence_of(error: BaseException, not_done: tuple[type[BaseException], ...] = ()) -> Evidence:
    """Return what a tool's exception proves about the tool's effect.

    Args:
        error: The exception. In an exception group, all exceptions must prove the same.
        not_done: Exceptions which mean that nothing happened. They take precedence.
    """
    try:
        return _evidence_of(error, not_done)
    except BaseException:  # the exception's class is the tool's code; its metaclass and properties may raise
        return ""


def _evidence_of(error: BaseException, not_done: tuple[type[BaseException], ...]) -> Evidence:
    if isinstance(error, (NotDone, *not_done)):
        return "not_done"
    if isinstance(error, BaseExceptionGroup):
        return _combine(_evidence_of(leaf, not_done) for leaf in _leaves(error))
    if isinstance(error, Retryable):
        return "not_sent" if error.not_started else "reply_lost"
    if _is_unsent(error):
        return "reply_lost" if _was_sent_before(error) else "not_sent"
    return "reply_lost" if is_lost_reply(error) else ""


def is_lost_reply(error: BaseException) -> bool:
    """Whether an exception means that a reply was lost: a timeout, a broken connection, a cut-off answer."""
    try:
        return _is_lost_reply(error)
    except BaseException:  # see `evidence_of`
        return False


def _is_lost_reply(error: object, depth: int = _MAX_DEPTH) -> bool:
    if not isinstance(error, BaseException) or depth == 0:
        return False
    names = set(_names(type(error)))
    return bool(names & _REPLY_LOST) or (bool(names & _WRAPPERS) and _is_lost_reply(_unwrap(error), depth - 1))


def _combine(found: Iterable[Evidence]) -> Evidence:
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
        return _is_unsent(_unwrap(error), depth - 1)
    # asyncio combines the failures of several addresses into one OSError without a code; only connecting raises it
    return type(error) is OSError and error.errno is None and str(error).startswith("Multiple exceptions: [Errno ")


def _unwrap(error: BaseException) -> object:
    return getattr(error, "reason", None) or (error.args[0] if error.args else None)


def _was_sent_before(error: BaseException) -> bool:
    """Whether an earlier request may have been answered: the failed one was a retry or followed a redirect."""
    in_client = False
    for one in _chain(error):
        if one is not error and _lost_earlier(one, in_client=in_client):
            return True
        if any(_shows_earlier_request(frame) for frame in _frames(one.__traceback__)):
            return True
        in_client = in_client or _module_of(type(one)) not in ("builtins", "socket")
    return False


def _lost_earlier(error: BaseException, *, in_client: bool) -> bool:
    """Whether an exception that was being handled when the last one was raised lost a reply."""
    if in_client and next(_names(type(error))) in _ALSO_CONNECTING:
        return False
    return _is_lost_reply(error) and not _is_unsent(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return an exception with its causes and the exceptions that were being handled."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_CHAIN:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += one.__cause__, one.__context__


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _shows_earlier_request(frame: FrameType) -> bool:
    """Whether a frame of an HTTP client shows a request before the failed one."""
    name, known = frame.f_code.co_name, frame.f_locals
    if name in _FOLLOWS_REDIRECT or (name in _KEEPS_HISTORY and known.get("history")):
        return True
    if name == "_request":  # of aiohttp
        return known.get("retry_persistent_connection") is False and known.get("method") in _SENT_AGAIN
    if name == "urlopen":  # of urllib3: each entry was an attempt; one with an answer has no error
        return any(not _is_unsent(entry.error) for entry in getattr(known.get("retries"), "history", ()))
    return False


def _names(kind: type[BaseException]) -> Iterator[str]:
    for base in type.__dict__["__mro__"].__get__(kind):  # avoids a metaclass that overrides it
        yield f"{_module_of(base)}.{_name_of(base)}"
