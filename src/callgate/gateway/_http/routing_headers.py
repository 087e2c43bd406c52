"""Compare the routing headers of the stateless era with the body. Pure.

Source: MCP 2026-07-28, Streamable HTTP: a proxy routes by headers, so headers that differ from the body are refused with -32020.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from callgate.gateway._http.request_checks import Headers, RefusedRequest
from callgate.mcp._revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, UNSUPPORTED_REVISION

__all__ = ["HANDSHAKE_VERSIONS", "check_routing_headers", "meta_version"]

HANDSHAKE_VERSIONS = frozenset(HANDSHAKE_REVISIONS)
HeaderParams = Callable[[str], Mapping[str, Sequence[str]]]
"""Returns for a tool the path in its arguments of each header (the part after `Mcp-Param-`)."""

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAME_KEYS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_HEADER_MISMATCH = -32020
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?", re.ASCII)


def meta_version(message: Mapping[str, Any]) -> object:
    """Return the protocol version in a message's `_meta`; None if there is none."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(_VERSION_KEY) if isinstance(meta, dict) else None


def check_routing_headers(headers: Headers, message: Mapping[str, Any], header_params: HeaderParams) -> None:
    """Raise `RefusedRequest` if a routing header is missing or differs from the body of a stateless request."""
    method, params = message["method"], message.get("params")
    params = params if isinstance(params, dict) else {}
    version, given = meta_version(message), headers.get(b"mcp-protocol-version", b"").decode("latin-1")
    if version is None and given not in STATELESS_REVISIONS:
        # Nothing says which era the request is of; one that names its revision in `_meta` is told those of `server/discover`.
        revisions = {"supported": [*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS], "requested": given[:100]}
        raise RefusedRequest(400, f"The revision {given[:100]} is not supported.", UNSUPPORTED_REVISION, revisions)
    if version is not None:
        _check_same("MCP-Protocol-Version", headers.get(b"mcp-protocol-version"), version)
    _check_same("Mcp-Method", headers.get(b"mcp-method"), method)
    name = params.get(_NAME_KEYS.get(method, ""))
    if name is not None:
        _check_same("Mcp-Name", headers.get(b"mcp-name"), name)
    if method == "tools/call" and isinstance(name, str):
        for header, path in header_params(name).items():
            _check_param(headers, f"Mcp-Param-{header}", _value_at(params.get("arguments"), path))


def _check_param(headers: Headers, header: str, value: object) -> None:
    given = headers.get(header.lower().encode())
    if given is None and value is None:
        return
    if given is not None and isinstance(value, (int, float)) and not isinstance(value, bool) and _is_number(_decode(given), value):
        return
    _check_same(header, given, str(value).lower() if isinstance(value, bool) else None if value is None else str(value))


def _is_number(text: str | None, value: float) -> bool:
    """Return whether a header is the same number, however it is written: 42 is 42.0."""
    return text is not None and _NUMBER.fullmatch(text) is not None and Decimal(text) == Decimal(str(value))


def _value_at(value: object, path: Sequence[str]) -> object:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _check_same(header: str, given: bytes | None, wanted: object) -> None:
    if given is None or _decode(given) != wanted:
        what = "is missing" if given is None else "differs from the body"
        raise RefusedRequest(400, f"The header {header} {what}. Send the same value in both.", _HEADER_MISMATCH)


def _decode(given: bytes) -> str | None:
    if not (given.startswith(b"=?base64?") and given.endswith(b"?=")):
        return given.decode("latin-1")
    payload = given[9:-2]
    try:
        value = base64.b64decode(payload, validate=True)
        return value.decode() if base64.b64encode(value) == payload else None
    except (binascii.Error, UnicodeDecodeError):
        return None
