"""Make httpx2 clients, and say which environment variable is wrong where one cannot be made. Sends nothing."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from callgate.errors import UsageError
from callgate.models._secrets import redact_url

__all__ = ["cause_chain", "create_client", "describe_cause", "import_httpx2"]

_Client = TypeVar("_Client")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


def create_client(make: Callable[[], _Client]) -> _Client:
    """What `make` returns: a client that takes proxies and certificates from the environment.

    Raises:
        UsageError: A variable of theirs cannot be used.
    """
    try:
        return make()
    except OSError as error:
        raise _wrong(_CERTIFICATES, "certificates", error, "the path of a readable file or folder of certificates in PEM form") from None
    except Exception as error:
        raise _wrong(_PROXIES, "proxies", error, "a URL, as in http://127.0.0.1:3128,") from None


def _wrong(names: tuple[str, ...], what: str, error: Exception, form: str) -> UsageError:
    found = [f"{name}={redact_url(os.environ[name])[:200]!r}" for one in names for name in (one, one.lower()) if os.environ.get(name)]
    said = ", ".join(found) or "what the environment says of them"
    return UsageError(f"No request can be sent: the {what} cannot be used ({type(error).__name__}): {said}. Give {form} or unset it.")


def describe_cause(error: BaseException) -> str:
    """The innermost error that says something. Not cut: what must not be shown of it is to be removed first."""
    said = [text for cause in cause_chain(error) if (text := _said_by(cause))]
    return said[-1] if said else type(error).__name__


def _said_by(error: BaseException) -> str:
    """The system's own words where it refused, without the numbers that Python puts before them."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return _ERRNO.sub("", str(error))


def cause_chain(error: BaseException | None) -> list[BaseException]:
    """The error, what caused it, and so on inwards; at most ten of them."""
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def import_httpx2() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise UsageError("Models need httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
    return httpx2
