"""Import httpx2 on first use, create its clients, and describe its errors.

httpx2 reads proxies and certificates from environment variables; a client that cannot be created names the variable that is wrong. Sends
nothing.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from callgate.errors import UsageError
from callgate.models._credential_redaction import redact_url

__all__ = ["cause_chain", "create_client", "describe_cause", "import_httpx2", "tls_context"]

_Client = TypeVar("_Client")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


def create_client(make: Callable[[], _Client]) -> _Client:
    """Return what `make` returns: a client that takes proxies and certificates from the environment.

    Raises:
        UsageError: An environment variable for proxies or certificates cannot be used.
    """
    try:
        return make()
    except OSError as error:
        raise _environment_error(
            _CERTIFICATES, "certificates", error, "the path of a readable file or folder of certificates in PEM form"
        ) from None
    except Exception as error:
        raise _environment_error(_PROXIES, "proxies", error, "a URL, as in http://127.0.0.1:3128,") from None


def tls_context() -> ssl.SSLContext:
    """Return the TLS context for the environment's certificates.

    All clients share it, because reading the system's certificates takes 20 ms. Call it in the `make` of
    `create_client`.
    """
    return _tls_context(tuple(os.environ.get(name) for name in _CERTIFICATES))


@cache
def _tls_context(certificates: tuple[str | None, ...]) -> ssl.SSLContext:
    """Return the TLS context for these values of the environment variables that name certificates.

    The context is cached for each combination of values.
    """
    context: ssl.SSLContext = import_httpx2().create_ssl_context()
    return context


def _environment_error(names: tuple[str, ...], setting: str, error: Exception, form: str) -> UsageError:
    found = [f"{name}={redact_url(os.environ[name])[:200]!r}" for one in names for name in (one, one.lower()) if os.environ.get(name)]
    values = ", ".join(found) or "the system's settings"
    return UsageError(f"No request can be sent: the {setting} cannot be used ({type(error).__name__}): {values}. Give {form} or unset it.")


def describe_cause(error: BaseException) -> str:
    """Return the text of the innermost error that has one. Not redacted and not truncated: the caller redacts first."""
    texts = [text for cause in cause_chain(error) if (text := _error_text(cause))]
    return texts[-1] if texts else type(error).__name__


def _error_text(error: BaseException) -> str:
    """Return the operating system's text for an error number, or the error's own text without Python's `[Errno N]` prefix."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return _ERRNO.sub("", str(error))


def cause_chain(error: BaseException | None) -> list[BaseException]:
    """Return the error, its cause, the cause of that, and so on; at most ten errors."""
    found: list[BaseException] = []
    while error is not None and len(found) < 10:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def import_httpx2() -> Any:
    """Import httpx2, so that it is loaded with the first request only.

    Raises:
        UsageError: httpx2 is not installed.
    """
    try:
        import httpx2
    except ImportError as error:
        raise UsageError("Models need httpx2, which is not installed. Run: pip install 'callgate[models]'.") from error
    return httpx2
