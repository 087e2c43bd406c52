"""Decide which URLs may be fetched. Refuses a URL that two programs could read differently.

Pure: resolves no names. `callgate._network_addresses` parses addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from callgate._network_addresses import Address, NotPlain, is_public, read_host
from callgate.builtins._tool_failures import CannotDo

__all__ = ["AllowedHosts", "FetchTarget", "follow_redirect", "parse"]

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_URL = 8_192
_SAFE = "/:?#[]@!$&'()*+,;=%~"


class FetchTarget(Struct, frozen=True, kw_only=True):
    """A URL that may be fetched if the addresses of its host are allowed."""

    url: str
    scheme: Literal["http", "https"]
    host: str
    """Lower case, without brackets or a trailing dot."""
    port: int
    path: str
    """The path and query, as in the request line."""
    address: Address | None
    """The host's address if the URL gives an address; None if it gives a name."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


class AllowedHosts:
    """Addresses that are allowed in addition to public ones.

    Args:
        entries: `host:port` allows this port of exactly this host as written in the URL, whatever address it resolves
            to. A network (`10.1.0.0/16`) allows its addresses for every name and port.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        given = tuple(entries)
        self._networks: tuple[_Network, ...] = tuple(ipaddress.ip_network(entry) for entry in given if "/" in entry)
        self._places = frozenset(entry.lower() for entry in given if "/" not in entry)

    def names(self, target: FetchTarget) -> bool:
        return f"{target.host}:{target.port}" in self._places or f"[{target.host}]:{target.port}" in self._places

    def reaches(self, target: FetchTarget, address: Address) -> bool:
        """Return whether this address may be connected to for this URL."""
        return self.names(target) or is_public(address) or any(address in network for network in self._networks)


def parse(url: str) -> FetchTarget:
    """Parse a URL strictly.

    Raises:
        CannotDo: The URL is not unambiguously an http or https URL of one host.
    """
    if len(url) > _MAX_URL:
        raise _refusal(url, f"is longer than {_MAX_URL:,} characters. Use a shorter one")
    if any(not char.isprintable() or char.isspace() or char in '\\<>"`{}|^' for char in url):
        raise _refusal(url, "holds white space, control characters or others that a URL must percent-encode")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refusal(url, "is not a valid URL") from error
    if parts.scheme not in ("http", "https") or not url.lower().startswith(f"{parts.scheme}://"):
        raise _refusal(url, "is not an http or https URL. Only these are fetched")
    if "@" in parts.netloc:
        raise _refusal(url, "has a user part before its host. Give the URL without it")
    name = parts.hostname or ""
    try:
        host, address = read_host(f"[{name}]" if parts.netloc.startswith("[") else name)
    except NotPlain as error:
        raise _refusal(url, str(error)) from error
    if port == 0:
        raise _refusal(url, "has no usable port")
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return FetchTarget(url=url, scheme=scheme, host=host, port=port or (443 if scheme == "https" else 80), path=path, address=address)


def follow_redirect(base: FetchTarget, location: str) -> FetchTarget:
    """Return the target of a redirect, parsed as strictly as the first URL."""
    try:  # headers arrive as Latin-1, but servers send UTF-8
        text = location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        text = location
    return parse(urljoin(base.url, text.strip(" ")))


def _refusal(url: str, why: str) -> CannotDo:
    shown = ascii(url if len(url) <= 200 else url[:200] + "…")
    return CannotDo(f"{shown} {why}.")
