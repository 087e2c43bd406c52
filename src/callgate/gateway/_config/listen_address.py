"""Read the address to listen on. Resolves no names, opens nothing."""

from __future__ import annotations

import ipaddress
from typing import Final

from callgate.errors import UsageError

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "is_loopback", "read_listen_address"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8765


def read_listen_address(text: str, owner: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `HOST`, `:PORT` or `PORT`. Port 0 is any free port.

    Args:
        owner: What has the address, as the user writes it.

    Raises:
        UsageError: It is not such an address.
    """
    text = text.strip()
    if text.isdecimal():
        text = f":{text}"
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdecimal() and int(port) < 65_536) or "/" in host or (":" in host and not _is_ip(host)):
        raise UsageError(
            f"{owner} is {text[:80]!r}, which is not an address to listen on. Write HOST:PORT, such as {DEFAULT_HOST}:{DEFAULT_PORT};"
            " the port is from 0 to 65535, and an IPv6 address is in brackets."
        )
    return host or DEFAULT_HOST, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can connect to a host."""
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
