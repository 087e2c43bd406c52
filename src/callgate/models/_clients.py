"""Make httpx2 clients, and say which environment variable is wrong where one cannot be made. Sends nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from callgate.errors import UsageError
from callgate.models._refusals import shown_url

__all__ = ["made"]

_Client = TypeVar("_Client")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


def made(make: Callable[[], _Client]) -> _Client:
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
    found = [f"{name}={shown_url(os.environ[name])[:200]!r}" for one in names for name in (one, one.lower()) if os.environ.get(name)]
    said = ", ".join(found) or "what the environment says of them"
    return UsageError(f"No request can be sent: the {what} cannot be used ({type(error).__name__}): {said}. Give {form} or unset it.")
