"""Find the URL that the requests of each operation begin with: the operation's server, else the path's, else the document's.

All requests of a document's tools carry the host's credentials, so all of them go to one origin. Pure; sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from callgate.errors import UsageError
from callgate.integrations.openapi.document import Document, describe_kind
from callgate.integrations.openapi.operations import Listed
from callgate.models._credential_redaction import redact_url

__all__ = ["read_base_url", "read_operation_url"]

_PORTS = {"http": 80, "https": 443}


def read_base_url(document: Document, given: str | None, client: Any) -> str:
    """Return the URL before the paths: `given`, else the client's, else the document's first server.

    Raises:
        UsageError: It has no host, or it has a query or a fragment.
    """
    url = given or str(getattr(client, "base_url", "") or "")
    if not url:
        url = next(_urls(document.root.get("servers"), "The OpenAPI document"), "/")
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
        shown = redact_url(url)[:200]
        if given:
            raise UsageError(
                f"base_url is {shown!r}; it must begin with 'https://' or 'http://' and a host, as 'https://api.example.com/v1'."
            )
        raise UsageError(f"The document's server is {shown!r}, which has no host. Give base_url, such as 'https://api.example.com/v1'.")
    _refuse_query(parts, "base_url")
    return url.rstrip("/")


def read_operation_url(listed: Listed, base_url: str) -> str:
    """Return the URL before the path of an operation: its first server with the origin of `base_url`, or `base_url` if it has none.

    Raises:
        UsageError: Its servers all have other origins, to which the host's credentials must not go.
    """
    servers = listed.node.get("servers") or listed.shared_servers
    if not servers:
        return base_url
    found = [urljoin(f"{base_url}/", url) for url in _urls(servers, listed.where)]
    base = urlsplit(base_url)
    for url in found:
        parts = _split(url)
        if parts is not None and _origin(parts) == _origin(base):
            _refuse_query(parts, f"{listed.where}: its server")
            return parts._replace(netloc=base.netloc).geturl().rstrip("/")
    shown = ", ".join(repr(redact_url(url)[:200]) for url in found[:3])
    raise UsageError(
        f"{listed.where} has the server {shown}, but the credentials are for {redact_url(base_url)[:200]!r}, which is another origin. Leave"
        " the operation out with exclude=[...]; make its tool with a second openapi_tools, with include=[...] and base_url= of that server."
    )


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if its host or its port cannot be read."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _refuse_query(parts: SplitResult, name: str) -> None:
    if parts.query or parts.fragment:
        shown = redact_url(parts.geturl())[:200]
        raise UsageError(f"{name} {shown!r} has a query or a fragment. Give the query as query={{...}}.")


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _urls(servers: object, where: str) -> Iterator[str]:
    """Yield the URLs of servers, with the defaults of their variables."""
    if servers is None:
        return
    if not isinstance(servers, Sequence) or isinstance(servers, str):
        raise UsageError(f"{where}: 'servers' is {describe_kind(servers)}; it must be a list.")
    for server in servers:
        if not isinstance(server, Mapping):
            raise UsageError(f"{where}: a server is {describe_kind(server)}; it must be an object with 'url'.")
        url, variables = str(server.get("url", "/")), server.get("variables")
        for name, variable in variables.items() if isinstance(variables, Mapping) else ():
            if isinstance(variable, Mapping):
                url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        yield url
