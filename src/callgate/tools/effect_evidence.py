"""Decide what an exception of a tool proves about the tool's effect.

Most exceptions prove nothing: the effect may have happened before they were raised. Three kinds say more: `NotDone` and what the tool
declares as `not_done`, failures of HTTP clients and sockets by which no request was sent, and failures by which a reply was lost.
The clients are known by the names of their exception classes, so that none of them is imported here. Knows nothing of calls.

Sources: exception hierarchies of the standard library, httpx 0.28, requests 2.34 with urllib3 2.8, aiohttp 3.14.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
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
"""Raised where a request may have been sent and no whole reply came."""

_WRAPPERS: Final = frozenset({"requests.exceptions.ConnectionError", "urllib3.exceptions.MaxRetryError", "urllib.error.URLError"})
"""Hold the failure that counts as `reason` or as their first argument."""

_ALSO_CONNECTING: Final = frozenset({"builtins.TimeoutError", "builtins.ConnectionResetError"})
"""Below a client's own exception these also mean that the connection could not be made."""

_FOLLOWS_REDIRECT: Final = frozenset({"resolve_redirects", "http_error_302"})
"""Functions of requests and urllib that send the request after a redirect."""
_KEEPS_HISTORY: Final = frozenset({"_send_handling_redirects", "_request"})
"""Functions of httpx and aiohttp whose local `history` holds the answers that redirected the request."""
_SENT_AGAIN: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that aiohttp sends a second time by itself where the connection breaks."""

_module_of: Final = type.__dict__["__module__"].__get__
_name_of: Final = type.__dict__["__qualname__"].__get__
_MAX_DEPTH: Final = 8
_MAX_LEAVES: Final = 64
_MAX_CHAIN: Final = 32


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
    if _is_unsent(error):
        return "reply_lost" if _was_sent_before(error) else "not_sent"
    return "reply_lost" if is_lost_reply(error) else ""


def is_lost_reply(error: BaseException) -> bool:
    """Whether an exception is of a kind by which a reply is lost: a timeout, a broken connection, an answer that was cut off."""
    try:
        return _is_lost_reply(error)
    except BaseException:  # see `evidence_of`
        return False


def _is_lost_reply(error: object, depth: int = _MAX_DEPTH) -> bool:
    if not isinstance(error, BaseException) or depth == 0:
        return False
    names = set(_names(type(error)))
    return bool(names & _REPLY_LOST) or (bool(names & _WRAPPERS) and _is_lost_reply(_wrapped(error), depth - 1))


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
        return _is_unsent(_wrapped(error), depth - 1)
    # asyncio gives the failures of several addresses as one OSError, and no code: only connecting raises it
    return type(error) is OSError and error.errno is None and str(error).startswith("Multiple exceptions: [Errno ")


def _wrapped(error: BaseException) -> object:
    return getattr(error, "reason", None) or (error.args[0] if error.args else None)


def _was_sent_before(error: BaseException) -> bool:
    """Whether an earlier request may have been answered: the one that failed was a second try, or followed a redirect."""
    in_client = False
    for one in _chain(error):
        if one is not error and _lost_earlier(one, in_client=in_client):
            return True
        if any(_tells_of_earlier(frame) for frame in _frames(one.__traceback__)):
            return True
        in_client = in_client or _module_of(type(one)) not in ("builtins", "socket")
    return False


def _lost_earlier(error: BaseException, *, in_client: bool) -> bool:
    """Whether an exception that was being handled, as the last one was raised, lost a reply."""
    if in_client and next(_names(type(error))) in _ALSO_CONNECTING:
        return False
    return _is_lost_reply(error) and not _is_unsent(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was made of, and what was being handled when it was raised."""
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


def _tells_of_earlier(frame: FrameType) -> bool:
    """Whether a frame of an HTTP client shows that it had sent a request before the one that failed."""
    name, known = frame.f_code.co_name, frame.f_locals
    if name in _FOLLOWS_REDIRECT or (name in _KEEPS_HISTORY and known.get("history")):
        return True
    if name == "_request":  # of aiohttp
        return known.get("retry_persistent_connection") is False and known.get("method") in _SENT_AGAIN
    if name == "urlopen":  # of urllib3: each of these was a try, and an answer has no error
        return any(not _is_unsent(entry.error) for entry in getattr(known.get("retries"), "history", ()))
    return False


def _names(kind: type[BaseException]) -> Iterator[str]:
    for base in type.__dict__["__mro__"].__get__(kind):  # past a metaclass that answers otherwise
        yield f"{_module_of(base)}.{_name_of(base)}"
