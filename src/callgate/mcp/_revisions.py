"""The revisions of MCP, their two eras, and what each era adds to a request.

Up to 2025-11-25, a connection begins with a handshake (`initialize`). Since 2026-07-28 there is none: each request says in `_meta` which
revision it uses, who sends it, and what the client can do. Pure.

Sources: MCP 2025-11-25, Lifecycle; MCP 2026-07-28, Versioning and `server/discover`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from callgate._version import __version__

__all__ = [
    "CLIENT_INFO",
    "HANDSHAKE_REVISIONS",
    "LATEST_HANDSHAKE",
    "LATEST_STATELESS",
    "LOG_LEVEL",
    "STATELESS_REVISIONS",
    "UNSUPPORTED_REVISION",
    "Era",
    "era_of",
    "request_meta",
    "supported_by_discovery",
    "supported_by_error",
]

Era = Literal["handshake", "stateless"]

HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_REVISIONS = ("2026-07-28",)
LATEST_HANDSHAKE = HANDSHAKE_REVISIONS[-1]
LATEST_STATELESS = STATELESS_REVISIONS[-1]
UNSUPPORTED_REVISION = -32022

CLIENT_INFO: Mapping[str, str] = {"name": "callgate", "version": __version__}
_PREFIX = "io.modelcontextprotocol/"
LOG_LEVEL = f"{_PREFIX}logLevel"
"""The key of `_meta` by which a request of the stateless era asks for log messages."""


def era_of(revision: str) -> Era | None:
    """Return the era of a revision; None if the revision is not known."""
    if revision in STATELESS_REVISIONS:
        return "stateless"
    return "handshake" if revision in HANDSHAKE_REVISIONS else None


def request_meta(revision: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` that each request of the stateless era has."""
    return {
        f"{_PREFIX}protocolVersion": revision,
        f"{_PREFIX}clientInfo": CLIENT_INFO,
        f"{_PREFIX}clientCapabilities": capabilities,
    }


def supported_by_discovery(result: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the revisions that a result of `server/discover` names; None if it is not such a result."""
    return _as_texts(result.get("supportedVersions")) if isinstance(result.get("capabilities"), dict) else None


def supported_by_error(data: object) -> tuple[str, ...]:
    """Return the revisions that the error about an unsupported revision names."""
    return (_as_texts(data.get("supported")) or ()) if isinstance(data, dict) else ()


def _as_texts(value: object) -> tuple[str, ...] | None:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else None
