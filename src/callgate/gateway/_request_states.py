"""The sealed states by which clients of the stateless era continue their requests.

A state is encrypted and authenticated, and is valid for one principal and for the same method and params. It names what continues: a
request that waits in this process, or a call whose approval the client's user was asked for. The latter is on record, so it continues
after a restart, and at any gateway with the same secret and journal. Knows neither requests nor calls.

Source: MCP 2026-07-28, Multi Round-Trip Requests.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callgate._json import canonical, plain_bytes
from callgate.gateway._client_calls import CallInQuestion
from callgate.mcp._messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["ApprovalState", "ParkedState", "RequestStates", "request_digest", "state_refused"]

_CONTINUATION = frozenset({"inputResponses", "requestState", "_meta"})
"""The params that differ when a request is continued."""


class ParkedState(Struct, frozen=True, tag="parked"):
    """The state of a request that waits in this process."""

    principal: str
    digest: str
    request: str


class ApprovalState(Struct, frozen=True, tag="approval"):
    """The state of a request whose call is suspended until a human approves it."""

    principal: str
    digest: str
    question: CallInQuestion


_State = ParkedState | ApprovalState
_decode: Callable[[bytes], _State] = msgspec.json.Decoder(_State).decode


class RequestStates:
    """Seals and opens the states of one gateway.

    Args:
        secret: From which the key is made; None: a random one, so that states are valid until this process ends.
    """

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    @cached_property
    def _key(self) -> Fernet:
        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(hashlib.sha256(b"callgate request state" + self._secret).digest()))

    def sealed(self, state: _State) -> str:
        return self._key.encrypt(plain_bytes(msgspec.to_builtins(state))).decode()

    def opened(self, sealed: object, principal: str, digest: str) -> _State:
        """Return the state that a client has sent back.

        Raises:
            RpcError: It was changed, or belongs to another gateway, principal or request.
        """
        from cryptography.fernet import InvalidToken

        if not isinstance(sealed, str):
            raise state_refused()
        try:
            state = _decode(self._key.decrypt(sealed.encode("utf-8", "replace"), ttl=None))
        except (InvalidToken, msgspec.DecodeError):
            raise state_refused() from None
        if (state.principal, state.digest) != (principal, digest):
            raise state_refused()
        return state


def state_refused() -> RpcError:
    """Return the error for a state by which nothing continues."""
    return RpcError(
        INVALID_PARAMS,
        "The requestState is not valid here: it was changed, was used already, has expired, or belongs to another request. Make the"
        " request again without it.",
    )


def request_digest(method: str, params: Mapping[str, Any]) -> str:
    """Return a text that identifies a request whose continuations differ only in their answers."""
    return hashlib.sha256(canonical([method, {key: value for key, value in params.items() if key not in _CONTINUATION}])).hexdigest()
