"""Which URLs may be fetched, and which addresses count as public. Pure: no name is resolved here.

A host is a plain ASCII name or a plain address. Everything that two programs could read differently (user parts, odd numbers, other
digits, backslashes, control characters) is refused rather than guessed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

from callgate.builtins._failures import CannotDo

__all__ = ["Address", "Allowed", "Target", "is_public", "parse", "redirected"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_URL = 8_192
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SAFE = "/:?#[]@!$&'()*+,;=%~"

# Written out, because what the standard library calls global differs between Python versions.
_CLOSED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24"),
        *("192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_OPEN_6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_6 = tuple(ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))


class Target(Struct, frozen=True, kw_only=True):
    """A URL that may be asked for, once its host's addresses are checked."""

    url: str
    scheme: Literal["http", "https"]
    host: str
    """Lower case, without brackets or a trailing dot."""
    port: int
    path: str
    """With the query; what the request line takes."""
    address: Address | None
    """Where the host is an address and not a name."""

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


class Allowed:
    """What is reachable beside public addresses.

    Args:
        entries: `host:port` opens that port of that very host as a URL names it, wherever it resolves to; a network (`10.1.0.0/16`)
            opens its addresses for every name and port.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        given = tuple(entries)
        self._networks: tuple[_Network, ...] = tuple(ipaddress.ip_network(entry) for entry in given if "/" in entry)
        self._places = frozenset(entry.lower() for entry in given if "/" not in entry)

    def names(self, target: Target) -> bool:
        return f"{target.host}:{target.port}" in self._places or f"[{target.host}]:{target.port}" in self._places

    def reaches(self, target: Target, address: Address) -> bool:
        """Whether this address may be connected to for this URL."""
        return self.names(target) or is_public(address) or any(address in network for network in self._networks)


def is_public(address: Address) -> bool:
    """Whether an address is one on the public internet, by itself: tunnels and mappings of other addresses are not."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        return address.scope_id is None and address in _OPEN_6 and not any(address in network for network in _CLOSED_6)
    return not any(address in network for network in _CLOSED_4)


def parse(url: str) -> Target:
    """Read a URL strictly.

    Raises:
        CannotDo: It is not plainly an http or https URL of one host.
    """
    if len(url) > _MAX_URL:
        raise _refused(url, f"is longer than {_MAX_URL:,} characters. Use a shorter one")
    if any(not char.isprintable() or char.isspace() or char in '\\<>"`{}|^' for char in url):
        raise _refused(url, "holds white space, control characters or others that a URL must percent-encode")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, "is not a valid URL") from error
    if parts.scheme not in ("http", "https") or not url.lower().startswith(f"{parts.scheme}://"):
        raise _refused(url, "is not an http or https URL. Only these are fetched")
    if "@" in parts.netloc:
        raise _refused(url, "has a user part before its host. Give the URL without it")
    host, address = _host(url, parts.hostname or "", parts.netloc)
    if port == 0:
        raise _refused(url, "has no usable port")
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    return Target(url=url, scheme=scheme, host=host, port=port or (443 if scheme == "https" else 80), path=path, address=address)


def redirected(base: Target, location: str) -> Target:
    """Where a redirect leads, read as strictly as the first URL."""
    try:  # headers arrive as Latin-1; what servers mean is UTF-8
        text = location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        text = location
    return parse(urljoin(base.url, text.strip(" ")))


def _host(url: str, host: str, netloc: str) -> tuple[str, Address | None]:
    if not host.isascii():
        raise _refused(url, "has a host with other than ASCII characters. Write it in its 'xn--' form")
    if netloc.startswith("["):
        return _address(url, host, 6)
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address(url, name, 4)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refused(url, "has no valid host name")
    return name, None


def _address(url: str, text: str, version: int) -> tuple[str, Address]:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise _refused(url, "has a host that is a number but no plain address") from error
    if address.version != version or "%" in text:
        raise _refused(url, "has a host that is a number but no plain address")
    return str(address), address


def _refused(url: str, why: str) -> CannotDo:
    shown = ascii(url if len(url) <= 200 else url[:200] + "…")
    return CannotDo(f"{shown} {why}.")
