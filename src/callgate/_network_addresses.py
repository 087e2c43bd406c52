"""Parse the host of a URL, and classify addresses as public or not. Pure: resolves no names.

Shared, because the code that fetches a page and the code that judges its URL must read the host in the same way. A host is a plain ASCII
name or address; anything that two programs could read differently (odd numbers, other digits, user parts, backslashes, control characters)
is refused.
"""

from __future__ import annotations

import ipaddress
import re

__all__ = ["Address", "NotPlain", "is_local_name", "is_public", "read_host", "scheme_and_host"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\[[0-9A-Fa-f:.]*\]|[^/?#\[\]:]*)(?::[0-9]{0,5})?(?=[/?#]|\Z)")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL = (".localhost", ".localdomain", ".local", ".internal", ".lan", ".home.arpa")

# Written out, because what the standard library calls global differs between Python versions.
_CLOSED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24"),
        *("192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's platform: public by its number, but each machine reaches its own host there
    )
)
_OPEN_6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_6 = tuple(ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))


class NotPlain(ValueError):
    """The URL or host can be read in different ways. The message completes a sentence that begins with the URL."""


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet; tunnel and mapped addresses are not."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        return address.scope_id is None and address in _OPEN_6 and not any(address in network for network in _CLOSED_6)
    return not any(address in network for network in _CLOSED_4)


def is_local_name(name: str) -> bool:
    """Return whether a name from `read_host` is local by its form: it has a reserved suffix or no dot."""
    return "." not in name or name.endswith(_LOCAL)


def read_host(text: str) -> tuple[str, Address | None]:
    """Parse a URL's host: return it in lower case without brackets and trailing dot, and the address if it is one.

    Raises:
        NotPlain: `text` is neither a plain name nor a plain address.
    """
    if not text.isascii():
        raise NotPlain("has a host with other than ASCII characters. Write it in its 'xn--' form")
    if text.startswith("["):
        return _parse_address(text[1:-1], 6)
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _parse_address(name, 4)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise NotPlain("has no valid host name")
    return name, None


def scheme_and_host(url: str) -> tuple[str, str, Address | None]:
    """Return a URL's scheme in lower case, and its host as `read_host` returns it.

    Raises:
        NotPlain: The URL does not unambiguously name one host.
    """
    match = _URL.match(url)
    if match is None:
        raise NotPlain("does not plainly name one host")
    return match["scheme"].lower(), *read_host(match["host"])


def _parse_address(text: str, version: int) -> tuple[str, Address]:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise NotPlain("has a host that is a number but no plain address") from error
    if address.version != version or "%" in text:
        raise NotPlain("has a host that is a number but no plain address")
    return str(address), address
