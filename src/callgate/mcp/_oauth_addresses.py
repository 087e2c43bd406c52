"""Decide which addresses the metadata of a server may lead the client to.

A server names the places of its metadata and of its authorization server, so a hostile one could make the client ask services that only the
user's machine or network reaches. A server on the internet leads to public addresses only, one on a private network also to private ones,
and one on this machine to all but link-local ones. Where the operator has named the origin, nothing is refused. Sends nothing but lookups
of names.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from enum import IntEnum
from urllib.parse import urlsplit

from callgate._network_addresses import Address, NotPlain, is_local_name, is_public, scheme_and_host

__all__ = ["AllowedAddresses", "Unreachable", "Untrusted", "checked_address", "is_private_connection"]

_MOST_ADDRESSES = 4
_STEP = "If its authorization server is right, give it as issuer=... of OAuth"
_MOST_CHARS = 2_048


class Untrusted(Exception):
    """Something is not valid, or does not belong to what it was asked for."""


class Unreachable(Untrusted):
    """The authorization server cannot be asked now; later it may."""


class _Network(IntEnum):
    """Where an address is. A server may lead to its own network and to those before it."""

    PUBLIC = 0
    PRIVATE = 1
    THIS_MACHINE = 2
    LINK_LOCAL = 3


_SHOWN = {
    _Network.PUBLIC: "a public address",
    _Network.PRIVATE: "on a private network",
    _Network.THIS_MACHINE: "on this machine",
    _Network.LINK_LOCAL: "a link-local address",
}


class AllowedAddresses:
    """The addresses that one server may lead to.

    Args:
        url: The server's address.
        issuer: The authorization server that the operator has named; may be empty.
        step: What to do if a refused address is right after all, for errors.
    """

    def __init__(self, url: str, issuer: str = "", *, step: str = _STEP) -> None:
        self._step = step
        self._network = _network_of(url)
        self._named = frozenset(_origin(one) for one in (url, issuer) if one)

    def check(self, url: str) -> None:
        """Raise if an address may not be asked or opened, as far as its host says that.

        Raises:
            Untrusted: It leads to a network that is not the server's.
        """
        if _origin(url) not in self._named:
            self._check_network(url, _network_of(url))

    async def addresses(self, url: str) -> list[str]:
        """Return the addresses to connect to, which were checked; empty if the operator has named the origin.

        Raises:
            Untrusted: One of them is in a network that is not the server's.
            Unreachable: The host's name has no address.
        """
        self.check(url)
        if _origin(url) in self._named:
            return []
        _, name, address = scheme_and_host(url)
        found = [str(address)] if address is not None else await _resolve(name)
        for one in found:
            self._check_network(url, _network_of_address(ipaddress.ip_address(one)))
        return found[:_MOST_ADDRESSES]

    def _check_network(self, url: str, network: _Network) -> None:
        if network > self._network:
            origin = "{}://{}".format(*_origin(url)[:2])
            raise Untrusted(f"it leads to {origin}, which is {_SHOWN[network]}, and the server is not. {self._step}")


def checked_address(value: object, name: str) -> str:
    """Return an address that can be asked without others reading what is sent: `https`, or `http` on this machine.

    Raises:
        Untrusted: It is not such an address, or can be read in more than one way.
    """
    if not isinstance(value, str) or len(value) > _MOST_CHARS or "#" in value or not value.isprintable() or not value.isascii():
        raise Untrusted(f"the {name} {str(value)[:200]!a} is not a plain https address")
    try:
        usable = is_private_connection(value) and urlsplit(value).port != 0
    except ValueError:
        usable = False
    if not usable:
        raise Untrusted(f"the {name} {value[:200]!a} is not a plain https address")
    return value


def is_private_connection(url: str) -> bool:
    """Return whether what is sent to an address cannot be read on the way: it has TLS, or is on this machine.

    Raises:
        NotPlain: The address can be read in more than one way.
    """
    scheme, name, address = scheme_and_host(url)
    return scheme == "https" or (scheme == "http" and _network_of_host(name, address) is _Network.THIS_MACHINE)


def _network_of(url: str) -> _Network:
    try:
        return _network_of_host(*scheme_and_host(url)[1:])
    except NotPlain:
        return _Network.PUBLIC


def _network_of_host(name: str, address: Address | None) -> _Network:
    if address is not None:
        return _network_of_address(address)
    if name == "localhost" or name.endswith(".localhost"):
        return _Network.THIS_MACHINE
    return _Network.PRIVATE if is_local_name(name) else _Network.PUBLIC


def _network_of_address(address: Address) -> _Network:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_link_local:
        return _Network.LINK_LOCAL
    if address.is_loopback or address.is_unspecified:
        return _Network.THIS_MACHINE
    return _Network.PUBLIC if is_public(address) else _Network.PRIVATE


async def _resolve(name: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"the host {name} has no address ({type(error).__name__})") from error
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None
